"""Timers that keep their own time: they are in Redis before the first is due, and none waits for another."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.harness.processes import Child
from bench.harness.timers import load_at
from bench.harness.world import Relay, World, Wrong

Offset = Callable[[int], float]
"""When the n-th timer is due, in seconds after the first."""

START = 2.0
"""Seconds for an application to open its streams."""
START_EACH = 0.3
"""… and for each relay that it has one to."""
LOAD_RATE = 60_000
"""Timers a second that are stored, at the least."""


def together(_: int) -> float:
    """All at the same instant."""
    return 0.0


def steady(rate: float) -> Offset:
    """So many a second."""
    return lambda number: number / rate


@asynccontextmanager
async def due_soon(
    world: World, relays: Sequence[Relay], timers: int, offset: Offset, **options: Any
) -> AsyncIterator[Child]:
    """Store timers, and give the application that waits for them. Raises `Wrong` if it came too late."""
    lead = START + START_EACH * len(relays) + timers / LOAD_RATE
    first = time.time() + lead
    await load_at(world.server.url, timers, world.plan.payload, lambda number: first + offset(number))
    async with world.streaming(relays, timers, **options) as child:
        if time.time() > first:
            raise Wrong(f"this machine is too slow: no stream was open {lead:.1f} s after the start")
        yield child
