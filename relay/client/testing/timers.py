"""The relay's side in memory: a clock that a test moves, claims, leases, outcomes."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta

from relay.api import times
from relay.client import arguments
from relay.client.errors import UsageError
from relay.client.handling.handlers import Registration
from relay.client.handling.reported_problems import TokenBook
from relay.client.testing.held import HeldDelivery
from relay.client.testing.records import Died
from relay.client.testing.service import MemoryService, MemoryState, at_once
from relay.core.instants import micros
from relay.core.journal import Journals
from relay.core.life import Effect
from relay.core.outcomes import ClaimRequest, Reason, nonces
from relay.core.partitions import Layout
from relay.core.policy import TopicPolicy
from relay.engine.delivery.leases import Leases
from relay.store.memory import MemoryStore

MAX_DELIVERIES = 10_000
"""The most deliveries of one move of the clock; more means that a handler makes timers due without end."""

MAX_TICKS = 100_000
"""The most ticks of recurrences in one move of the clock: a test that waits for more is stuck."""


class MemoryTimers:
    """All timers, the clock, and which timers died. `policy` is that of every topic."""

    def __init__(self, now: datetime | None, policy: TopicPolicy) -> None:
        start = arguments.to_timestamp(datetime.now(UTC) if now is None else now, "now")
        store = MemoryStore(
            lambda: self._state.clock, journals=Journals(lambda _: policy.journal_keeps), died=self._died
        )
        self._state = MemoryState(times.instant("now", start), store, policy, threading.RLock())
        self.service = MemoryService(self._state)
        self._held: list[HeldDelivery] = []
        self.dead: list[Died] = []
        self._nonce = nonces()
        self._books: dict[str, TokenBook] = {}
        self._busy = False
        self._ticks = 0
        """The ticks of this move of the clock."""

    @property
    def now(self) -> datetime:
        """Return the time by the clock."""
        return arguments.from_micros(self._state.clock)

    def deliveries(
        self, registrations: Mapping[str, tuple[Registration, bool]], length: int
    ) -> Generator[tuple[Registration, HeldDelivery], None, None]:
        """Move the clock on by `length` (microseconds), and yield each delivery at its time.

        The caller runs its handler before it asks for the next one. `registrations` has the handler of each
        topic and whether it is pushed to. Raises `UsageError`.
        """
        if self._busy:
            raise UsageError("a handler can't move the clock that it was called by")
        self._busy = True
        self._ticks = 0
        until = self._state.clock + length
        try:
            for count in range(MAX_DELIVERIES + 1):
                held = self._next(registrations, until)
                if held is None:
                    return
                if count == MAX_DELIVERIES:
                    raise UsageError(
                        f"{MAX_DELIVERIES:,} deliveries in one go: do handlers make timers due without end? "
                        "Where a recurrence makes as many, move the clock in smaller steps"
                    )
                yield registrations[held.topic][0], held
                held.book.end(held.lease)
        finally:
            self._busy = False

    def stand_still(self, length: int) -> None:
        """Move the clock on by `length` (microseconds) while nothing happens: no tick, no delivery; leases
        run out. Raises `UsageError`."""
        if self._busy:
            raise UsageError("a handler can't move the clock that it was called by")
        with self._state.lock:
            for held in self._held:
                held.closed = True
            self._held = []
            self._state.clock += length

    def _next(
        self, registrations: Mapping[str, tuple[Registration, bool]], until: int
    ) -> HeldDelivery | None:
        state = self._state
        with state.lock:
            while True:
                heads = [(head, topic) for topic in registrations if (head := self._head(topic)) is not None]
                self._held = [held for held in self._held if not held.ended]
                deadlines = [held.deadline for held in self._held]
                tick = state.recurring.next() if state.recurring else None
                ticks = [] if tick is None else [tick]
                first = min([*(head for head, _ in heads), *deadlines, *ticks], default=None)
                if first is None or first > until:
                    state.clock = max(state.clock, until)
                    return None
                state.clock = max(state.clock, first)
                if tick is not None and tick <= state.clock:
                    self._tick()
                    continue
                if any(deadline <= state.clock for deadline in deadlines):
                    self._keep_leases()
                    continue
                _, topic = min(heads)
                if (held := self._claim(topic, *registrations[topic])) is not None:
                    return held

    def _tick(self) -> None:
        assert self._state.recurring is not None
        self._ticks += self._state.recurring.tick()
        if self._ticks > MAX_TICKS:
            raise UsageError(f"{MAX_TICKS:,} ticks of recurrences in one go: move the clock in smaller steps")

    def _head(self, topic: str) -> int | None:
        page = at_once(self._state.store.list(Layout(topic), state=None, limit=1, cursor=""))
        return page.timers[0].next_claim if page.timers else None

    def _keep_leases(self) -> None:
        """Renew as the relay's lease keeper does, unless the delivery has been silent for too long."""
        clock = self._state.clock
        self._held = [
            held
            for held in self._held
            if held.deadline > clock or (clock < held.silent_until and held.renew())
        ]

    def _claim(self, topic: str, registration: Registration, pushed: bool) -> HeldDelivery | None:
        """Claim the first timer; return None if it died of that."""
        store, policy = self._state.store, self._state.policy
        nonce, lease = self._nonce(), micros(policy.lease_ttl)
        claim = at_once(
            store.claim(
                topic, ClaimRequest(limit=1, lease=lease, nonce=nonce, max_bytes=1, limits=policy.limits)
            )
        )
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
        held = HeldDelivery(self._state, claimed, book, registration.asked, pushed=pushed)
        held.renew()  # the receipt: a renewal with a flag, after which a lapse counts
        self._held.append(held)
        book.add(held.lease)
        return held

    def _died(self, topic: str, timer_id: str, effect: Effect) -> None:
        assert isinstance(effect.answer, Reason)
        assert effect.record is not None
        self.dead.append(
            Died(
                topic=topic,
                timer_id=timer_id,
                reason=effect.answer.value,
                attempts=effect.record.attempts,
                due_time=arguments.from_micros(effect.record.due),
                at=self.now,
                last_error=effect.error,
            )
        )


def span(delta: timedelta | None, days: float, hours: float, minutes: float, seconds: float) -> int:
    """Turn a length of time, 0 or more, into microseconds. Raises `UsageError`."""
    whole = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (delta or timedelta())
    if whole < timedelta(0):
        raise UsageError("the clock only goes forward")
    return whole // timedelta(microseconds=1)
