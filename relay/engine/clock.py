"""A small port for waiting, so that tests can control the time."""

from __future__ import annotations

import math
import time
from collections import Counter
from random import random
from typing import Protocol

import anyio

from relay.core.loop.wakeup import Wakeup

TOGETHER = 0.5
"""Seconds between the instants to which a relay moves work that can be done a little earlier."""

COMPANY = 10
"""The most tasks that share such an instant: more would keep urgent calls waiting for a connection."""

MANY = 1_000
"""The number of instants at which those that are past are forgotten."""


class Clock(Protocol):
    """Monotonic time in seconds. It decides when to ask, never whether a timer is due."""

    def now(self) -> float:
        """Return the time."""
        ...

    def together(self, instant: float) -> float:
        """Return the last shared instant before `instant`, less than `TOGETHER` earlier; `instant` itself if
        `COMPANY` tasks wait for the shared one already."""
        ...

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """Wait until `wakeup` is set or `seconds` have passed."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for this number of seconds."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def __init__(self) -> None:
        # Each relay has a phase of its own, so that the relays of one machine do not all wake at the same
        # instants.
        self._phase = random() * TOGETHER
        self._company: Counter[int] = Counter()
        """The number of tasks that were moved to an instant, by the instant's number."""

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
        return min(self._phase + number * TOGETHER, instant)  # rounding could make it later than `instant`

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """See `Clock.wait`."""
        with anyio.move_on_after(None if math.isinf(seconds) else max(seconds, 0.0)):
            await wakeup.wait()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await anyio.sleep(seconds)
