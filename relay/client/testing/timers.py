"""The relay's side in memory: a clock that a test moves, claims, leases, outcomes."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta

from relay.api import translate
from relay.client import arguments
from relay.client.errors import UsageError
from relay.client.handling.handlers import Registration
from relay.client.handling.reported_problems import TokenBook
from relay.client.testing.held import HeldDelivery
from relay.client.testing.records import Died
from relay.client.testing.service import MemoryService, at_once
from relay.core.instants import micros
from relay.core.nonce import nonces
from relay.core.policy import TopicPolicy
from relay.core.timers import TimerState
from relay.engine.delivery.leases import Leases
from relay.store.memory import MemoryStore

MAX_DELIVERIES = 10_000
"""In one go; more means that a handler makes timers due for ever."""


class MemoryTimers:
    """All timers, the clock, and which timers died. `policy` is that of every topic."""

    def __init__(self, now: datetime | None, policy: TopicPolicy) -> None:
        start = arguments.to_timestamp(datetime.now(UTC) if now is None else now, "now")
        self.clock = translate.instant("now", start)
        self.lock = threading.RLock()
        self.policy = policy
        self.store = MemoryStore(lambda: self.clock)
        self.service = MemoryService(self.store, self.lock, policy)
        self.held: dict[bytes, HeldDelivery] = {}
        self.dead: list[Died] = []
        self._nonce = nonces()
        self._books: dict[str, TokenBook] = {}
        self._busy = False

    @property
    def now(self) -> datetime:
        """What the clock says."""
        return arguments.from_micros(self.clock)

    def deliveries(
        self, registrations: Mapping[str, tuple[Registration, bool]], until: int
    ) -> Generator[tuple[Registration, HeldDelivery], None, None]:
        """Move the clock to `until`, and on the way give out each delivery at its time.

        Before the next one is asked for, its handler is run. `registrations` tell, by topic, the
        handler and whether it is pushed to.
        """
        if self._busy:
            raise UsageError("a handler can't move the clock that it was called by")
        self._busy = True
        try:
            for count in range(MAX_DELIVERIES + 1):
                held = self._next(registrations, until)
                if held is None:
                    return
                if count == MAX_DELIVERIES:
                    raise UsageError(
                        f"{MAX_DELIVERIES:,} deliveries in one go: do handlers make timers due for ever?"
                    )
                yield registrations[held.topic][0], held
                held.book.end(held.lease)
        finally:
            self._busy = False

    def _next(
        self, registrations: Mapping[str, tuple[Registration, bool]], until: int
    ) -> HeldDelivery | None:
        with self.lock:
            while True:
                heads = [(head, topic) for topic in registrations if (head := self._head(topic)) is not None]
                deadlines = [held.deadline for held in self.held.values()]
                first = min([*(head for head, _ in heads), *deadlines], default=None)
                if first is None or first > until:
                    self.clock = max(self.clock, until)
                    return None
                self.clock = max(self.clock, first)
                if any(deadline <= self.clock for deadline in deadlines):
                    self._keep_leases()
                    continue
                _, topic = min(heads)
                if (held := self._claim(topic, pushed=registrations[topic][1])) is not None:
                    return held

    def _head(self, topic: str) -> int | None:
        page = at_once(self.store.list(topic, state=None, limit=1, cursor=""))
        return page.timers[0].next_claim if page.timers else None

    def _keep_leases(self) -> None:
        """As the relay's lease keeper does: renew, unless the delivery has been silent for too long."""
        for held in list(self.held.values()):
            if held.deadline <= self.clock and (self.clock >= held.silent_until or not held.renew()):
                del self.held[held.nonce]

    def _claim(self, topic: str, *, pushed: bool) -> HeldDelivery | None:
        """Claim the first timer; None if it died of that."""
        (head,) = at_once(self.store.list(topic, state=None, limit=1, cursor="")).timers
        nonce, lease = self._nonce(), micros(self.policy.lease_ttl)
        claim = at_once(
            self.store.claim(topic, limit=1, lease=lease, nonce=nonce, max_bytes=1, limits=self.policy.limits)
        )
        for timer_id, reason in claim.deaths:
            attempts = head.attempts + (head.state is TimerState.LEASED)  # which lapsed, and counts
            due = arguments.from_micros(head.due)
            self.died(topic, timer_id, reason, attempts=attempts, due_time=due)
        if not claim.timers:
            return None
        (claimed,) = Leases.of(
            topic,
            claim.timers,
            nonce,
            deadline_time=claim.deadline,
            deadline=0.0,
            silent_until=0.0,
            epoch=0.0,
        )
        book = self._books.setdefault(topic, TokenBook(topic))
        held = HeldDelivery(self, claimed, book, pushed=pushed)
        held.renew()  # the receipt: a renewal with a flag, after which a lapse counts
        self.held[nonce] = held
        book.add(held.lease)
        return held

    def died(
        self, topic: str, timer_id: str, reason: str, *, attempts: int, due_time: datetime, error: str = ""
    ) -> None:
        """Note a death."""
        self.dead.append(
            Died(
                topic=topic,
                timer_id=timer_id,
                reason=reason,
                attempts=attempts,
                due_time=due_time,
                at=self.now,
                last_error=error,
            )
        )


def span(delta: timedelta | None, days: float, hours: float, minutes: float, seconds: float) -> int:
    """A length of time as microseconds; not negative."""
    whole = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (delta or timedelta())
    if whole < timedelta(0):
        raise UsageError("the clock only goes forward")
    return whole // timedelta(microseconds=1)
