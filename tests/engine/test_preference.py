"""Several relays poll a topic of several partitions: who polls which first, and who helps."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import anyio
import pytest

from relay.core.errors import StoreUnavailable
from relay.core.pacing import HEAD_START
from relay.core.partitions import Layout, place_of
from relay.engine.claiming.poller import CALL_AGAIN, GATHER
from relay.engine.claiming.preference import BEAT, KEPT, LASTS
from relay.engine.claiming.rendezvous import preferred
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


def count_calls(world: World) -> int:
    """How often a relay has called others for help."""
    return sum(hints.count("call_for_help") for hints in world.hints.all)


def prefers(engine: Engine) -> set[str]:
    """The partitions that a relay polls first."""
    return {
        partition
        for partition, poller in engine._loops._pollers.items()
        if not poller._timetable._pacing.stands_back
    }


@asynccontextmanager
async def doomed(world: World) -> AsyncIterator[tuple[Engine, anyio.CancelScope]]:
    """A relay that dies without a word when its scope is cancelled."""
    engine = world.make(world.heard(Hints()))
    async with anyio.create_task_group() as tasks:
        await tasks.start(engine.run)
        yield engine, tasks.cancel_scope
        tasks.cancel_scope.cancel()


async def test_the_partitions_are_shared_out(world: World) -> None:
    """Each is polled first by one relay; in a steady state hardly a claim is in vain, and both have work."""
    layout = world.layouts.put(TOPIC, 8)
    apps = [await world.app(), await world.app(engine=await world.relay())]
    await agree(world)
    first, second = (prefers(app.engine) for app in apps)
    assert first | second == set(layout.partitions)
    assert len(first) == len(second) == 4
    before, taken = world.store.count("claim"), [0, 0]
    for round_ in range(400):
        await fall_due(world, layout.partitions[round_ % 8], delay=1 / 32)
        await world.advance(1 / 32)
        for n, app in enumerate(apps):
            leases = app.take()
            taken[n] += len(leases)
            app.ack(leases)
    assert sum(taken) == 400
    assert max(world.counts.latenesses) < 1e-6
    assert min(taken) >= 0.4 * 400
    assert world.store.count("claim") - before <= 1.1 * 400


async def test_a_topic_of_one_partition_is_everybodys(world: World) -> None:
    """There is nothing to share out, and no heartbeat."""
    await world.app()
    await world.app(engine=await world.relay())
    await agree(world)
    assert world.beats.calls == []


async def test_more_relays_than_partitions(world: World) -> None:
    """Each polls one of them first: the application beside it has work, too."""
    layout = world.layouts.put(TOPIC, 2)
    apps = [await world.app(), *[await world.app(engine=await world.relay()) for _ in range(4)]]
    await agree(world)
    found = [prefers(app.engine) for app in apps]
    assert {len(each) for each in found} == {1}
    assert sorted(sum(partition in each for each in found) for partition in layout.partitions) == [2, 3]


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
    """At once, and again for as long as it has no room; no timer waits for an application that is busy."""
    world.tune(max_polling_interval=LONG)
    world.layouts.put(TOPIC, 2)
    app, busy = await world.app(), await world.app(engine=await world.relay(), max_outstanding=1)
    await agree(world)
    (partition,) = prefers(busy.engine)
    await fall_due(world, partition)
    held = busy.one()
    name = await fall_due(world, partition)
    await world.advance(GATHER)
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


async def test_help_ends(world: World) -> None:
    """Whoever was called and then comes in vain leaves more and more time to the others."""
    world.tune(max_polling_interval=LONG)
    world.layouts.put(TOPIC, 2)
    app, other = await world.app(), await world.app(engine=await world.relay())
    await agree(world)
    (partition,) = prefers(other.engine)
    await world.hints.call_for_help(partition)
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
    names = iter(f"{seed}-{n}" for n in range(3))
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
    """As if the relay were alone, until Redis says who else is there; the loop goes on."""
    layout = world.layouts.put(TOPIC, 4)
    app = await world.app()
    await world.app(engine=await world.relay())
    await agree(world)
    assert len(prefers(app.engine)) == 2
    away = world.beats.fail("beat", StoreUnavailable("gone"))
    await world.advance(BEAT)
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


def test_shares_are_even_and_change_little() -> None:
    """Everybody computes the same, whatever the order in which the names came."""
    partitions = [place_of(name) for name in Layout(TOPIC, 1, 64).partitions]
    for number in (1, 2, 3, 5, 9, 33, 63, 64, 65, 66):
        relays = [f"relay-{n}" for n in range(number)]
        shares = {relay: preferred(relay, relays, partitions) for relay in relays}
        assert shares["relay-0"] == preferred("relay-0", relays[::-1], partitions[::-1])
        assert set().union(*shares.values()) == set(partitions)
        sizes = {len(share) for share in shares.values()}
        assert sizes <= ({64 // number, -(-64 // number)} if number <= 64 else {1})
        takers = {sum(name in share for share in shares.values()) for name in partitions}
        assert takers <= ({1} if number <= 64 else {number // 64, -(-number // 64)})
    five = [f"relay-{n}" for n in range(5)]
    stay = sum(
        len(preferred(relay, five, partitions) & preferred(relay, five[1:], partitions)) for relay in five[1:]
    )
    assert stay >= 40, "where a relay goes, most of the others' partitions stay"
