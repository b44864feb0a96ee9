"""Relay's peers drain due timers of 200 bytes on the same server, each at its defaults and at the best of
the tunings that were tried; timers a second from the first handler to the last.

Each stores its timers its own way, and is held to having handled every one. Slow ones get fewer timers: the
notes say how many. A peer that can't be had here, or did not handle all of its timers, is left out, and a
note says why.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from bench.harness.processes import Broken, ask
from bench.harness.rows import Row
from bench.harness.world import World, Wrong
from bench.peers.catalogue import PEERS, Peer, Tuning
from bench.peers.install import Command, Missing

MEASURE = "peers"
UNIT = "timers/s"
TRIAL = 0.25
"""The part of the timers with which tunings are tried."""
FEWEST = 20
PATIENCE = 120
"""Seconds that a drain may take."""


def defaults(peer: str) -> str:
    """The row of a peer as it comes."""
    return f"{peer}, defaults"


def best(peer: str) -> str:
    """The row of a peer at its best."""
    return f"{peer}, best tuning"


async def measure(world: World) -> AsyncIterator[Row]:
    """All peers that can run here."""
    for peer in world.alternately(PEERS):
        try:
            command, version = peer.install()
            yield await as_it_comes(world, peer, command, version)
            yield await at_its_best(world, peer, command, version)
        except (Missing, Broken, Wrong) as failure:
            await world.server.clear()
            yield Row(
                MEASURE, best(peer.name), None, UNIT, note=f"left out in run {world.run + 1}: {failure}"
            )


async def as_it_comes(world: World, peer: Peer, command: Command, version: str) -> Row:
    """At its defaults."""
    timers = size(world, peer.defaults_share)
    rate = await drained(world, peer, command, timers, {})
    return Row(MEASURE, defaults(peer.name), rate, UNIT, note=f"{version}, {timers:,} timers")


async def at_its_best(world: World, peer: Peer, command: Command, version: str) -> Row:
    """Find the best tuning in the first run; measure it in each."""
    timers = size(world, peer.share)
    if peer.name not in world.found:
        rates = [
            await drained(world, peer, command, size(world, peer.share * TRIAL), tuning)
            for tuning in peer.tunings
        ]
        world.found[peer.name] = peer.tunings[rates.index(max(rates))]
    tuning: Tuning = world.found[peer.name]
    rate = await drained(world, peer, command, timers, tuning)
    said = ", ".join(f"{name} {value}" for name, value in tuning.items())
    note = f"{version}, {timers:,} timers; {said}; the best of {len(peer.tunings)} tunings"
    return Row(MEASURE, best(peer.name), rate, UNIT, note=note)


async def drained(world: World, peer: Peer, command: Command, timers: int, tuning: Tuning) -> float:
    """Timers a second of one drain. Raises `Wrong` if not all were handled, once."""
    argument = json.dumps(
        {"work": "drain", "url": world.server.url, "timers": timers, "payload": world.plan.payload, **tuning}
    )
    said = await ask([*command, argument], patience=PATIENCE)
    if not peer.tidy:  # it keeps results and counters of its own
        await world.server.clear()
    await world.check(peer.name, said, timers)
    return float(timers / said["seconds"])


def size(world: World, share: float) -> int:
    """So many timers."""
    return max(FEWEST, round(world.plan.peer * share))
