"""Whether Redis answers: one view for all loops, one log line per change."""

from __future__ import annotations

import logging
from random import random

from relay.core.errors import StoreError
from relay.core.pacing import Backoff, Jitter
from relay.core.ports import Probe
from relay.engine.clock import Clock
from relay.telemetry.instruments import Instruments

PING_AFTER = 5.0
"""Seconds without a word from Redis after which to ask for one."""

log = logging.getLogger(__name__)


class Link:
    """Told by every loop how its calls went; pings Redis while nobody else talks to it."""

    def __init__(self, ping: Probe, clock: Clock, instruments: Instruments, jitter: Jitter = random) -> None:
        self._ping = ping
        self._clock = clock
        self._instruments = instruments
        self._backoff = Backoff(jitter)
        self._last_word = clock.now()
        self._wait = 0.0
        self.trouble: str | None = None

    def worked(self) -> None:
        """A call was answered."""
        self._last_word = self._clock.now()
        if self.trouble is not None:
            log.warning("Redis is back")
            self.trouble = None
            self._backoff.worked()

    def failed(self, failure: StoreError) -> None:
        """A call was not answered."""
        self._instruments.store_error(type(failure).__name__)
        if self.trouble is None:
            log.error("Redis is away; trying again until it is back", extra={"reason": str(failure)})
            self._wait = self._backoff.failed()
        self.trouble = str(failure)

    async def pause(self) -> None:
        """Wait before trying again; all loops share one back-off, which `run` advances."""
        await self._clock.sleep(self._wait)

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Ping if it is time to, else wait until it may be."""
        if self.trouble is None:
            quiet = self._clock.now() - self._last_word
            if quiet < PING_AFTER:
                await self._clock.sleep(PING_AFTER - quiet)
                return
        else:
            await self._clock.sleep(self._wait)
        try:
            await self._ping()
        except StoreError as failure:
            self.failed(failure)
            self._wait = self._backoff.failed()
        else:
            self.worked()
