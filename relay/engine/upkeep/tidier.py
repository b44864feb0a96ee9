"""Tidies lists and streams: it gives back what dead workers left, and removes what nobody needs."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from random import random

from relay.core.dispatch import Tidied
from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import micros
from relay.core.pacing import Jitter
from relay.core.ports import Promotions, TopicStore
from relay.engine.clock import Clock
from relay.engine.redis_health import PlaceHealth, RedisHealth
from relay.engine.reports.dead_letter_reports import report_deaths
from relay.telemetry.metrics.catalogue import RETURNED, STREAM_DROPPED, STREAM_TRIMMED
from relay.telemetry.metrics.instruments import Instruments

INTERVAL = 2.0
"""Seconds between two rounds, plus or minus a tenth; one of all relays tidies a topic."""

log = logging.getLogger(__name__)


class Tidier:
    """Makes rounds: each topic with a list or a stream is tidied once, unless another relay has just done
    it."""

    def __init__(
        self,
        promotions: Promotions,
        topics: TopicStore,
        names: Iterable[str],
        redis_health: RedisHealth,
        clock: Clock,
        instruments: Instruments,
        jitter: Jitter = random,
    ) -> None:
        self._promotions = promotions
        self._topics = topics
        self._names = tuple(names)
        self._redis_health = redis_health
        self._clock = clock
        self._instruments = instruments
        self._jitter = jitter

    async def run(self) -> None:
        """Tidy until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL * (0.9 + 0.2 * self._jitter()))
            await self.step()

    async def step(self) -> None:
        """Make one round. A place that does not answer costs it one call, and none while it is known to be
        away."""
        away: set[PlaceHealth] = set()
        for topic in self._names:
            health = self._redis_health.of(topic)
            if health in away or health.trouble is not None:
                continue
            try:
                # The lock is not given back, so that a relay that comes within the interval does nothing.
                if await self._topics.lock("tidy", topic, ttl=micros(INTERVAL * 0.8)):
                    self._report(topic, await self._promotions.tidy(topic))
            except StoreUnavailable:
                away.add(health)  # the next round comes soon, and the loops that deliver report it
            except StoreError as failure:
                log.warning("a topic could not be tidied", extra={"topic": topic, "reason": str(failure)})
            except Exception:  # whatever it is, it must not end the loop
                log.exception("a topic could not be tidied", extra={"topic": topic})

    def _report(self, topic: str, tidied: Tidied) -> None:
        self._instruments.count(STREAM_TRIMMED, topic, n=tidied.trimmed)
        self._instruments.count(RETURNED, topic, n=tidied.returned)
        report_deaths(topic, tidied.deaths, self._instruments)
        if tidied.returned:
            log.warning(
                "entries given back to the ready list: their workers did not finish them in time",
                extra={"topic": topic, "count": tidied.returned},
            )
        if tidied.dropped:
            self._instruments.count(STREAM_DROPPED, topic, n=tidied.dropped)
            log.error(
                "entries dropped that not all groups have acknowledged, as stream.max_length asks",
                extra={"topic": topic, "count": tidied.dropped},
            )
        if tidied.consumers:
            log.info("consumers removed that are gone", extra={"topic": topic, "count": tidied.consumers})
