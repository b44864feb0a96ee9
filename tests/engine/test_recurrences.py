"""Engines that keep and tick recurrences on a real server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
import pytest

from relay.app import put_together
from relay.core.errors import InvalidField, OtherVersion, RecurrenceNotFound, TopicFull
from relay.core.instants import LATEST, SECOND
from relay.core.partitions import Layout
from relay.core.recurring.recurrence import (
    CatchUp,
    Filling,
    LeftOut,
    Overlap,
    Put,
    Recurrence,
    Standing,
    StoredRecurrence,
)
from relay.core.recurring.rule import Rule, occurrence_name
from relay.engine.recurring import recurrences as module
from relay.engine.recurring.computing import Computing
from relay.engine.recurring.recurrences import Recurrences
from relay.engine.recurring.tickers import Tickers
from relay.engine.recurring.zone_updates import ZoneUpdates, updated_standing
from relay.rules import TZDATA, compile_rule
from relay.settings import Settings
from relay.store.keys import KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing
from tests.worlds.waiting import PATIENCE, until

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

DAILY = Recurrence("r", Rule(cron="30 2 * * *", zone="Europe/Berlin"), b"x")


class Scene:
    """A topic with an engine."""

    def __init__(self, server: RunningServer, topic: str) -> None:
        self.server, self.topic = server, topic

    @asynccontextmanager
    async def engine(self, **policy: object) -> AsyncIterator[Recurrences]:
        topic = {"max_polling_interval": 0.5, **policy}
        settings = Settings.model_validate({"topics": {self.topic: topic}})
        metrics, policies = Metrics(), settings.policies()
        async with Server(self.server.url, connections=4, timeout=60.0) as server:
            layouts = RedisLayouts(server, lambda topic: policies(topic).partitions)
            hints = RedisHints(server)
            engine = put_together(settings, server, hints, layouts, metrics.instruments, Tracing())
            async with anyio.create_task_group() as tasks:
                await tasks.start(engine.run)
                yield engine.recurrences
                tasks.cancel_scope.cancel()
        metrics.close()

    @asynccontextmanager
    async def store(self) -> AsyncIterator[RedisRecurrences]:
        """To change behind the engine's back."""
        async with Server(self.server.url, connections=1, timeout=60.0) as server:
            yield RedisRecurrences(server, Carrier(server))

    async def change(self, before: StoredRecurrence, **fields: Any) -> None:
        """Nothing is kept where the ticker has turned it since it was read: then it is read again."""
        async with self.store() as store:

            async def is_kept() -> object:
                _, kept = await store.get(self.topic, before.recurrence.recurrence_id)
                assert kept is not None
                standing = replace(kept.standing, **fields)
                return await store.keep(self.topic, kept, kept.recurrence, standing, 0, reason="put")

            await until(is_kept, "it is changed")

    async def end_all(self) -> int:
        """End all occurrences; return how many there were."""
        timeline = KeyNames().key("timeline", self.topic)
        found = cast("list[bytes]", self.server.client().zrange(timeline, 0, -1))
        names = [name.decode() for name in found]
        async with Server(self.server.url, connections=1, timeout=60.0) as server:
            await RedisStore(server, park_grace=0).cancel(self.topic, names)
        return len(names)


@pytest.fixture
def kept(valkey: RunningServer, keyspace: Keyspace) -> Scene:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    return Scene(valkey, topic)


async def test_put(kept: Scene) -> None:
    """Created, left as it is, replaced; versions count changes, and what was counted stays."""
    async with kept.engine() as recurrences:
        made, how = await recurrences.put(kept.topic, DAILY)
        assert (how, made.standing.version, made.standing.tzdata) == (Put.CREATED, 1, TZDATA)
        again, how = await recurrences.put(kept.topic, DAILY)
        assert (how, again.standing) == (Put.UNCHANGED, made.standing)
        await kept.change(made, runs=7)
        other = replace(DAILY, payload=b"y")
        changed, how = await recurrences.put(kept.topic, other)
        assert (how, changed.standing.version, changed.standing.runs) == (Put.REPLACED, 2, 7)
        assert changed.standing.next == made.standing.next
        assert (await recurrences.get(kept.topic, "r")).recurrence == other


async def test_put_a_version(kept: Scene) -> None:
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, DAILY, if_version=0)
        with pytest.raises(OtherVersion, match=r"^if_version: recurrence 'r' has version 1, not 0"):
            await recurrences.put(kept.topic, DAILY, if_version=0)
        other = replace(DAILY, payload=b"y")
        await recurrences.put(kept.topic, other, if_version=1)
        with pytest.raises(OtherVersion, match="has version 2, not 1"):
            await recurrences.put(kept.topic, DAILY, if_version=1)


async def test_what_is_not_there(kept: Scene) -> None:
    async with kept.engine() as recurrences:
        for call in (recurrences.get, recurrences.pause, recurrences.resume, recurrences.trigger):
            with pytest.raises(RecurrenceNotFound, match="has no recurrence 'r'"):
                await call(kept.topic, "r")
        with pytest.raises(RecurrenceNotFound):
            await recurrences.backfill(kept.topic, "r", 0, SECOND)
        assert await recurrences.remove(kept.topic, "r") is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (Rule(cron="61 * * * *"), "rule.cron: "),
        (Rule(cron="0 0 30 2 *"), "rule.cron: "),
        (Rule(every=1000), "rule.every: "),
        (Rule(cron="0 0 * * *", zone="Europe/Berlni"), "rule.zone: "),
        (Rule(), "rule: "),
    ],
)
async def test_rules_that_are_none(kept: Scene, rule: Rule, said: str) -> None:
    async with kept.engine() as recurrences:
        with pytest.raises(InvalidField) as refused:
            await recurrences.put(kept.topic, replace(DAILY, rule=rule))
        assert str(refused.value).startswith(said)
        with pytest.raises(RecurrenceNotFound):
            await recurrences.get(kept.topic, "r")


async def test_a_topic_that_allows_less(kept: Scene) -> None:
    """A rule is refused that fires more often; one that was there before goes on, and so do its changes that
    leave the rule."""
    half = replace(DAILY, rule=Rule(every=30 * SECOND))
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, half)
    async with kept.engine(min_recurrence_interval=60) as recurrences:
        assert (await recurrences.put(kept.topic, half))[1] is Put.UNCHANGED
        assert (await recurrences.put(kept.topic, replace(half, payload=b"y")))[1] is Put.REPLACED
        other = Rule(every=59 * SECOND)
        with pytest.raises(InvalidField, match=r"^rule.every: fires at .* the topic allows 60 s and more"):
            await recurrences.put(kept.topic, replace(half, rule=other))
        with pytest.raises(InvalidField, match=r"^rule.every: fires at .* the topic allows 60 s and more"):
            await recurrences.preview(other, 2, 0, topic=kept.topic)
        assert len(await recurrences.preview(other, 2, 0)) == 2
    async with kept.engine(min_recurrence_interval=0.5) as recurrences:
        quick = replace(half, rule=Rule(every=SECOND // 2))
        assert (await recurrences.put(kept.topic, quick))[1] is Put.REPLACED


async def test_a_preview_ends_behind_an_instant(kept: Scene) -> None:
    """A rule that is rare is not computed for centuries."""
    async with kept.engine() as recurrences:
        minutes = Rule(every=60 * SECOND)
        for count, until, at_least, many in ((9, 5, 2, 5), (9, 5, 7, 7), (4, 5, 2, 4), (9, None, 2, 9)):
            end = None if until is None else until * 60 * SECOND
            shown = await recurrences.preview(minutes, count, 0, until=end, at_least=at_least)
            assert [each.instant for each in shown] == [n * 60 * SECOND for n in range(1, many + 1)]


async def test_another_rule_while_instants_have_passed(kept: Scene) -> None:
    """They are the old rule's: each has its occurrence, or its reason, before the new rule counts."""
    async with kept.engine() as recurrences:
        # A busy machine may tick late: then none is left out for that.
        every_second = replace(DAILY, rule=Rule(every=SECOND), overlap=Overlap.SKIP, catch_up=CatchUp.ALL)
        await recurrences.put(kept.topic, every_second)
        await until_ticked(recurrences, kept.topic, 2)
        changed, _ = await recurrences.put(kept.topic, DAILY)
        standing = changed.standing
        first, last = standing.recent[0].nominal, standing.recent[-1].nominal
        passed = (last - first) // SECOND + 1
        assert standing.runs + standing.left_out.get(LeftOut.OVERLAP, 0) == passed
        assert last <= standing.settled < last + SECOND
        assert standing.next is not None
        assert standing.next % (60 * SECOND) == 0


@asynccontextmanager
async def watched_loop(gaps: list[float]) -> AsyncIterator[None]:
    """Within the block, note the most that the event loop's thread works, in seconds of its CPU, before it
    comes round. On a busy machine it comes round late for reasons that are not its own."""
    gaps.append(0.0)

    async def look() -> None:
        while True:
            began = time.thread_time()
            await anyio.lowlevel.checkpoint()
            gaps[-1] = max(gaps[-1], time.thread_time() - began)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        yield
        tasks.cancel_scope.cancel()


def slow(number: int) -> Rule:
    """Rules that take a second to compile, each for the first time; all fire alike."""
    return Rule(rrule=f"FREQ=MONTHLY;COUNT={95_000 - number}", zone="Europe/Berlin")


@pytest.mark.slow
async def test_rules_that_take_long_leave_the_loop_alone(kept: Scene) -> None:
    """Where they are put, shown, ticked, filled in, and computed by other time zones."""
    gaps: list[float] = []
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, DAILY)
        began = time.thread_time()
        compile_rule(slow(0))
        takes = time.thread_time() - began
        async with watched_loop(gaps):
            await recurrences.put(kept.topic, replace(DAILY, recurrence_id="s1", rule=slow(1)))
        async with watched_loop(gaps):
            await recurrences.preview(slow(2), 10, 0)
        now, day = made.standing.settled, 86_400 * SECOND
        stands = {
            3: Standing(1, next=now, settled=now - 40 * day, tzdata=TZDATA),
            4: Standing(1, next=LATEST, settled=now, tzdata="2001a"),
            5: Standing(1, next=now + 999 * day, settled=now, tzdata=TZDATA),
        }
        async with kept.store() as store:
            for number, standing in stands.items():
                wanted = replace(DAILY, recurrence_id=f"s{number}", rule=slow(number))
                assert await store.keep(kept.topic, None, wanted, standing, now, reason="put")
        async with watched_loop(gaps):
            await until_ticked(recurrences, kept.topic, 1, "s3")
        async with watched_loop(gaps):
            assert (await recurrences.backfill(kept.topic, "s5", now - 70 * day, now)).occurrences
    async with kept.engine() as recurrences, watched_loop(gaps):

        async def is_updated() -> bool:
            return (await recurrences.get(kept.topic, "s4")).standing.tzdata == TZDATA

        await until(is_updated, "its next instant is computed again")
    assert max(gaps) < takes / 2, (takes, gaps)


async def test_a_preview_that_takes_long_ends(kept: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for the thread: a thousand instants of this rule took half a minute."""
    rare = Rule(rrule="FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU")
    async with kept.engine() as recurrences:
        monkeypatch.setattr(module, "LONGEST_PREVIEW", PATIENCE)
        assert len(await recurrences.preview(rare, 1, 0)) == 1
        monkeypatch.setattr(module, "LONGEST_PREVIEW", 0.5)
        with pytest.raises(InvalidField, match=r"^count: is 1000, and this rule is computed no further than"):
            await recurrences.preview(rare, 1_000, 0)


async def until_ticked(recurrences: Recurrences, topic: str, times: int, name: str = "r") -> None:
    async def ticked() -> bool:
        return len((await recurrences.get(topic, name)).standing.recent) >= times

    await until(ticked, "it ticks")


async def test_time_zones_that_have_changed(kept: Scene) -> None:
    """An instant that has come nearer is looked for as soon as a relay knows the new zones; one that was put
    off comes later."""
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, DAILY)
    assert made.standing.next is not None
    late = made.standing.next + 3600 * SECOND
    await kept.change(made, next=late, tzdata="2001a")
    async with kept.engine() as recurrences:

        async def is_right() -> bool:
            standing = (await recurrences.get(kept.topic, "r")).standing
            return (standing.next, standing.tzdata) == (made.standing.next, TZDATA)

        await until(is_right, "it is brought forward")
        early = made.standing.settled + SECOND  # which passes while it waits
        await kept.change(made, next=early, tzdata="2001a")
        await until(is_right, "it is put off")
        standing = (await recurrences.get(kept.topic, "r")).standing
        assert (standing.runs, standing.left_out) == (0, {})


async def test_a_backfill(kept: Scene) -> None:
    """Of instants that have passed; more than it takes, and those to come, are refused."""
    async with kept.engine() as recurrences:
        every_minute = replace(DAILY, rule=Rule(every=60 * SECOND), overlap=Overlap.ALLOW)
        made, _ = await recurrences.put(kept.topic, every_minute)
        end = made.standing.settled
        filled = await recurrences.backfill(kept.topic, "r", end - 300 * SECOND, end)
        assert filled.occurrences == 5
        assert filled.first is not None
        assert filled.first % (60 * SECOND) == 0
        with pytest.raises(InvalidField, match=r"^end_time: is in the future"):
            await recurrences.backfill(kept.topic, "r", end, end + 3600 * SECOND)
        with pytest.raises(InvalidField, match=r"^end_time: has more than 500 instants"):
            await recurrences.backfill(kept.topic, "r", end - 86400 * SECOND, end)
        with pytest.raises(InvalidField, match=r"^interval: puts the last of 5 after the year 9999"):
            await recurrences.backfill(kept.topic, "r", end - 300 * SECOND, end, apart=LATEST // 4)
        large = replace(DAILY, rule=Rule(every=60 * SECOND), payload=b"x" * 1_000_000)
        await recurrences.put(kept.topic, large)
        with pytest.raises(
            InvalidField, match=r"^end_time: has 80 instants before it, with 80,000,000 bytes"
        ):
            await recurrences.backfill(kept.topic, "r", end - 4800 * SECOND, end)
        days = tuple(str(date(2000, 1, 1) + timedelta(days=n)) for n in range(9_000))
        closed = Rule(every=SECOND, leave_out=days)
        await recurrences.put(kept.topic, replace(DAILY, rule=closed))
        with pytest.raises(InvalidField, match=r"^end_time: has more than 10,000 instants before it, with"):
            await recurrences.backfill(kept.topic, "r", 946_684_800 * SECOND, 1_600_000_000 * SECOND)


async def test_a_backfill_one_after_another(kept: Scene) -> None:
    """The ticker makes the next one when the last one has ended; a pause holds them; no more wait than one
    call fills in. A rule that allows overlaps has them at once, unless its caller wants otherwise."""
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, DAILY)
        end = made.standing.settled
        since = end - 3 * 86_400 * SECOND
        filled = await recurrences.backfill(kept.topic, "r", since, end)
        assert (filled.occurrences, filled.waiting) == (3, 2)
        early = end - (499 * 24 + 2) * 3_600 * SECOND  # summer time may begin or end in between
        with pytest.raises(
            InvalidField, match=r"^end_time: has (499|500) instants before it, and 2 of another"
        ):
            await recurrences.backfill(kept.topic, "r", early, end)
        await recurrences.pause(kept.topic, "r")
        await kept.end_all()
        assert (await recurrences.get(kept.topic, "r")).standing.to_fill == 2
        await recurrences.resume(kept.topic, "r")
        for left in (1, 0):

            async def has_come(left: int = left) -> bool:
                return (await recurrences.get(kept.topic, "r")).standing.to_fill == left

            await until(has_come, "the next one comes")
            assert await kept.end_all() == 1
        standing = (await recurrences.get(kept.topic, "r")).standing
        assert (standing.runs, standing.left_out, standing.filling) == (3, {}, ())
        await recurrences.put(kept.topic, replace(DAILY, overlap=Overlap.ALLOW))
        assert (await recurrences.backfill(kept.topic, "r", since, end)).waiting == 0
        await kept.end_all()
        filled = await recurrences.backfill(kept.topic, "r", since, end, overlap=Overlap.BUFFER)
        assert (filled.occurrences, filled.waiting) == (3, 2)
    async with kept.engine(dispatch="list") as recurrences:
        with pytest.raises(
            InvalidField, match=r"^overlap: is buffer, and the topic's due timers go to a list"
        ):
            await recurrences.backfill(kept.topic, "r", since, end, overlap=Overlap.BUFFER)


async def test_all_that_waits_is_cancelled(kept: Scene) -> None:
    """More than a call takes, and more than the history knows; also once the
    recurrence is gone, as it is when a delete has failed half way."""
    daily = replace(DAILY, rule=Rule(every=3600 * SECOND), overlap=Overlap.ALLOW)
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, daily)
        await recurrences.put(kept.topic, replace(daily, recurrence_id="r@x"))
        end = made.standing.settled
        for days in (20, 18):
            await recurrences.backfill(kept.topic, "r", end - days * 86_400 * SECOND, end, apart=SECOND)
        await recurrences.trigger(kept.topic, "r@x")
        assert await recurrences.remove(kept.topic, "r") is not None
        names = await recurrences.occurrences(kept.topic, "r")
        assert names == sorted(set(names))
        # An hour may end while the test runs, and then has an occurrence of its own.
        later = occurrence_name("r", (end // SECOND + 1) * SECOND)
        assert sum(name < later for name in names) == 480 + 432


async def test_what_is_kept_back_when_the_policy_changes(kept: Scene) -> None:
    """It comes all the same, once the last one has ended."""
    # A busy machine may tick late: then none is left out for that.
    buffering = replace(DAILY, rule=Rule(every=SECOND), overlap=Overlap.BUFFER, catch_up=CatchUp.ALL)
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, buffering)

        async def has_kept_one_back() -> bool:
            return (await recurrences.get(kept.topic, "r")).standing.buffered is not None

        await until(has_kept_one_back, "one is kept back")
        changed, _ = await recurrences.put(kept.topic, replace(DAILY, overlap=Overlap.SKIP))
        standing = changed.standing
        buffered = standing.buffered is not None
        passed = (standing.recent[-1].nominal - standing.recent[0].nominal) // SECOND + 1
        assert buffered
        assert standing.runs + standing.left_out.get(LeftOut.OVERLAP, 0) + buffered >= passed


async def test_zones_that_have_changed_while_one_is_kept_back(kept: Scene) -> None:
    """It still comes as soon as the last one has ended."""
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, replace(DAILY, overlap=Overlap.BUFFER))
    assert made.standing.next is not None
    late = made.standing.next + 3600 * SECOND
    instant = made.standing.settled
    await kept.change(made, next=late, tzdata="2001a", buffered=instant)
    async with kept.store() as store:
        _, found = await store.get(kept.topic, "r")
        assert found is not None
        updated = replace(found.standing, next=made.standing.next, tzdata=TZDATA)
        assert updated_standing(found) == updated
        layout = Layout(kept.topic)
        await ZoneUpdates(store, None, Computing())._update(layout, found)  # type: ignore[arg-type]
        assert [each.standing for each in (await store.due(kept.topic, 9)).kept] == [updated]


@pytest.mark.parametrize("way_out", ["put", "resume"])
async def test_a_clock_that_was_years_ahead(kept: Scene, way_out: str) -> None:
    """What is settled years ahead goes on from now; a clock that was ahead by an hour repeats nothing."""
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, DAILY)
        now, day = made.standing.settled, 86_400 * SECOND
        other = replace(DAILY, payload=b"y")

        async def call() -> Standing:
            if way_out == "resume":
                return (await recurrences.resume(kept.topic, "r")).standing
            wanted = other if (await recurrences.get(kept.topic, "r")).recurrence == DAILY else DAILY
            return (await recurrences.put(kept.topic, wanted))[0].standing

        ahead = now + 3_650 * day
        filling = Filling((now - day,), 2, ahead)
        await kept.change(made, settled=ahead, next=ahead + day, filling=(filling,))
        going = await call()
        assert (going.version, going.next) == (2, made.standing.next)
        assert going.filling[0].due <= going.settled < now + day
        await kept.change(made, settled=now + day // 2, next=now + day, filling=())
        assert (await call()).next == now + day
        await kept.change(made, settled=ahead, next=None)
        assert (await call()).next == made.standing.next
        await recurrences.put(kept.topic, replace(other, max_runs=3))
        await kept.change(made, settled=ahead, next=None, runs=3)
        assert (await recurrences.resume(kept.topic, "r")).standing.next is None


async def test_a_clock_that_has_stepped_back_by_hours(kept: Scene) -> None:
    """What is kept back waits until the clock is where it was, unless somebody pauses and resumes."""
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, replace(DAILY, overlap=Overlap.BUFFER))
        now, hours = made.standing.settled, 5 * 3600 * SECOND
        async with kept.store() as store:
            _, found = await store.get(kept.topic, "r")
            assert found is not None
            standing = replace(found.standing, buffered=now, next=now + 99 * hours)
            assert await store.keep(kept.topic, found, found.recurrence, standing, now + hours, reason="put")
            assert (await store.due(kept.topic, 9)).next == now + hours + SECOND
        await recurrences.pause(kept.topic, "r")
        await recurrences.resume(kept.topic, "r")
        await until_ticked(recurrences, kept.topic, 1)
        await kept.end_all()
        waits = (Filling((now - 2 * hours,), 2, now + hours), Filling((now - hours,), 3, now + hours))
        await kept.change(made, filling=waits)
        await recurrences.pause(kept.topic, "r")
        await recurrences.resume(kept.topic, "r")
        await until_ticked(recurrences, kept.topic, 2)


async def test_calls_about_what_is_not_there_follow_nothing(kept: Scene) -> None:
    """Else whoever invents topics has a relay tick for each of them, for as long as it runs."""
    async with kept.engine() as recurrences:
        topic = f"{kept.topic}-invented"
        with pytest.raises(RecurrenceNotFound):
            await recurrences.trigger(topic, "r")
        with pytest.raises(InvalidField):
            await recurrences.put(topic, replace(DAILY, rule=Rule()))
        assert isinstance(recurrences._tickers, Tickers)
        assert set(recurrences._tickers._followed) == {kept.topic}


@pytest.mark.parametrize(("policy", "size"), [({"max_waiting": 5}, 1), ({}, 3 << 20)])
async def test_more_to_catch_up_than_fits(kept: Scene, policy: dict[str, int], size: int) -> None:
    """Into the topic, or into one call: what fits comes, the earliest first."""
    catching_up = replace(
        DAILY,
        rule=Rule(every=SECOND),
        payload=b"x" * size,
        overlap=Overlap.ALLOW,
        catch_up=CatchUp.ALL,
    )
    async with kept.engine() as recurrences:
        made, _ = await recurrences.put(kept.topic, replace(catching_up, rule=Rule(every=3600 * SECOND)))
        await recurrences.pause(kept.topic, "r")
    since = made.standing.settled - 9 * SECOND
    async with kept.store() as store:
        _, found = await store.get(kept.topic, "r")
        assert found is not None
        standing = replace(made.standing, next=since, settled=since - 1)
        assert await store.keep(kept.topic, found, catching_up, standing, 0, reason="put")
    async with kept.engine(**policy) as recurrences:
        await until_ticked(recurrences, kept.topic, 4)
        standing = (await recurrences.get(kept.topic, "r")).standing
        assert (standing.runs >= 4, standing.left_out) == (True, {})


async def test_another_relay_finds_what_was_put(kept: Scene) -> None:
    """It looks every `max_polling_interval`; the first one has gone."""
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, replace(DAILY, rule=Rule(every=SECOND)))
    async with kept.engine() as recurrences:
        await until_ticked(recurrences, kept.topic, 2)


async def test_one_that_nobody_can_read(kept: Scene) -> None:
    """The others go on."""
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, replace(DAILY, recurrence_id="a", rule=Rule(every=SECOND)))
        await recurrences.put(kept.topic, replace(DAILY, recurrence_id="b", rule=Rule(every=SECOND)))
    key = KeyNames().key("rules", kept.topic)
    kept.server.client().hset(key, "a", '{"rule":{"every":1000000},"overlap":"queue"}')
    kept.server.client().hset(key, "b", '{"rule":{"rrule":["FREQ=DAILY","COUNT=2"]}}')
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, replace(DAILY, rule=Rule(every=SECOND)))
        await until_ticked(recurrences, kept.topic, 2)


@pytest.mark.parametrize("zone", ["Nowhere", 5])
async def test_what_can_t_be_compiled_is_left_to_who_computes_it(zone: object) -> None:
    """A ticker has others to turn."""
    await Computing().compile(Rule(rrule="FREQ=DAILY;COUNT=2", zone=zone))  # type: ignore[arg-type]


async def test_a_pause_where_there_is_no_room(kept: Scene) -> None:
    """A recurrence that floods its topic can be paused; what found no room is counted as paused."""
    async with kept.engine(max_waiting=1) as recurrences:
        flood = replace(DAILY, rule=Rule(every=SECOND), overlap=Overlap.ALLOW)
        await recurrences.put(kept.topic, flood)
        await until_ticked(recurrences, kept.topic, 1)

        async def is_overdue() -> bool:
            now, found = 0, await recurrences.get(kept.topic, "r")
            async with kept.store() as store:
                now, _ = await store.get(kept.topic, "r")
            return found.standing.next is not None and found.standing.next < now

        await until(is_overdue, "the topic is full")
        with pytest.raises(TopicFull):
            await recurrences.put(kept.topic, DAILY)
        paused = await recurrences.pause(kept.topic, "r")
        assert paused.standing.paused is not None

        async def is_counted() -> bool:
            standing = (await recurrences.get(kept.topic, "r")).standing
            return standing.left_out.get(LeftOut.PAUSED, 0) >= 1

        await until(is_counted, "they are counted")
