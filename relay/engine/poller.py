"""One topic's poll loop: sleep until something is due and somebody can take it, then claim."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from random import random

import anyio

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import LATEST, micros
from relay.core.pacing import Jitter, Pacing, seconds_until
from relay.core.policy import TopicPolicy
from relay.core.ports import LeaseSource
from relay.core.timers import Claim
from relay.core.wakeup import Wakeup
from relay.engine.clock import Clock
from relay.engine.deaths import report_deaths
from relay.engine.dispatcher import Dispatcher
from relay.engine.link import Link
from relay.telemetry.instruments import Instruments

CLAIM_BYTES = 2 << 20
"""Payload bytes that one claim call returns at most, roughly."""

PAUSED_POLL = 0.9
"""Seconds between two looks at a topic that is paused and has timers due."""

GATHER = 0.002
"""Seconds between two claims at least, while there is more due than there is room for; unless there is room
for a whole batch, or a quarter of all places are free. What becomes free meanwhile is claimed together."""

REFUSED_WAIT = 5.0
"""Seconds to wait after Redis refused a claim, such as for a key of the wrong type."""

log = logging.getLogger(__name__)


class Poller:
    """Claims a topic's due timers for as long as the dispatcher has room for them."""

    def __init__(
        self,
        topic: str,
        policy: TopicPolicy,
        store: LeaseSource,
        dispatcher: Dispatcher,
        link: Link,
        clock: Clock,
        instruments: Instruments,
        nonce: Callable[[], bytes],
        jitter: Jitter = random,
    ) -> None:
        self._topic = topic
        self._policy = policy
        self._store = store
        self._dispatcher = dispatcher
        self._link = link
        self._clock = clock
        self._instruments = instruments
        self._nonce = nonce
        self._pacing = Pacing(policy, jitter)
        self._wakeup = Wakeup()
        self._next_poll = clock.now()
        self._awaited: int | None = None
        """The instant for which the next poll is made, if it is made for one."""
        self._gather_until = 0.0
        """Until then a claim waits for more room."""
        self._refused = False
        self._server_time = (LATEST, clock.now())
        """The server's time (microseconds) and ours (seconds) at the last claim. Before the first
        one, any instant counts as past: better a poll too many than a timer overlooked."""

    def wake(self) -> None:
        """Capacity has changed."""
        self._wakeup.set()

    def due_at(self, instant: int) -> None:
        """Poll at `instant` (microseconds by the server's clock; 0: now) if not before."""
        server, here = self._server_time
        due = here + (instant - server) / 1e6
        if due < self._next_poll:
            self._next_poll = due
            # What was due at the last claim already may have been taken by that one.
            self._awaited = instant if instant > server else None
            self._wakeup.set()

    async def run(self) -> None:
        """Poll for ever."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Wait until it is time and there is room; claim, and hand out what was claimed."""
        while True:
            now = self._clock.now()
            free, places = self._dispatcher.room(self._topic)
            enough = free >= min(places / 4, self._policy.claim_batch)
            ready = self._next_poll if enough else max(self._next_poll, self._gather_until)
            if free and ready <= now:
                break
            await self._clock.wait(self._wakeup, ready - now if free else math.inf)
        # Not to be cut short: the reply names timers that nobody else would know to be leased.
        with anyio.CancelScope(shield=True):
            failure = await self._claim()
        if isinstance(failure, StoreUnavailable):
            self._link.failed(failure)
            await self._link.pause()
        elif failure is not None:
            self._complain(failure)
            await self._clock.sleep(REFUSED_WAIT)

    async def _claim(self) -> Exception | None:
        nonce = self._nonce()
        sent, began = self._clock.now(), time.time_ns()
        awaited = self._awaited
        # What is scheduled while the claim is under way may move these two to an earlier time.
        self._next_poll, self._awaited = math.inf, None
        try:
            with self._dispatcher.reserved(self._topic, self._policy.claim_batch) as places:
                claim = await self._store.claim(
                    self._topic,
                    limit=places,
                    lease=micros(self._policy.lease_ttl),
                    nonce=nonce,
                    max_bytes=CLAIM_BYTES,
                    limits=self._policy.limits,
                )
        except Exception as failure:  # noqa: BLE001  (whatever it is, it must not end the loop)
            self._next_poll = sent
            return failure
        self._link.worked()
        self._refused = False
        nothing = not (claim.timers or claim.deaths or claim.paused_until is not None)
        self._gather_until = sent + GATHER if len(claim.timers) == places else 0.0
        self._plan(claim, sent, lost=nothing and awaited is not None and awaited <= claim.now)
        self._report(claim)
        if claim.timers:
            self._dispatcher.deliver(self._topic, claim, nonce, sent=sent, began=began, policy=self._policy)
        return None

    def _plan(self, claim: Claim, sent: float, *, lost: bool) -> None:
        here = self._clock.now()
        # The server read its clock somewhere between; the middle halves the error.
        self._server_time = (claim.now, (sent + here) / 2)
        until_next = seconds_until(claim.next, claim.now)
        wait = self._pacing.after_claim(
            taken=bool(claim.timers or claim.deaths), lost=lost, until_next=until_next
        )
        if claim.look_at is not None:
            wait = min(wait, seconds_until(claim.look_at, claim.now))
        if claim.paused_until is not None:  # by whoever paused it, it may be resumed without a hint to us
            wait = min(PAUSED_POLL, seconds_until(claim.paused_until, claim.now))
        planned = (sent + here) / 2 + wait
        if planned < self._next_poll:
            self._next_poll = planned
            # Behind the new leases' end, the next timer may be one of our own leases, renewed by then.
            known = claim.next is not None and claim.next < claim.deadline
            self._awaited = claim.next if known and wait >= until_next else None

    def _report(self, claim: Claim) -> None:
        if claim.deaths:
            report_deaths(self._topic, claim.deaths, self._instruments)
        if claim.promoted:
            self._instruments.promoted(self._topic, claim.promoted)
        if claim.missing:
            self._instruments.orphans(self._topic, claim.missing)
            log.error(
                "entries are pending that are not in the stream any more: somebody has trimmed it",
                extra={"topic": self._topic, "count": claim.missing},
            )
        if claim.parked or claim.orphans:
            report_lost(self._topic, claim.parked, claim.orphans, self._instruments)

    def _complain(self, failure: Exception) -> None:
        self._instruments.store_error(type(failure).__name__)
        if not self._refused:
            log.error(
                "Redis refuses to claim",
                extra={"topic": self._topic, "reason": str(failure)},
                exc_info=None if isinstance(failure, StoreError) else failure,
            )
            self._refused = True


def report_lost(topic: str, parked: int, orphans: Sequence[str], instruments: Instruments) -> None:
    """Say of timers that their payload is missing: some put aside, others removed after the grace period."""
    if parked:
        log.warning("timers without payload are put aside", extra={"topic": topic, "count": parked})
    if orphans:
        instruments.orphans(topic, len(orphans))
        log.error(
            "timers removed whose payload has been missing",
            extra={"topic": topic, "timer_ids": [ascii(name) for name in orphans]},
        )
