"""How late timers come, from their due time to the start of their handler, in milliseconds. The timers keep
their own time: none waits for the one before (an open loop).

The clock is the machine's, which server, relay and application share. An idle queue gets one timer at a
time, through the relay that delivers it or through another one. The other timers are stored beforehand.
Beside it stands how late the same machine wakes a bare `asyncio.sleep` at the same time, and the peers on an
idle queue.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping

from bench.harness import open_loop
from bench.harness.processes import Broken, application, ask
from bench.harness.quantiles import QUANTILES
from bench.harness.rows import Row
from bench.harness.timers import TOPIC
from bench.harness.world import Relay, World, client
from bench.peers.catalogue import PEERS, Peer, Tuning
from bench.peers.install import Missing

MEASURE = "lateness"
UNIT = "ms"
IDLE = "idle queue"
ELSEWHERE = "idle queue, timer set through another relay"
JITTER = "asyncio.sleep on this machine, beside the idle queue"
BURST = "all due at once"
OF_PEERS = (", idle queue, defaults", ", idle queue, tuned")
LEAST_DELAY, MOST_DELAY = 0.05, 0.10
"""Seconds from setting a timer until it is due."""
REST = 0.03


def steady(rate: int) -> str:
    """The row of so many timers a second."""
    return f"{rate:,} timers/s"


def idle_peer(peer: str) -> str:
    """The row of a peer as it comes."""
    return f"{peer}{OF_PEERS[0]}"


def tight_peer(peer: str) -> str:
    """The row of a peer that looks as often as its tunings make it."""
    return f"{peer}{OF_PEERS[1]}"


def rows(name: str, lateness: Mapping[str, float], note: str = "") -> list[Row]:
    """One for each quantile."""
    return [Row(MEASURE, name, lateness[stat], UNIT, stat, note) for stat in QUANTILES]


async def measure(world: World) -> AsyncIterator[Row]:
    """Idle, steady, all at once; then the peers."""
    async with world.relay() as relay, world.relay() as other:
        for name, through in world.alternately(((IDLE, relay), (ELSEWHERE, other))):
            for row in await idle(world, name, relay, through):
                yield row
    for rate in world.plan.rates:
        timers = round(rate * world.plan.rate_time)
        for row in await stored(world, steady(rate), timers, open_loop.steady(rate)):
            yield row
    for row in await stored(world, BURST, world.plan.burst, open_loop.together):
        yield row
    yield Row(MEASURE, BURST, world.plan.burst, "", "timers")
    for row in await peers(world):
        yield row
    await world.server.clear()


async def idle(world: World, name: str, relay: Relay, through: Relay) -> list[Row]:
    """One timer at a time."""
    timers = world.plan.idle_timers
    seconds = timers * ((LEAST_DELAY + MOST_DELAY) / 2 + REST)
    jitter = asyncio.create_task(ask(application("jitter", seconds=seconds)))
    async with world.streaming([relay], timers, lateness=True) as child, client(through) as producer:
        for _ in range(timers):
            delay = random.uniform(LEAST_DELAY, MOST_DELAY)
            await producer.schedule(TOPIC, b"p" * world.plan.payload, delay=delay)
            await asyncio.sleep(delay + REST)
        drain = await world.drained(child, timers)
    found = rows(name, drain.lateness, f"{timers} timers a run")
    slept = (await jitter)["lateness"]
    return [*found, *(rows(JITTER, slept) if name == IDLE else ())]


async def stored(world: World, name: str, timers: int, offset: open_loop.Offset) -> list[Row]:
    """Timers that are in Redis before they are due."""
    async with (
        world.relay() as relay,
        open_loop.due_soon(world, [relay], timers, offset, lateness=True) as child,
    ):
        drain = await world.drained(child, timers)
    return rows(name, drain.lateness, f"{timers:,} timers a run")


async def peers(world: World) -> list[Row]:
    """All that can run here, at the same time: an idle queue costs little. First as they come, then tuned."""
    found = await asyncio.gather(*(peer_rows(world, peer, idle_peer(peer.name), {}) for peer in PEERS))
    await world.server.clear()
    tuned = (peer for peer in PEERS if peer.punctual)
    found += await asyncio.gather(
        *(peer_rows(world, peer, tight_peer(peer.name), peer.punctual) for peer in tuned)
    )
    return [row for rows_of_peer in found for row in rows_of_peer]


async def peer_rows(world: World, peer: Peer, name: str, tuning: Tuning) -> list[Row]:
    """One peer."""
    timers, url, payload = world.plan.peer_idle_timers, world.server.url, world.plan.payload
    argument = json.dumps({"work": "idle", "url": url, "timers": timers, "payload": payload, **tuning})
    try:
        command, version = peer.install()
        said = await ask([*command, argument])
    except (Missing, Broken) as failure:
        return [Row(MEASURE, name, None, UNIT, "p50", f"left out in run {world.run + 1}: {failure}")]
    return rows(name, said["lateness"], f"{version}, {timers} timers a run{_words(tuning)}{peer.remark}")


def _words(tuning: Tuning) -> str:
    return "".join(f", {name} {value}" for name, value in tuning.items())
