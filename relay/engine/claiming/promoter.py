"""One topic's promotions: the loop sleeps until a timer is due, then moves it to the topic's list or
stream."""

from __future__ import annotations

import logging
from collections.abc import Callable

from relay.core.dispatch import Promotion
from relay.core.errors import StoreUnavailable
from relay.core.ports import MAX_PER_CALL, Promotions
from relay.engine.claiming.poller import report_lost
from relay.engine.claiming.timetable import Timetable
from relay.engine.redis_health import REFUSED_WAIT, RedisHealth
from relay.engine.reports.dead_letter_reports import report_deaths
from relay.telemetry.metrics.catalogue import PROMOTED
from relay.telemetry.metrics.instruments import Instruments

log = logging.getLogger(__name__)


class Promoter:
    """Promotes for as long as the relay runs, whether or not an application is there.

    It waits as a poller does; see `Timetable`.
    """

    def __init__(
        self,
        topic: str,
        timetable: Timetable,
        promotions: Promotions,
        redis_health: RedisHealth,
        instruments: Instruments,
        nonce: Callable[[], bytes],
    ) -> None:
        self._topic = topic
        self._promotions = promotions
        self._redis_health = redis_health
        self._clock = timetable.clock
        self._instruments = instruments
        self._nonce = nonce
        self._timetable = timetable
        self._refused = False

    def due_at(self, instant: int) -> None:
        """Promote at `instant` at the latest (microseconds by the server's clock; 0 means now)."""
        self._timetable.due_at(instant)

    async def run(self) -> None:
        """Promote until cancelled."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait until it is time, and move the timers that are due."""
        while (wait := self._timetable.next - self._clock.now()) > 0:
            await self._clock.wait(self._timetable.wakeup, wait)
        self._timetable.begin()
        health = self._redis_health.of(self._topic)
        try:
            promotion = await self._promotions.promote(self._topic, limit=MAX_PER_CALL, nonce=self._nonce())
        except StoreUnavailable as failure:
            self._timetable.again()
            self._redis_health.failed(self._topic, failure, health)
            await self._redis_health.pause(self._topic)
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._timetable.again()
            self._redis_health.refused(
                "Redis refuses to promote", failure, said=self._refused, topic=self._topic
            )
            self._refused = True
            await self._clock.sleep(REFUSED_WAIT)
        else:
            health.worked()
            self._refused = False
            # If a batch was full, more is due: go on at once.
            self._timetable.plan(
                now=promotion.now,
                next_due=promotion.next,
                taken=bool(promotion.promoted or promotion.deaths),
                paused_until=promotion.paused_until,
            )
            self._report(promotion)

    def _report(self, promotion: Promotion) -> None:
        self._instruments.count(PROMOTED, self._topic, n=promotion.promoted)
        self._instruments.lateness(self._topic, promotion.lateness)
        report_deaths(self._topic, promotion.deaths, self._instruments)
        report_lost(self._topic, promotion.parked, promotion.orphans, self._instruments)
