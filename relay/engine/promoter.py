"""One topic's promotions: sleep until something is due, then move it to the topic's list or stream."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from random import random

from relay.core.dispatch import Promotion
from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import LATEST
from relay.core.pacing import Jitter, Pacing, seconds_until
from relay.core.policy import TopicPolicy
from relay.core.ports import MAX_PER_CALL, Promotions
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
from relay.engine.deaths import report_deaths
from relay.engine.link import Link
from relay.engine.poller import PAUSED_POLL, REFUSED_WAIT, report_lost
from relay.telemetry.instruments import Instruments

log = logging.getLogger(__name__)


class Promoter:
    """Promotes for as long as the relay runs, whether or not an application is there.

    It waits as a poller does: until the timeline's next due time, less where a hint says so, and with a
    growing floor where other relays are quicker.
    """

    def __init__(
        self,
        topic: str,
        policy: TopicPolicy,
        promotions: Promotions,
        link: Link,
        clock: Clock,
        instruments: Instruments,
        nonce: Callable[[], bytes],
        jitter: Jitter = random,
    ) -> None:
        self._topic = topic
        self._promotions = promotions
        self._link = link
        self._clock = clock
        self._instruments = instruments
        self._nonce = nonce
        self._pacing = Pacing(policy, jitter)
        self._wakeup = Wakeup()
        self._next = clock.now()
        self._awaited: int | None = None
        """The instant for which the next call is made, if it is made for one."""
        self._refused = False
        self._server_time = (LATEST, clock.now())
        """The server's time (microseconds) and ours (seconds) at the last call; before it, all counts as
        past."""

    def due_at(self, instant: int) -> None:
        """Promote at `instant` (microseconds by the server's clock; 0: now) if not before."""
        server, here = self._server_time
        due = here + (instant - server) / 1e6
        if due < self._next:
            self._next = due
            self._awaited = instant if instant > server else None
            self._wakeup.set()

    async def run(self) -> None:
        """Promote for ever."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait until it is time, and move what is due."""
        while (wait := self._next - self._clock.now()) > 0:
            await self._clock.wait(self._wakeup, wait)
        sent, awaited = self._clock.now(), self._awaited
        # What is scheduled while the call is under way may move these two to an earlier time.
        self._next, self._awaited = math.inf, None
        try:
            promotion = await self._promotions.promote(self._topic, limit=MAX_PER_CALL, nonce=self._nonce())
        except StoreUnavailable as failure:
            self._next = sent
            self._link.failed(failure)
            await self._link.pause()
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._next = sent
            self._complain(failure)
            await self._clock.sleep(REFUSED_WAIT)
        else:
            self._link.worked()
            self._refused = False
            self._plan(promotion, sent, awaited)
            self._report(promotion)

    def _plan(self, promotion: Promotion, sent: float, awaited: int | None) -> None:
        # The server read its clock somewhere between; the middle halves the error.
        here = (sent + self._clock.now()) / 2
        self._server_time = (promotion.now, here)
        until_next = seconds_until(promotion.next, promotion.now)
        taken = bool(promotion.promoted or promotion.deaths)
        paused = promotion.paused_until is not None
        lost = not taken and not paused and awaited is not None and awaited <= promotion.now
        # More is due where a batch was full: at once then.
        wait = self._pacing.after_claim(taken=taken, lost=lost, until_next=until_next)
        if promotion.paused_until is not None:  # it may be resumed without a hint to us
            wait = min(PAUSED_POLL, seconds_until(promotion.paused_until, promotion.now))
        if here + wait < self._next:
            self._next = here + wait
            self._awaited = promotion.next if wait >= until_next else None

    def _report(self, promotion: Promotion) -> None:
        self._instruments.promoted(self._topic, promotion.promoted)
        report_deaths(self._topic, promotion.deaths, self._instruments)
        report_lost(self._topic, promotion.parked, promotion.orphans, self._instruments)

    def _complain(self, failure: Exception) -> None:
        self._instruments.store_error(type(failure).__name__)
        if not self._refused:
            log.error(
                "Redis refuses to promote",
                extra={"topic": self._topic, "reason": str(failure)},
                exc_info=None if isinstance(failure, StoreError) else failure,
            )
            self._refused = True
