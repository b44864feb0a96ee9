"""Tracks whether Redis answers: one view for all loops, one log line per change."""

from __future__ import annotations

import logging
from random import random

import anyio

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.pacing import FailureBackoff, Jitter
from relay.core.ports import Probe
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
from relay.telemetry.metrics.catalogue import STORE_ERRORS
from relay.telemetry.metrics.instruments import Instruments

PING_AFTER = 5.0
"""Seconds without an answer from Redis after which it is pinged."""

log = logging.getLogger(__name__)


class RedisHealth:
    """Learns from every loop how its calls went, and pings Redis while nobody else talks to it.

    While Redis is away only pings are sent, less and less often. A ping that is answered lets the
    loops try again. Redis is back once a loop's call works, or once a second ping works with no failed call
    in between: a replica answers pings and refuses everything else.
    """

    def __init__(self, ping: Probe, clock: Clock, instruments: Instruments, jitter: Jitter = random) -> None:
        self._ping = ping
        self._clock = clock
        self._instruments = instruments
        self._backoff = FailureBackoff(jitter)
        self.last_word = clock.now()
        """When Redis last answered, by the engine's clock."""
        self._wait = 0.0
        self._refuted = False
        self._alarm = Wakeup()
        self._retry = anyio.Event()
        self.trouble: str | None = None

    def worked(self) -> None:
        """Note that a call was answered."""
        self.last_word = self._clock.now()
        if self.trouble is not None:
            log.warning("Redis is back")
            self.trouble = None
            self._backoff.worked()
            self._let_retry()

    def failed(self, failure: StoreError) -> None:
        """Note that a call was not answered."""
        self._refuted = True
        self._away(failure)
        self._alarm.set()

    def refused(self, sentence: str, failure: Exception, *, said: bool = False, **about: object) -> None:
        """Count what Redis refuses, and would refuse again; log it unless it was `said` already."""
        self._instruments.count(STORE_ERRORS, type(failure).__name__)
        if not said:
            log.error(
                sentence,
                extra={**about, "reason": str(failure)},
                exc_info=None if isinstance(failure, StoreError) else failure,
            )

    def _away(self, failure: StoreError) -> None:
        self._instruments.count(STORE_ERRORS, type(failure).__name__)
        if self.trouble is None:
            log.error("Redis is away; trying again until it is back", extra={"reason": str(failure)})
            self._wait = self._backoff.failed()
        self.trouble = str(failure)

    async def pause(self) -> None:
        """Wait until a further try makes sense; to be called after `failed`."""
        if self.trouble is not None:
            await self._retry.wait()

    def _let_retry(self) -> None:
        self._retry.set()
        self._retry = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Ping if it is time, otherwise wait until it may be."""
        if self.trouble is None:
            quiet = self._clock.now() - self.last_word
            if quiet < PING_AFTER:
                await self._clock.wait(self._alarm, PING_AFTER - quiet)
                return
        else:
            await self._clock.sleep(self._wait)
        try:
            await self._ping()
        except StoreUnavailable as failure:
            self._away(failure)
            self._wait = self._backoff.failed()
        except StoreError:
            self._answered()  # a refusal, for instance for a missing permission, is a sign of life
        else:
            self._answered()

    def _answered(self) -> None:
        if self._refuted:
            self._refuted = False
            self._wait = self._backoff.failed()
            self._let_retry()
        else:
            self.worked()
