"""Recurrences on a Cluster: kept, turned and listed in all partitions, also while slots move."""

from __future__ import annotations

import pytest

from relay.core.history.events import TimerEvent
from relay.core.instants import SECOND
from relay.core.journal import Journals, RecordKind
from relay.core.recurring.calendars import NO_CALENDARS
from relay.core.recurring.ends import OccurrenceOutcome
from relay.core.recurring.forecast import Window
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import Overlap, Put, Recurrence, Standing, StoredRecurrence, Turned
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import turn
from relay.core.timers import Change
from relay.store.histories import RedisHistories
from relay.store.partitions.forecasts import RedisForecasts
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.server import Server
from relay.store.timeline.calendars import RedisCalendars
from tests.store.moving import Relay
from tests.worlds.cluster.cluster import Cluster

NAMES = [f"r{n}" for n in range(24)]
FIRST = 1_767_225_600 * SECOND


async def test_recurrences_on_a_cluster() -> None:
    with Cluster("valkey", masters=2) as cluster:
        async with Server(cluster.url, connections=2, timeout=60.0) as server:
            relay = Relay(server, "orders", partitions=8)
            await relay.layouts.ask("orders")
            store = RedisRecurrences(server, relay.carrier)
            for name in NAMES:
                recurrence = Recurrence(name, Rule(every=SECOND), b"x", overlap=Overlap.ALLOW)
                standing = Standing(version=1, next=FIRST)
                assert await store.keep(relay.at(name), None, recurrence, standing, FIRST, reason="put")
            assert {cluster.owner_of(f"orders#{n}") for n in range(1, 8)} == set(cluster.nodes)
            assert await listed(store, relay) == sorted(NAMES)
            await told_by_a_forecast(server, relay)
            await all_turn(store, relay, FIRST)
            source, target = cluster.nodes
            moving = next(part for part in range(1, 8) if cluster.owner_of(f"orders#{part}") is source)
            cluster.move(f"orders#{moving}", target)
            await all_turn(store, relay, FIRST + SECOND)
            cluster.migrate(f"orders#{moving}", source)
            await all_turn(store, relay, FIRST + 2 * SECOND)
            assert await listed(store, relay) == sorted(NAMES)
            assert len(await relay.listed()) == 3 * len(NAMES)


async def told_by_a_forecast(server: Server, relay: Relay) -> None:
    """All partitions, on all nodes, since one instant."""
    await relay.put(*(f"timer{n}" for n in range(32)))
    found = await RedisForecasts(server).read(relay.layout, Window(3_600 * SECOND, 600 * SECOND))
    assert (found.later, sum(found.timers), found.leased) == (32, 0, 0)
    assert sorted(each.recurrence.recurrence_id for each in found.recurrences) == sorted(NAMES)
    for n in range(32):
        await relay.cancel(f"timer{n}")


async def test_calendars_on_a_cluster() -> None:
    """They are one key on one node, whatever topics are where; they go with its slot."""
    with Cluster("valkey", masters=2) as cluster:
        async with Server(cluster.url, connections=2, timeout=60.0) as server:
            calendars = RedisCalendars(server)
            assert await calendars.put("de", ["2026-12-25"]) is Put.CREATED
            known = await calendars.read(NO_CALENDARS)
            source = next(each for each in cluster.nodes if each is cluster.owner_of("calendars"))
            assert await server.ask("EXISTS", "timers_topics:{calendars}") == 1
            target = next(node for node in cluster.nodes if node is not source)
            cluster.move("calendars", target)
            assert await calendars.read(known) is known
            assert await calendars.put("fr", []) is Put.CREATED
            cluster.migrate("calendars", source)
            assert await calendars.remove("de")
            assert (await calendars.read(known)).dates == {"fr": frozenset()}


async def told_by_a_history(server: Server, relay: Relay, name: str, timer_id: str) -> None:
    """The life of an occurrence, through all partitions that it was in, on whichever node they are."""
    page = await RedisHistories(server).read("orders", timer_id, limit=100, cursor="")
    made, *moves, cancelled = page.events[::-1]
    assert (made.kind, made.recurrence_id) == (RecordKind.SCHEDULED, name)
    assert (cancelled.kind, relay.layout.partitions[cancelled.partition]) == (
        RecordKind.CANCELLED,
        relay.layout.partition(timer_id),
    )
    at = made.partition
    for left, arrived in batched_in_twos(moves):
        assert (left.kind, arrived.kind, left.partition) == (RecordKind.LEFT, RecordKind.ARRIVED, at)
        assert left.record.hand_over == arrived.record.hand_over
        at = arrived.partition
    assert (cancelled.partition, page.cursor) == (at, "")


def batched_in_twos(events: list[TimerEvent]) -> list[tuple[TimerEvent, TimerEvent]]:
    assert len(events) % 2 == 0
    return list(zip(events[::2], events[1::2], strict=True))


async def listed(store: RedisRecurrences, relay: Relay) -> list[str]:
    names: list[str] = []
    cursor = ""
    while True:
        page = await store.page(relay.layout, prefix="r", limit=7, cursor=cursor)
        names += [each.recurrence.recurrence_id for each in page.kept]
        if not (cursor := page.cursor):
            return names


async def all_turn(store: RedisRecurrences, relay: Relay, now: int) -> None:
    """What is due in each partition is turned once."""
    turned: list[str] = []
    for partition in relay.layout.partitions:
        due = await store.due(partition, 99)
        made = [turn(each, nominals(each), now, "") for each in due.kept if each.standing.next == now]
        turned += [each.kept.recurrence.recurrence_id for each in made]
        assert await store.turn(partition, made, now) == [Turned.DONE] * len(made)
    assert sorted(turned) == sorted(NAMES)


def nominals(kept: StoredRecurrence) -> list[Nominal]:
    since = kept.standing.next or 0
    return [Nominal(since, 0), Nominal(since + SECOND, 0)]


@pytest.mark.parametrize("target", [2, 8])
async def test_recurrences_move_with_their_topic(target: int) -> None:
    """From four partitions into another number of them, on a Cluster."""
    with Cluster("valkey", masters=2) as cluster:
        async with Server(cluster.url, connections=2, timeout=60.0) as server:
            relay = Relay(server, "orders", partitions=4)
            await relay.layouts.ask("orders")
            store = RedisRecurrences(server, relay.carrier)
            for name in NAMES:
                recurrence = Recurrence(name, Rule(every=SECOND), b"x", overlap=Overlap.ALLOW)
                standing = Standing(version=1, next=FIRST)
                assert await store.keep(relay.at(name), None, recurrence, standing, FIRST, reason="put")
            await all_turn(store, relay, FIRST)
            layout = await relay.moves.begin("orders", target)
            leaving = next(name for name in NAMES if relay.at(name).endswith(" leaving"))
            _, kept = await store.get(relay.at(leaving), leaving)  # which carries it there
            assert kept is not None
            assert kept.stands, "its last occurrence has gone before it"
            assert await listed(store, relay) == sorted(NAMES)

            async def moved(_: int) -> None:
                assert await listed(store, relay) == sorted(NAMES)

            await relay.moves.run(layout, moved)
            await all_turn(store, relay, FIRST + SECOND)
            assert await listed(store, relay) == sorted(NAMES)
            assert len(await relay.listed()) == 2 * len(NAMES)


async def test_outcomes_are_found_in_any_partition() -> None:
    """What has ended before the topic got more partitions, and what ended afterwards, on nodes of a
    Cluster."""
    with Cluster("valkey", masters=2) as cluster:
        journals = Journals(lambda _: 100_000)
        async with Server(cluster.url, connections=2, timeout=60.0, journals=journals) as server:
            relay = Relay(server, "orders", partitions=2)
            await relay.layouts.ask("orders")
            store = RedisRecurrences(server, relay.carrier)
            made: dict[str, dict[str, int]] = {name: {} for name in NAMES}
            for name in NAMES:
                recurrence = Recurrence(name, Rule(every=SECOND), b"x", overlap=Overlap.ALLOW)
                standing = Standing(version=1, next=FIRST)
                assert await store.keep(relay.at(name), None, recurrence, standing, FIRST, reason="put")
            for n in range(2):
                await all_turn(store, relay, FIRST + n * SECOND)
                for name in NAMES:
                    now, kept = await store.get(relay.at(name), name)
                    assert kept is not None
                    made[name][kept.standing.last] = now - SECOND  # it was made before that
            for name in NAMES:
                assert await relay.cancel(next(iter(made[name]))) is Change.CANCELLED
            await relay.move(8)
            assert {relay.at(name) for name in NAMES} == set(relay.layout.partitions)
            for name in NAMES:
                assert await relay.cancel(next(reversed(made[name]))) is Change.CANCELLED
            for name in NAMES:
                told = await store.ended(relay.layout, name, made[name], journaled=True)
                assert [each.outcome for each in told.values()] == [OccurrenceOutcome.CANCELLED] * 2
            for name in NAMES[:8]:
                await told_by_a_history(server, relay, name, next(reversed(made[name])))
