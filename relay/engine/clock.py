"""Waiting, behind a small port, so that tests can own the time."""

from __future__ import annotations

import math
import time
from typing import Protocol

import anyio


class Wakeup:
    """An event that resets itself: `set` ends the current wait, or else the next one."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """End a wait."""
        self._event.set()

    async def wait(self) -> None:
        """Until `set`; a `set` that came before counts."""
        event = self._event
        await event.wait()
        if self._event is event:  # another waiter may have reset it already
            self._event = anyio.Event()


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
