"""Timers into an idle queue, one after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from bench.applications.tally import Tally

PAUSE = 1.0
"""Seconds from storing a timer until it is due."""


def pause() -> float:
    """Seconds to leave the queue alone, at random: so that no poll falls into step."""
    return random.uniform(0.5, 1.5)


async def one_by_one(tally: Tally, timers: int, store: Callable[[int], Awaitable[object]]) -> None:
    """Store a timer, wait until it was handled and a moment longer, and so on."""
    for number in range(timers):
        await asyncio.sleep(pause())
        await store(number)
        while tally.calls <= number:
            await asyncio.sleep(0.005)
