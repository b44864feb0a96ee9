"""Waiting, behind a small port, so that tests can own the time."""

from __future__ import annotations

import math
import time
from collections import Counter
from random import random
from typing import Protocol

import anyio

from relay.core.wakeup import Wakeup

TOGETHER = 0.5
"""Seconds between the instants at which a relay does what can be done a little earlier."""

COMPANY = 10
"""So many share such an instant at most: a crowd would keep what is urgent waiting for a connection."""

MANY = 1_000
"""Instants that are remembered before those that are past are forgotten."""


class Clock(Protocol):
    """Monotonic time in seconds. It decides when to ask, never whether a timer is due."""

    def now(self) -> float:
        """The time."""
        ...

    def together(self, instant: float) -> float:
        """The last instant until then, and less than `TOGETHER` before, for which others wait as well; then
        itself, if these are `COMPANY` already."""
        ...

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """Until `wakeup` is set or so many seconds have passed."""
        ...

    async def sleep(self, seconds: float) -> None:
        """For so many seconds."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def __init__(self) -> None:
        # Its own, so that the relays of one machine do not all wake at the same instants.
        self._phase = random() * TOGETHER
        self._company: Counter[int] = Counter()
        """How many were moved to an instant, by its number."""

    def now(self) -> float:
        """See `Clock.now`."""
        return time.monotonic()

    def together(self, instant: float) -> float:
        """See `Clock.together`."""
        number = math.floor((instant - self._phase) / TOGETHER)
        if self._company[number] >= COMPANY:
            return instant
        self._company[number] += 1
        if len(self._company) > MANY:
            past = (self.now() - self._phase) / TOGETHER
            self._company = Counter({each: n for each, n in self._company.items() if each > past})
        return min(self._phase + number * TOGETHER, instant)  # which rounding could put behind

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """See `Clock.wait`."""
        with anyio.move_on_after(None if math.isinf(seconds) else max(seconds, 0.0)):
            await wakeup.wait()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await anyio.sleep(seconds)
