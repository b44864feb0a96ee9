"""Due timers, drained out of a topic in which others wait for a far future; timers a second, by how many
wait.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.harness.rows import Row
from bench.harness.timers import load_at, load_due
from bench.harness.world import World

MEASURE = "waiting"
FAR = 10_000_000
"""Seconds until the first of those that wait is due."""
KEYS_LEFT = 2
"""timeline and payloads"""


def beside(waiting: int) -> str:
    """The row."""
    return f"{waiting:,} timers wait"


async def measure(world: World) -> AsyncIterator[Row]:
    """From few to many."""
    far, there = time.time() + FAR, 0
    for waiting in world.plan.waiting:
        more, payload = waiting - there, world.plan.payload
        await load_at(world.server.url, more, payload, lambda n: far + n, first=there, prefix="far")
        there = waiting
        timers = world.plan.waiting_drain
        await load_due(world.server.url, timers, payload)
        async with world.relay() as relay:
            drain = await world.by_stream([relay], timers, left=KEYS_LEFT)
        yield Row(MEASURE, beside(waiting), drain.rate, "timers/s", note=f"{timers:,} timers are drained")
    await world.server.clear()
