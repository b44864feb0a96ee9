"""Relays that go by calendars on a real server: how old they may be, and what becomes of an instant while
they change, can't be read, or are gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

from relay.api.recurring.calendars import CalendarCalls
from relay.app import put_together
from relay.core.errors import InvalidField, StoreRefused, StoreUnavailable
from relay.core.instants import SECOND
from relay.core.recurring.calendars import KnownCalendars
from relay.core.recurring.recurrence import (
    CatchUp,
    LeftOut,
    Overlap,
    Put,
    Recurrence,
    Standing,
    StoredRecurrence,
    Turned,
)
from relay.core.recurring.rule import Rule
from relay.engine.engine import Engine
from relay.engine.recurring import kept_calendars
from relay.engine.recurring.kept_calendars import FRESH, PATIENCE, RETRY, KeptCalendars
from relay.engine.recurring.turning import turned
from relay.settings import Settings
from relay.store.keys import KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.calendars import RedisCalendars
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing
from relay.v1 import recurrence_service_pb2 as pb
from tests.worlds import waiting
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.engine.fake_clock import FakeClock
from tests.worlds.waiting import until

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

CLOSED = "closed"
EVERY_SECOND = Recurrence(
    "r", Rule(every=SECOND, calendars=(CLOSED,)), b"x", overlap=Overlap.ALLOW, catch_up=CatchUp.ALL
)


DISTANT = replace(EVERY_SECOND, recurrence_id="d", rule=Rule(cron="0 3 * * *", calendars=(CLOSED,)))
"""In these tests it does not fire."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer to read calendars than a tick waits for them."""
    monkeypatch.setattr(kept_calendars, "PATIENCE", waiting.PATIENCE)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks wait for calendars for as long as they do in earnest."""
    monkeypatch.setattr(kept_calendars, "PATIENCE", PATIENCE)


class Watched(RedisCalendars):
    """Counts what is read. `trouble` is raised instead; `gate` holds up answers on their way back."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.reads = 0
        self.trouble: Exception | None = None
        self.gate: anyio.Event | None = None
        self.answered = anyio.Event()

    async def read(self, known: KnownCalendars) -> KnownCalendars:
        self.reads += 1
        if self.trouble is not None:
            raise self.trouble
        found = await super().read(known)
        if self.gate is not None:
            self.answered.set()
            await self.gate.wait()
        return found


@asynccontextmanager
async def relay_at(
    url: str, topic: str, names: KeyNames | None = None, timeout: float = 60.0
) -> AsyncIterator[tuple[Engine, Watched]]:
    """A relay that ticks for a topic, and what it reads calendars by."""
    settings = Settings.model_validate({"topics": {topic: {"max_polling_interval": 0.5}}})
    metrics, policies = Metrics(), settings.policies()
    async with Server(url, names, connections=4, timeout=timeout) as server:
        layouts = RedisLayouts(server, lambda topic: policies(topic).partitions)
        engine = put_together(settings, server, RedisHints(server), layouts, metrics.instruments, Tracing())
        watched = engine.calendars._store = Watched(server)
        async with anyio.create_task_group() as tasks:
            await tasks.start(engine.run)
            yield engine, watched
            tasks.cancel_scope.cancel()
    metrics.close()


class Scene:
    """A topic, and calendars that are its own."""

    def __init__(self, server: RunningServer, topic: str) -> None:
        self.server, self.topic = server, topic
        self.names = KeyNames(topics=f"{KeyNames().topics}:{topic}")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Server]:
        async with Server(self.server.url, self.names, connections=2, timeout=60.0) as server:
            yield server

    @asynccontextmanager
    async def relay(self) -> AsyncIterator[tuple[Engine, Watched]]:
        """A relay that ticks."""
        async with relay_at(self.server.url, self.topic, self.names) as both:
            yield both

    @asynccontextmanager
    async def store(self) -> AsyncIterator[RedisRecurrences]:
        async with self.connected() as server:
            yield RedisRecurrences(server, Carrier(server))

    async def now(self) -> int:
        async with self.store() as store:
            return (await store.get(self.topic, "nobody"))[0]

    async def days(self) -> list[str]:
        """Today and tomorrow, by the server's clock: a test may run at midnight."""
        today = datetime.fromtimestamp(await self.now() // SECOND, UTC).date()
        return [str(today), str(today + timedelta(days=1))]

    async def keep(self, store: RedisRecurrences, wanted: Recurrence, first: int) -> StoredRecurrence:
        """Keep a recurrence whose next instant is given, without the engine's checks."""
        standing = Standing(1, first, settled=first - 1)
        assert await store.keep(self.topic, None, wanted, standing, 0, reason="put")
        _, kept = await store.get(self.topic, wanted.recurrence_id)
        assert kept is not None
        return kept


@pytest.fixture
def scene(valkey: RunningServer, keyspace: Keyspace) -> Scene:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    return Scene(valkey, topic)


# ------------------------------------------------------------------ how old they may be


async def test_a_second_after_a_change_ticks_go_by_it(scene: Scene) -> None:
    """Whichever relay it was made through. Until then nothing is asked: a tick costs no call of its own."""
    async with scene.connected() as server:
        clock, store = FakeClock(), Watched(server)
        one, other = KeptCalendars(store, clock), KeptCalendars(RedisCalendars(server), clock)
        await other.put(CLOSED, ["2026-12-24"])
        first = await one.for_tick()
        assert first is not None
        assert first.dates == {CLOSED: {"2026-12-24"}}
        await clock.advance(0.1)
        await other.put(CLOSED, ["2026-12-25"])
        await clock.advance(FRESH - 0.2)
        assert (await one.for_tick(), store.reads) == (first, 1)
        await clock.advance(0.1)
        found = await one.for_tick()
        assert found is not None
        assert store.reads == 2
        assert found.dates == {CLOSED: {"2026-12-25"}}
        await clock.advance(FRESH)
        assert await one.for_tick() is found, "what has not changed is not read again"


async def test_ones_own_change_counts_at_once(scene: Scene) -> None:
    async with scene.connected() as server:
        calendars = KeptCalendars(RedisCalendars(server), FakeClock())
        assert (await calendars.read()).dates == {}
        assert await calendars.put(CLOSED, []) is Put.CREATED
        known = await calendars.for_tick()
        assert known is not None
        assert known.dates == {CLOSED: frozenset()}
        assert await calendars.remove(CLOSED)
        known = await calendars.for_tick()
        assert known is not None
        assert known.dates == {}


async def test_an_answer_that_took_long_is_as_old_as_its_question(scene: Scene) -> None:
    """It left Redis, a calendar was changed, then it came: a second after the change it must not count."""
    async with scene.connected() as server:
        clock, store = FakeClock(), Watched(server)
        calendars = KeptCalendars(store, clock)
        store.gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(calendars.read)
            await store.answered.wait()
            await RedisCalendars(server).put(CLOSED, ["2026-12-24"])
            await clock.advance(FRESH)
            store.gate.set()
        known = await calendars.for_tick()
        assert known is not None
        assert known.dates == {CLOSED: {"2026-12-24"}}


async def test_many_ticks_share_a_look(scene: Scene) -> None:
    async with scene.connected() as server:
        store = Watched(server)
        calendars = KeptCalendars(store, FakeClock())
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(calendars.for_tick)
        assert store.reads == 1


# --------------------------------------------------------------- where they can't be read


@pytest.mark.parametrize("trouble", [StoreUnavailable("away"), StoreRefused("no"), ZeroDivisionError()])
async def test_calendars_that_cannot_be_read(
    scene: Scene, trouble: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """None, or those that were read last; the next look is later, and the log has a line for each change."""
    async with scene.connected() as server:
        clock, store = FakeClock(), Watched(server)
        calendars = KeptCalendars(store, clock)
        store.trouble = trouble
        for _ in range(3):
            assert await calendars.for_tick() is None
            await clock.advance(RETRY / 4)
        assert store.reads == 1
        store.trouble = None
        await clock.advance(RETRY)
        held = await calendars.for_tick()
        assert held is not None
        store.trouble = trouble
        for _ in range(3):
            await clock.advance(RETRY)
            assert await calendars.for_tick() is held
    said = [record.getMessage() for record in caplog.records if "calendars" in record.getMessage()]
    assert said == [
        "calendars can't be read; recurrences that name some wait",
        "calendars can be read again",
        "calendars can't be read; ticks go by those that were read last",
    ]


@pytest.mark.usefixtures("hasty")
async def test_calendars_that_nobody_answers_for(scene: Scene) -> None:
    """A tick waits for `PATIENCE`, and the next one not at all."""
    async with scene.connected() as server:
        store = Watched(server)
        calendars = KeptCalendars(store, FakeClock())
        store.gate = anyio.Event()
        began = anyio.current_time()
        assert await calendars.for_tick() is None
        assert anyio.current_time() - began >= PATIENCE
        assert (await calendars.for_tick(), store.reads) == (None, 1)


async def test_who_reads_them_meanwhile_ends_the_trouble(scene: Scene) -> None:
    """A call of somebody has been answered: ticks need not wait any more until they look again."""
    async with scene.connected() as server:
        clock, store = FakeClock(), Watched(server)
        calendars = KeptCalendars(store, clock)
        store.trouble = StoreUnavailable("away")
        assert await calendars.for_tick() is None
        store.trouble = None
        await calendars.read()
        await RedisCalendars(server).put(CLOSED, [])
        await clock.advance(FRESH)
        known = await calendars.for_tick()
        assert known is not None
        assert CLOSED in known.dates


async def test_who_names_none_ticks_without_them(scene: Scene) -> None:
    """Also behind more than a look reads of those that wait; they come when calendars can be read."""
    waiting = [replace(EVERY_SECOND, recurrence_id=f"w{n}", max_runs=1) for n in range(230)]
    async with scene.connected() as server, scene.store() as store:
        await RedisCalendars(server).put(CLOSED, [])
        now = await scene.now()
        for each in waiting:
            await scene.keep(store, each, now)
        await scene.keep(store, replace(EVERY_SECOND, rule=Rule(every=SECOND)), now + 1)
        async with scene.relay() as (engine, calendars):
            calendars.trouble = StoreUnavailable("away")
            recurrences = engine.recurrences

            async def ticks() -> bool:
                return (await recurrences.get(scene.topic, "r")).standing.runs >= 2

            await until(ticks, "what names no calendar ticks")
            assert (await recurrences.get(scene.topic, "w7")).standing.runs == 0
            calendars.trouble = None
            engine.calendars._retry_at = 0.0

            async def have_come() -> bool:
                page = await recurrences.page(scene.topic, prefix="w", limit=500, cursor="")
                return all(each.standing.runs == 1 for each in page.kept)

            await until(have_come, "those that waited have come")


async def test_who_waits_with_much_content(scene: Scene) -> None:
    """What one look reads is bounded in bytes, too: others tick behind more than that."""
    waiting = [replace(EVERY_SECOND, recurrence_id=f"w{n}", payload=b"x" * (1 << 20)) for n in range(9)]
    async with scene.connected() as server, scene.store() as store:
        await RedisCalendars(server).put(CLOSED, [])
        now = await scene.now()
        for each in waiting:
            await scene.keep(store, replace(each, max_runs=1), now)
        await scene.keep(store, replace(EVERY_SECOND, rule=Rule(every=SECOND)), now + 1)
        async with scene.relay() as (engine, calendars):
            calendars.trouble = StoreUnavailable("away")
            recurrences = engine.recurrences

            async def ticks() -> bool:
                return (await recurrences.get(scene.topic, "r")).standing.runs >= 3

            await until(ticks, "what names no calendar ticks")
            calendars.trouble = None
            engine.calendars._retry_at = 0.0

            async def have_come() -> bool:
                page = await recurrences.page(scene.topic, prefix="w", limit=500, cursor="")
                return all(each.standing.runs == 1 for each in page.kept)

            await until(have_come, "those that waited have come")


@pytest.mark.slow
@pytest.mark.usefixtures("hasty")
async def test_a_node_with_the_calendars_that_hangs() -> None:
    """In a Cluster they may be at another node than a topic. While that one does not answer, the topic goes
    on, by the calendars that were read last."""
    with Cluster("valkey", masters=3) as cluster:
        holder = cluster.owner_of("calendars")
        assert holder is not None
        topic = next(f"t{n}" for n in range(99) if cluster.owner_of(f"t{n}") is not holder)
        async with relay_at(cluster.url, topic) as (engine, _):
            recurrences = engine.recurrences
            plain = replace(EVERY_SECOND, recurrence_id="plain", rule=Rule(every=SECOND))
            await engine.calendars.put(CLOSED, ["2001-01-01"])
            for each in (EVERY_SECOND, plain):
                await recurrences.put(topic, each)

            async def runs() -> dict[str, int]:
                page = await recurrences.page(topic, prefix="", limit=9, cursor="")
                return {each.recurrence.recurrence_id: each.standing.runs for each in page.kept}

            async def tick(since: Mapping[str, int], times: int) -> bool:
                return all(count >= since.get(name, 0) + times for name, count in (await runs()).items())

            async def in_trouble() -> bool:
                return engine.calendars._in_trouble

            await until(lambda: tick({}, 1), "both tick")
            holder.freeze()
            try:
                await until(in_trouble, "they can't be read")
                before = await runs()
                await until(lambda: tick(before, 8), "both tick without the node")
                assert await recurrences.missing(EVERY_SECOND.rule) == []
            finally:
                holder.thaw()

            async def is_over() -> bool:
                return not await in_trouble()

            await until(is_over, "it is read again")


async def test_what_people_wrote(scene: Scene) -> None:
    """What is no name and no date is in no answer: clients could not read it."""
    async with scene.connected() as server, scene.relay() as (engine, _):
        key = server.keys.calendars
        await server.ask("HSET", key, CLOSED, b"2026-12-25 never \xff 20261226 2026-12-24")
        await server.ask("HSET", key, b"\xff", "2026-12-25", "a b", "", "", "")
        calls = CalendarCalls(engine)
        listed = (await calls.list(pb.ListCalendarsRequest())).calendars
        assert [(each.name, list(each.dates)) for each in listed] == [(CLOSED, ["2026-12-24", "2026-12-25"])]
        assert (await calls.get(pb.GetCalendarRequest(name=CLOSED))).calendar == listed[0]


# ------------------------------------------------------------------------- while they change


@pytest.mark.slow
async def test_two_relays_tick_while_a_calendar_changes(scene: Scene) -> None:
    """From a second after it was put, no occurrence comes on its dates, whichever relay ticks, and each
    instant is counted; from a second after it was put without them, they come again."""
    async with scene.relay() as (one, _), scene.relay() as (other, _):
        await one.calendars.put(CLOSED, [])
        await one.recurrences.put(scene.topic, EVERY_SECOND)
        other.recurrences._tickers.follow(scene.topic)

        async def standing() -> Standing:
            return (await one.recurrences.get(scene.topic, "r")).standing

        async def runs(count: int) -> bool:
            return (await standing()).runs >= count

        await until(lambda: runs(2), "it ticks")
        await other.calendars.put(CLOSED, await scene.days())
        closed = await scene.now() + int(FRESH * SECOND)

        async def is_closed() -> bool:
            return sum(each.nominal > closed for each in (await standing()).recent) >= 3

        await until(is_closed, "instants pass that are closed")
        found = await standing()
        assert {each.left_out for each in found.recent if each.nominal > closed} == {LeftOut.CALENDAR}
        await one.calendars.put(CLOSED, [])
        opened = await scene.now() + int(FRESH * SECOND)

        async def is_open() -> bool:
            return sum(each.nominal > opened for each in (await standing()).recent) >= 3

        await until(is_open, "instants pass that are open")
        found = await standing()
        assert all(each.timer_id for each in found.recent if each.nominal > opened)
        passed = (found.settled // SECOND) - (found.recent[0].nominal // SECOND) + 1
        assert len(found.recent) == min(passed, 16), "each instant is there once"


@pytest.mark.parametrize("first", ["old", "new"])
async def test_two_relays_that_know_different_calendars(scene: Scene, first: str) -> None:
    """Both have read the recurrence and have made a turn of it, one with an occurrence and one with a reason:
    the one that is written first counts, and the other one changes nothing."""
    async with scene.store() as store:
        now = await scene.now()
        kept = await scene.keep(store, EVERY_SECOND, now // SECOND * SECOND)
        made = {
            "old": turned(kept, now, KnownCalendars("1", {CLOSED: frozenset()})),
            "new": turned(kept, now, KnownCalendars("2", {CLOSED: frozenset(await scene.days())})),
        }
        words = [
            await store.turn(scene.topic, [made[which]], now)
            for which in sorted(made, key=lambda w: w != first)
        ]
        assert words == [[Turned.DONE], [Turned.OTHER]]
        _, found = await store.get(scene.topic, "r")
        assert found is not None
        standing = found.standing
        assert (standing.runs, standing.left_out) == (
            (1, {}) if first == "old" else (0, {LeftOut.CALENDAR: 1})
        )
        assert found.stands is (first == "old")


async def test_a_calendar_is_deleted_that_a_rule_names(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves out nothing any more; get and the log say so, the log once."""
    async with scene.relay() as (engine, _):
        await engine.calendars.put(CLOSED, await scene.days())
        await engine.recurrences.put(scene.topic, EVERY_SECOND)

        async def left_out() -> bool:
            kept = await engine.recurrences.get(scene.topic, "r")
            return kept.standing.left_out.get(LeftOut.CALENDAR, 0) >= 1

        await until(left_out, "it is closed")
        assert await engine.recurrences.missing(EVERY_SECOND.rule) == []
        assert await engine.calendars.remove(CLOSED)

        async def comes() -> bool:
            return (await engine.recurrences.get(scene.topic, "r")).standing.runs >= 2

        await until(comes, "it comes on all days")
        assert await engine.recurrences.missing(EVERY_SECOND.rule) == [CLOSED]
    said = [record for record in caplog.records if "does not exist" in record.getMessage()]
    assert [(each.calendar, each.recurrence) for each in said] == [(CLOSED, "r")]  # type: ignore[attr-defined]


# --------------------------------------------------------------------------- what people ask


async def test_a_rule_names_what_does_not_exist(scene: Scene) -> None:
    """Refused, with the nearest name, as is a preview; one that is there already stays, whatever became of
    its calendar, and may be changed in everything but its rule."""
    async with scene.relay() as (engine, _):
        recurrences = engine.recurrences
        said = "^rule.calendars\\[0\\]: there is no calendar 'closed'; "
        with pytest.raises(InvalidField, match=said + "put it first, or leave it out$"):
            await recurrences.put(scene.topic, EVERY_SECOND)
        await engine.calendars.put("closes", [])
        with pytest.raises(InvalidField, match=said + "the nearest name is 'closes'; put it first"):
            await recurrences.preview(EVERY_SECOND.rule, 3, 0)
        await engine.calendars.put(CLOSED, [])
        await recurrences.put(scene.topic, EVERY_SECOND)
        await engine.calendars.remove(CLOSED)
        _, how = await recurrences.put(scene.topic, EVERY_SECOND)
        assert how is Put.UNCHANGED, "a relay that puts its file as it starts starts"
        _, how = await recurrences.put(scene.topic, replace(EVERY_SECOND, payload=b"y"))
        assert how is Put.REPLACED
        with pytest.raises(InvalidField, match=said):
            await recurrences.put(
                scene.topic, replace(EVERY_SECOND, rule=replace(EVERY_SECOND.rule, every=2 * SECOND))
            )


async def test_a_rule_names_what_another_relay_has_just_put(scene: Scene) -> None:
    """Who looks up what a rule names looks now, however fresh the last look was."""
    async with scene.relay() as (one, _), scene.relay() as (other, _):
        await one.calendars.read()
        await other.calendars.put(CLOSED, [])
        assert (await one.recurrences.put(scene.topic, EVERY_SECOND))[1] is Put.CREATED


async def test_a_rule_that_is_put_on_a_day_on_which_it_does_not_fire(scene: Scene) -> None:
    """An application that declares it as it starts must start on holidays, too. Its instants are counted."""
    async with scene.relay() as (engine, _):
        await engine.calendars.put(CLOSED, await scene.days())
        made, _ = await engine.recurrences.put(scene.topic, EVERY_SECOND)
        assert made.standing.next == made.standing.settled // SECOND * SECOND + SECOND

        async def is_counted() -> bool:
            kept = await engine.recurrences.get(scene.topic, "r")
            return kept.standing.left_out.get(LeftOut.CALENDAR, 0) >= 1

        await until(is_counted, "it is counted")


async def test_a_preview_and_a_backfill_go_by_calendars(scene: Scene) -> None:
    async with scene.relay() as (engine, _):
        hourly = replace(EVERY_SECOND, rule=Rule(every=3600 * SECOND, calendars=(CLOSED,)))
        now = await scene.now()
        start = now // (86_400 * SECOND) * 86_400 * SECOND - 3 * 86_400 * SECOND
        second = datetime.fromtimestamp(start // SECOND, UTC).date() + timedelta(days=1)
        await engine.calendars.put(CLOSED, [str(second)])
        shown = await engine.recurrences.preview(hourly.rule, 72, start - 1)
        assert [each.left_out for each in shown] == [""] * 24 + ["calendar"] * 24 + [""] * 24
        await engine.recurrences.put(scene.topic, hourly)
        filled = await engine.recurrences.backfill(scene.topic, "r", start, start + 72 * 3600 * SECOND)
        assert filled.occurrences == 48


async def test_instants_that_passed_before_a_change_of_the_rule(scene: Scene) -> None:
    """They are settled by the old rule, with its calendars."""
    async with scene.relay() as (engine, calendars), scene.store() as store:
        await engine.calendars.put(CLOSED, await scene.days())
        calendars.trouble = StoreUnavailable("away")  # so that nobody ticks
        engine.calendars._known = None
        now = await scene.now()
        await scene.keep(store, EVERY_SECOND, now - 2 * SECOND)
        other = replace(EVERY_SECOND, rule=Rule(every=3600 * SECOND))
        with pytest.raises(StoreUnavailable):
            await engine.recurrences.put(scene.topic, other)
        calendars.trouble = None
        changed, _ = await engine.recurrences.put(scene.topic, other)
        assert changed.standing.runs == 0
        assert changed.standing.left_out[LeftOut.CALENDAR] >= 2


async def test_what_needs_no_calendars_does_not_wait_for_them(scene: Scene) -> None:
    """A recurrence is read, paused, triggered, and put as it is, while they can't be read; what passed is
    counted as paused."""
    async with scene.relay() as (engine, calendars), scene.store() as store:
        calendars.trouble = StoreUnavailable("away")
        await scene.keep(store, EVERY_SECOND, await scene.now() - 2 * SECOND)
        await scene.keep(store, DISTANT, 4_000_000_000 * SECOND)
        recurrences = engine.recurrences
        assert await recurrences.missing(EVERY_SECOND.rule) == []
        assert (await recurrences.get(scene.topic, "r")).standing.runs == 0
        paused = await recurrences.pause(scene.topic, "r")
        assert paused.standing.paused is not None
        assert (await recurrences.trigger(scene.topic, "r")).startswith("r@")
        assert (await recurrences.put(scene.topic, DISTANT))[1] is Put.UNCHANGED
        with pytest.raises(StoreUnavailable):
            await recurrences.put(scene.topic, replace(DISTANT, rule=replace(DISTANT.rule, zone="UTC")))
        with pytest.raises(StoreUnavailable):
            await recurrences.backfill(scene.topic, "r", 0, SECOND)
        calendars.trouble = None
        await engine.calendars.read()

        async def is_counted() -> bool:
            return (await recurrences.get(scene.topic, "r")).standing.left_out.get(LeftOut.PAUSED, 0) >= 2

        await until(is_counted, "they are counted")
