"""Timers into an idle queue, one after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from bench.applications.tally import Tally

PAUSE = 1.0
"""Seconds from storing a timer until it is due."""


async def one_by_one(tally: Tally, timers: int, store: Callable[[], Awaitable[None]]) -> None:
    """Store a timer, wait until it was handled and a moment longer, and so on."""
    for number in range(1, timers + 1):
        await asyncio.sleep(random.uniform(0.5, 1.0))
        await store()
        while tally.calls < number:
            await asyncio.sleep(0.005)
