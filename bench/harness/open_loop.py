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

LEAD = 1.0
"""Seconds between the last timer's storing and the first one's due time, about."""
LOAD_RATE = 50_000
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
    """An application whose streams are open, and timers that will fall due for it.

    Raises `Wrong` if the first was due before the last was stored.
    """
    async with world.streaming(relays, timers, **options) as child:
        first = time.time() + LEAD + timers / LOAD_RATE
        await load_at(world.server.url, timers, world.plan.payload, lambda number: first + offset(number))
        if time.time() > first:
            raise Wrong(f"this machine is too slow: storing {timers:,} timers took until they were due")
        yield child
