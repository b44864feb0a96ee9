"""Waiting, behind a small port, so that tests can own the time."""

from __future__ import annotations

import math
import time
from typing import Protocol

import anyio

from relay.core.wakeup import Wakeup


class Clock(Protocol):
    """Monotonic time in seconds. It decides when to ask, never whether a timer is due."""

    def now(self) -> float:
        """The time."""
        ...

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """Until `wakeup` is set or so many seconds have passed."""
        ...

    async def sleep(self, seconds: float) -> None:
        """For so many seconds."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.monotonic()

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """See `Clock.wait`."""
        with anyio.move_on_after(None if math.isinf(seconds) else max(seconds, 0.0)):
            await wakeup.wait()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await anyio.sleep(seconds)
