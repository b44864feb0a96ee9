"""What an append-only file costs: timers of 200 bytes drained and stored through a relay, and drained by its
peers at their best tunings, on a server without a file, with one that is synced once a second (`everysec`),
and with one that is synced with every turn of the server's loop (`always`). Nobody waits for the disk here;
see Durability for what that costs.

The three servers take turns, so that each figure of a row's neighbours was taken in the same minutes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

from bench.harness.processes import Broken
from bench.harness.rows import Row
from bench.harness.server import server
from bench.harness.world import World, Wrong
from bench.measures import peers, schedule
from bench.measures.drain import drained
from bench.peers.catalogue import PEERS, Peer, Tuning
from bench.peers.install import Command, Missing

MEASURE = "persistence"
UNIT = "timers/s"
FILES: Mapping[str, Mapping[str, str]] = {
    "no file": {},
    "everysec": {"appendonly": "yes", "appendfsync": "everysec"},
    "always": {"appendonly": "yes", "appendfsync": "always"},
}
DRAIN = "relay, drain by stream"
COLUMNS = "relay, ScheduleColumns"
CONCURRENCY = 100
UNARY = f"relay, unary schedule, concurrency {CONCURRENCY}"
SHARE = 0.5
"""The part of the timers of `peers` that a peer drains here, three times as often."""

Side = Callable[[World], Awaitable[float]]


def on(what: str, file: str) -> str:
    """The row of a piece of work on one server."""
    return f"{what}, {file}"


def by_peer(peer: str) -> str:
    """What a peer does."""
    return f"{peer}, drain at its best tuning"


async def measure(world: World) -> AsyncIterator[Row]:
    """Each piece of work on each server."""
    async with AsyncExitStack() as stack:
        worlds = {
            file: dataclasses.replace(world, server=await stack.enter_async_context(server(**config)))
            for file, config in FILES.items()
        }
        for what, side in ((DRAIN, drain), (COLUMNS, columns), (UNARY, unary)):
            for row in await rows(worlds, what, side):
                yield row
        for peer in world.alternately(PEERS):
            try:
                command, version = peer.install()
                tuning = await best(worlds["no file"], peer, command)
                timers = peers.size(world, peer.share * SHARE)
                side = partial(by, peer=peer, command=command, timers=timers, tuning=tuning)
                note = f"{version}, {timers:,} timers"
                for row in await rows(worlds, by_peer(peer.name), side, note=note):
                    yield row
            except (Missing, Broken, Wrong) as failure:
                for own in worlds.values():
                    await own.server.clear()
                note = f"left out in run {world.run + 1}: {failure}"
                yield Row(MEASURE, on(by_peer(peer.name), "no file"), None, UNIT, note=note)


async def rows(worlds: Mapping[str, World], what: str, side: Side, note: str = "") -> list[Row]:
    """One piece of work, in turns."""
    rates = await worlds["no file"].in_turns(*(partial(side, own) for own in worlds.values()))
    return [
        Row(MEASURE, on(what, file), rate, UNIT, note=note) for file, rate in zip(worlds, rates, strict=True)
    ]


async def drain(world: World) -> float:
    """By stream."""
    rate = (await drained(world, world.plan.drain_beside)).rate
    await world.server.clear()
    return rate


async def columns(world: World) -> float:
    """A batch by relay's client."""
    return await stored(world, world.plan.batch)


async def unary(world: World) -> float:
    """One timer a call."""
    return await stored(world, world.plan.unary[CONCURRENCY], concurrency=CONCURRENCY)


async def stored(world: World, timers: int, **options: int) -> float:
    """Timers a second through a relay of its own."""
    async with world.relay() as relay:
        return await schedule.emptied(world, schedule.scheduled(world, relay, timers, **options))


async def best(world: World, peer: Peer, command: Command) -> Tuning:
    """The fastest tuning of a peer without a file, looked for once."""
    if peer.name not in world.found:
        timers = peers.size(world, peer.share * peers.TRIAL)
        rates = [await peers.drained(world, peer, command, timers, tuning) for tuning in peer.tunings]
        world.found[peer.name] = peer.tunings[rates.index(max(rates))]
    tuning: Tuning = world.found[peer.name]
    return tuning


async def by(world: World, *, peer: Peer, command: Command, timers: int, tuning: Tuning) -> float:
    """A drain by a peer."""
    return await peers.drained(world, peer, command, timers, tuning)
