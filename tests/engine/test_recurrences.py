"""Engines that keep and tick recurrences on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

from relay.app import put_together
from relay.core.errors import InvalidField, OtherVersion, RecurrenceNotFound, TopicFull
from relay.core.instants import LATEST, SECOND
from relay.core.partitions import Layout
from relay.core.recurring.recurrence import (
    CatchUp,
    LeftOut,
    Overlap,
    Put,
    Recurrence,
    StoredRecurrence,
)
from relay.core.recurring.rule import Rule
from relay.engine.recurring.recurrences import Recurrences
from relay.engine.recurring.zone_updates import ZoneUpdates, updated_standing
from relay.rules import TZDATA
from relay.settings import Settings
from relay.store.keys import KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing
from tests.worlds.waiting import until

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

    async def change(self, before: StoredRecurrence, **fields: object) -> None:
        async with self.store() as store:
            _, kept = await store.get(self.topic, before.recurrence.recurrence_id)
            assert kept is not None
            standing = replace(kept.standing, **fields)  # type: ignore[arg-type]
            assert await store.keep(self.topic, kept, kept.recurrence, standing, 0, reason="put")


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


async def until_ticked(recurrences: Recurrences, topic: str, times: int) -> None:
    async def ticked() -> bool:
        return len((await recurrences.get(topic, "r")).standing.recent) >= times

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
        made, _ = await recurrences.put(kept.topic, replace(DAILY, rule=Rule(every=60 * SECOND)))
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
        await ZoneUpdates(store, None)._update(layout, found)  # type: ignore[arg-type]
        assert [each.standing for each in (await store.due(kept.topic, 9)).kept] == [updated]


async def test_calls_about_what_is_not_there_follow_nothing(kept: Scene) -> None:
    """Else whoever invents topics has a relay tick for each of them, for as long as it runs."""
    async with kept.engine() as recurrences:
        topic = f"{kept.topic}-invented"
        with pytest.raises(RecurrenceNotFound):
            await recurrences.trigger(topic, "r")
        with pytest.raises(InvalidField):
            await recurrences.put(topic, replace(DAILY, rule=Rule()))
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
    key = KeyNames().key("rules", kept.topic)
    kept.server.client().hset(key, "a", '{"rule":{"every":1000000},"overlap":"queue"}')
    async with kept.engine() as recurrences:
        await recurrences.put(kept.topic, replace(DAILY, rule=Rule(every=SECOND)))
        await until_ticked(recurrences, kept.topic, 2)


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
