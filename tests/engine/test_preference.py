"""Several relays poll a topic of several partitions: who polls which first, and who helps."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import anyio
import pytest

from relay.core.errors import StoreUnavailable
from relay.core.instants import micros
from relay.core.pacing import HEAD_START, HELP_AFTER
from relay.core.partitions import MAX_PARTITIONS, Layout
from relay.engine.claiming.poller import CALL_AGAIN
from relay.engine.claiming.preference import BEAT, KEPT, LASTS
from relay.engine.claiming.rendezvous import _first, _hashes, ranks
from relay.engine.engine import Engine
from tests.worlds.engine.doubles import Hints
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, App, World

NAMES = count()
LONG = 600.0
"""A `max_polling_interval` after which nothing here happens by itself."""


async def fall_due(world: World, partition: str, delay: float = 0.0) -> str:
    """Store a timer, and let every relay hear of it, as the script's hint does."""
    name = f"timer-{next(NAMES)}"
    await world.put(name, delay=delay, topic=partition)
    for hints in world.hints.all:
        if partition in hints.watchers:
            hints.watchers[partition](world.clock.server() + round(delay * 1e6))
    await settle()
    return name


async def agree(world: World) -> None:
    """Let every relay hear of every other, and give up what others are to have."""
    await world.advance(KEPT * BEAT)


async def agree_with(world: World, *names: str) -> None:
    """The same, while relays of these names beat that do nothing else."""
    for _ in range(KEPT):
        for name in names:
            await world.beats.beat(TOPIC, name, lasts=micros(LASTS))
        await world.advance(BEAT)


def count_calls(world: World, *partition: str) -> int:
    """How often a relay has called others for help, in all or at one partition."""
    return sum(hints.count("call_for_help", *partition) for hints in world.hints.all)


def prefers(engine: Engine) -> set[str]:
    """The partitions that a relay polls first."""
    return {partition for partition, poller in engine._loops._pollers.items() if not poller._timetable.rank}


@asynccontextmanager
async def doomed(world: World) -> AsyncIterator[tuple[Engine, anyio.CancelScope]]:
    """A relay that dies without a word when its scope is cancelled."""
    engine = world.make(world.heard(Hints()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(engine.run)
        yield engine, tasks.cancel_scope
        tasks.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize(("relays", "partitions"), [(2, 8), (3, 8), (10, 16), (10, 4)])
async def test_the_partitions_are_shared_out(world: World, relays: int, partitions: int) -> None:
    """Each is polled first by one relay; in a steady state of four timers a second and partition hardly a
    claim is in vain, however many relays there are, and all have work if there is enough."""
    layout = world.layouts.put(TOPIC, partitions)
    apps = [await world.app(), *[await world.app(engine=await world.relay()) for _ in range(1, relays)]]
    await agree(world)
    found = [prefers(app.engine) for app in apps]
    assert sorted(name for each in found for name in each) == sorted(layout.partitions)
    assert {len(each) for each in found} <= {partitions // relays, -(-partitions // relays)}
    await world.advance(5.0)  # their last looks from before they knew of each other are done
    before, taken, number = world.store.count("claim"), [0] * relays, 80 * partitions
    for round_ in range(number):
        await fall_due(world, layout.partitions[round_ % partitions], delay=0.125 / partitions)
        await world.advance(0.125 / partitions + 1e-6)  # a float may be a microsecond off
        for n, app in enumerate(apps):
            leases = app.take()
            taken[n] += len(leases)
            app.ack(leases)
        await world.advance(0.125 / partitions)
    assert sum(taken) == number
    assert max(world.counts.latenesses) < 1e-5
    assert min(taken) >= 0.8 * (partitions // relays) * 80
    assert world.store.count("claim") - before <= 1.1 * number


async def test_a_topic_of_one_partition_is_everybodys(world: World) -> None:
    """There is nothing to share out, and no heartbeat."""
    await world.app()
    await world.app(engine=await world.relay())
    await agree(world)
    assert world.beats.calls == []


async def test_a_relay_that_dies_is_missed(world: World) -> None:
    """Its partitions are polled by others once its last heartbeat counts no more."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 4)
    app = await world.app()
    async with doomed(world) as (engine, life):
        await world.app(engine=engine)
        await agree(world)
        partition = min(prefers(engine))
        life.cancel()
    name = await fall_due(world, partition)
    assert app.take() == [], "the dead relay is believed to be alive"
    await world.advance(LASTS + BEAT)
    assert app.names() == [name]
    assert prefers(app.engine) == set(layout.partitions)


async def test_what_lies_unclaimed_is_taken_within_the_longest_interval(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the relay that prefers it is believed to be alive: it has no way to Redis but for heartbeats.
    From then on it is helped at once."""
    world.tune(max_polling_interval=5.0)
    world.layouts.put(TOPIC, 2)
    app, other = await world.app(), await world.app(engine=await world.relay())
    await agree(world)
    (partition,) = prefers(other.engine)
    monkeypatch.setattr(other.engine._loops._pollers[partition], "step", anyio.sleep_forever)
    await world.advance(10.0)  # the loop is in the one that was
    name = await fall_due(world, partition)
    await world.advance(5.0)
    assert app.names() == [name]
    late = await fall_due(world, partition, delay=1.0)
    await world.advance(1.0 + 2 * HEAD_START)
    assert app.names() == [late]


async def test_a_relay_without_room_calls_for_help(world: World) -> None:
    """Soon, and again for as long as it has no room; hardly a timer waits for an application that is busy."""
    world.tune(max_polling_interval=LONG)
    world.layouts.put(TOPIC, 2)
    app, busy = await world.app(), await world.app(engine=await world.relay(), max_outstanding=1)
    await agree(world)
    (partition,) = prefers(busy.engine)
    await fall_due(world, partition)
    held = busy.one()
    name = await fall_due(world, partition)
    await world.advance(HELP_AFTER / 2)
    assert count_calls(world) == 0, "it may have room in a moment"
    await world.advance(HELP_AFTER / 2 + 2 * HEAD_START)
    assert app.names() == [name]
    for _ in range(5):
        await world.advance(10 * CALL_AGAIN)
        name = await fall_due(world, partition, delay=0.5)
        await world.advance(0.5 + 2 * HEAD_START)
        assert app.names() == [name]
    busy.end(held)
    await settle()
    name = await fall_due(world, partition, delay=0.5)
    await world.advance(0.5)
    assert busy.names() == [name]


async def test_a_relay_without_room_that_is_called_calls_the_next(world: World) -> None:
    """One after the other, so that nobody else is woken: ten relays, and only the last one has room."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 2)
    engines = [world.engine, *[await world.relay() for _ in range(9)]]
    apps = [await world.app(engine=engine, max_outstanding=1) for engine in engines]
    await agree(world)
    partition = layout.partitions[0]
    order = sorted(apps, key=lambda app: app.engine._loops._pollers[partition]._timetable.rank)
    for _ in order[:-1]:
        await fall_due(world, partition)
        await world.advance(2.0)
    assert [len(app.take()) for app in order] == [1] * 9 + [0]
    before, called = world.store.count("claim", partition), count_calls(world, partition)
    name = await fall_due(world, partition)
    await world.advance(9 * HELP_AFTER + 0.5)
    assert order[-1].names() == [name]
    assert world.store.count("claim", partition) - before == 1
    assert count_calls(world, partition) - called <= 2 * 9


@pytest.mark.slow
async def test_a_call_in_vain_costs_one_claim(world: World) -> None:
    """Ten relays; one has no room, and nothing is due but its regular look."""
    world.layouts.put(TOPIC, 10)
    engines = [world.engine, *[await world.relay() for _ in range(9)]]
    apps = [await world.app(engine=engine, max_outstanding=1) for engine in engines]
    busy = apps[0]
    await agree(world)
    await world.advance(5.0)
    (partition,) = prefers(busy.engine)
    await fall_due(world, partition)
    await world.advance(1e-6)
    held = busy.one()
    await world.advance(5.0)
    before, called = world.store.count("claim", partition), count_calls(world)
    await world.advance(60 * CALL_AGAIN)
    calls = count_calls(world) - called
    assert calls >= 50
    assert world.store.count("claim", partition) - before <= calls + 60 / 5 * 2
    busy.end(held)


@pytest.mark.parametrize("due", [0, -3_600_000_000], ids=["look now", "long overdue"])
async def test_a_hint_for_now_is_for_the_first(world: World, due: int) -> None:
    """A bulk load, a pause, the release of a lease: whatever wakes all relays, one claims."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 2)
    for _ in range(4):
        await world.app(engine=await world.relay())
    await agree(world)
    before = world.store.count("claim")
    for hints in world.hints.all:
        for partition in layout.partitions:
            if partition in hints.watchers:
                hints.watchers[partition](due and world.clock.server() + due)
    await world.advance(1.0)
    assert world.store.count("claim") - before == 2


async def test_relays_of_different_layouts_do_not_count_each_other(world: World) -> None:
    """The partitions of the one are not those of the other, and nobody else may poll them."""
    layout = world.layouts.put(TOPIC, 4)
    app = await world.app()
    other = Layout(TOPIC, 7, 4)
    others = f"somebody {other.text}", f"another 9 {layout.text}"  # a text that ends alike
    await agree_with(world, *others)
    assert prefers(app.engine) == set(layout.partitions)
    await agree_with(world, *others, f"somebody {layout.text}")
    assert len(prefers(app.engine)) == 2


async def test_nobody_is_called_where_nobody_is(world: World) -> None:
    """A relay alone is as it was without others: it waits for room."""
    world.layouts.put(TOPIC, 2)
    app = await world.app(max_outstanding=1)
    await agree(world)
    for partition in prefers(app.engine):
        await fall_due(world, partition)
    await world.advance(10 * CALL_AGAIN)
    assert world.hints.count("call_for_help") == 0


async def test_a_relay_that_was_full_before_others_came(world: World) -> None:
    """It calls them for what is due, although it waits for room already; so it does after a heartbeat that
    failed."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 2)
    busy = await world.app(max_outstanding=1)
    await fall_due(world, layout.partitions[0])
    held = busy.one()
    names = {await fall_due(world, partition) for partition in layout.partitions}
    await world.advance(10.0)
    app = await world.app(engine=await world.relay())
    await agree(world)
    await world.advance(CALL_AGAIN)
    assert set(app.names()) == names
    away = world.beats.fail("beat", StoreUnavailable("gone"))
    await world.advance(BEAT)
    away.open()
    await world.advance(BEAT)
    before = count_calls(world)
    await world.advance(2 * CALL_AGAIN)
    assert count_calls(world) > before
    busy.end(held)


async def test_a_call_that_nobody_answers_goes_on_to_others(world: World) -> None:
    """A dead relay comes after the busy one, until its heartbeat ends: the next call is for the next one."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 1 << 4)
    busy, app = await world.app(max_outstanding=1), await world.app(engine=await world.relay())
    await agree_with(world, dead := f"dead {layout.text}")
    order = [busy.engine._loops._pollers, app.engine._loops._pollers]
    partition = next(name for name in order[0] if [each[name]._timetable.rank for each in order] == [0, 2])
    await fall_due(world, partition)
    await world.advance(1e-6)
    held = busy.one()
    name = await fall_due(world, partition)
    for _ in range(2):
        await world.beats.beat(TOPIC, dead, lasts=micros(LASTS))
        await world.advance((HELP_AFTER + CALL_AGAIN + 4 * HEAD_START) / 2)
    assert app.names() == [name]
    busy.end(held)


async def test_whatever_goes_wrong_with_a_call_for_help(world: World) -> None:
    """It is tried again, and ends nothing else."""
    world.tune(max_polling_interval=LONG)
    world.layouts.put(TOPIC, 2)
    app, busy = await world.app(), await world.app(engine=await world.relay(), max_outstanding=1)
    await agree(world)
    doors = [hints.fail("call_for_help", RuntimeError("a defect"), times=1) for hints in world.hints.all]
    (partition,) = prefers(busy.engine)
    await fall_due(world, partition)
    held = busy.one()
    name = await fall_due(world, partition)
    await world.advance(HELP_AFTER + 2 * HEAD_START)
    assert sum(door.reached for door in doors) == 1
    assert app.names() == []
    await world.advance(CALL_AGAIN)
    assert app.names() == [name]
    busy.end(held)


async def test_help_ends(world: World) -> None:
    """Whoever was called and then comes in vain leaves more and more time to the others."""
    world.tune(max_polling_interval=LONG)
    world.layouts.put(TOPIC, 2)
    app, other = await world.app(), await world.app(engine=await world.relay())
    await agree(world)
    (partition,) = prefers(other.engine)
    await world.hints.call_for_help(partition, 1)
    await settle()
    before = world.store.count("claim", partition)
    for _ in range(100):
        await fall_due(world, partition, delay=0.25)
        await world.advance(0.25)
        other.ack([other.one()])
        await settle()
    assert world.store.count("claim", partition) - before <= 110
    assert app.take() == []


async def test_a_relay_that_leaves_calls_others(world: World) -> None:
    """Its application goes: what falls due meanwhile is taken by others at once, and so is what it held."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 4)
    app, other = await world.app(), await world.app(engine=await world.relay())
    await agree(world)
    partition = min(prefers(other.engine))
    held = await fall_due(world, partition)
    assert len(other.take()) == 1
    await other.leave()
    for hints in world.hints.all:  # as the script's hint says that a timer was released
        if partition in hints.watchers:
            hints.watchers[partition](world.clock.server())
    await settle()
    name = await fall_due(world, partition)
    await world.advance(2 * HEAD_START)
    assert app.names() == [held, name]
    await world.advance(BEAT)
    assert prefers(app.engine) == set(layout.partitions)


async def test_a_relay_that_drains_leaves(world: World) -> None:
    """At once, while its application finishes what it has: it takes nothing more, and others know that."""
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 4)
    app, other = await world.app(), await world.app(engine=await world.relay())
    await agree(world)
    partition = min(prefers(other.engine))
    await fall_due(world, partition)
    assert len(other.take()) == 1
    world.tasks.start_soon(other.engine.drain, 600.0)
    await settle()
    name = await fall_due(world, partition, delay=0.5)
    await world.advance(0.5 + 2 * HEAD_START)
    assert app.names() == [name]
    await world.advance(BEAT)
    assert prefers(app.engine) == set(layout.partitions)
    called = count_calls(world)
    assert called == 2, "once for each partition"
    await fall_due(world, partition)
    await world.advance(10 * BEAT)
    assert prefers(app.engine) == set(layout.partitions), "the draining relay beats no more"
    await other.leave()
    assert count_calls(world) == called


@pytest.mark.parametrize("seed", range(8))
async def test_a_partition_that_changes_hands_has_somebody_all_the_time(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Race: a third relay comes, and a partition goes from the first to the second, which hears of it a
    heartbeat later."""
    names = (f"{seed}-{n}" for n in count())
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(names))
    world.tune(max_polling_interval=LONG)
    layout = world.layouts.put(TOPIC, 16)
    apps = [await world.app()]
    for _ in range(2):
        await agree(world)
        await world.advance(BEAT / 3)
        apps.append(await world.app(engine=await world.relay()))
    for _ in range(20):
        await world.advance(BEAT / 5)
        for partition in layout.partitions:
            assert any(partition in prefers(app.engine) for app in apps), partition
    shares = [prefers(app.engine) for app in apps]
    assert sorted(map(len, shares)) == [5, 5, 6]
    assert set().union(*shares) == set(layout.partitions)


async def test_a_heartbeat_that_fails_leaves_nothing_to_others(world: World) -> None:
    """Once the last one counts no more: as if the relay were alone, until Redis says who else is there. The
    loop goes on."""
    layout = world.layouts.put(TOPIC, 4)
    app = await world.app()
    await world.app(engine=await world.relay())
    await agree(world)
    assert len(prefers(app.engine)) == 2
    away = world.beats.fail("beat", StoreUnavailable("gone"))
    await world.advance(BEAT)
    assert len(prefers(app.engine)) == 2
    await world.advance(LASTS)
    assert prefers(app.engine) == set(layout.partitions)
    broken = world.beats.fail("beat", RuntimeError("a defect"))
    away.open()
    await world.advance(BEAT)
    broken.open()
    await world.advance(BEAT)
    await agree(world)
    assert len(prefers(app.engine)) == 2


async def test_partitions_are_shared_out_anew_after_a_change_of_their_number(world: World) -> None:
    layout = world.layouts.put(TOPIC, 2)
    apps: list[App] = [await world.app(), await world.app(engine=await world.relay())]
    await agree(world)
    layout = Layout(TOPIC, 2, 2, 4)
    world.layouts._there[TOPIC] = layout
    world.layouts._learn(TOPIC)
    await agree(world)
    await world.advance(LASTS)
    await agree(world)
    shares = [prefers(app.engine) for app in apps]
    assert [len(each) for each in shares] == [2, 2]
    assert set().union(*shares) == set(layout.partitions)


def test_ranks() -> None:
    """Everybody computes the same, whatever the order in which the names came; the first ones have even
    shares, and little changes where a relay goes, or where the topic gets more partitions."""
    for number in (1, 2, 3, 5, 9, 33, 63, 64, 65, 66):
        relays = [f"relay-{n}" for n in range(number)]
        found = [ranks(relay, relays, TOPIC, 64) for relay in relays]
        assert found[0] == ranks("relay-0", relays[::-1], TOPIC, 64)
        for partition in zip(*found, strict=True):
            assert sorted(partition) == list(range(number))
        assert {each.count(0) for each in found} <= {64 // number, -(-64 // number)}
    five = [f"relay-{n}" for n in range(5)]
    stay = more = 0
    for relay in five[1:]:
        before, after = ranks(relay, five, TOPIC, 64), ranks(relay, five[1:], TOPIC, 64)
        stay += sum(one == other == 0 for one, other in zip(before, after, strict=True))
        double = ranks(relay, five, TOPIC, 128)
        more += sum(one == other == 0 for one, other in zip(before, double[:64], strict=True))
    assert stay >= 40, "where a relay goes, most of the others' partitions stay"
    assert more >= 30, "where a topic gets more partitions, most of the old ones stay"
    assert ranks("relay-1", five, TOPIC, 64) != ranks("relay-1", five, "other", 64)


def test_the_first_ones_are_those_with_the_highest_hashes() -> None:
    """Of all pairs the one with the highest hash comes first, for as long as its relay has not got its
    share."""
    for relays, partitions in ((3, 16), (7, 64), (16, 4)):
        columns = list(zip(*(_hashes(f"relay-{n}", TOPIC, partitions) for n in range(relays)), strict=True))
        pairs = [
            (each, number, relay)
            for number, column in enumerate(columns)
            for relay, each in enumerate(column)
        ]
        first, taken = dict[int, int](), Counter[int]()
        for share in (partitions // relays, partitions // relays + 1):
            for _, number, relay in sorted(pairs, reverse=True):
                if number not in first and taken[relay] < share:
                    first[number] = relay
                    taken[relay] += 1
        assert _first(columns, relays) == first


def test_many_relays_and_partitions_do_not_stop_the_loop() -> None:
    """The time is that of this thread alone, so that other work on the machine does not count."""
    relays = [f"relay-{n}" for n in range(100)]
    began = time.thread_time()
    ranks("relay-0", relays, TOPIC, MAX_PARTITIONS)
    assert time.thread_time() - began < 0.4
