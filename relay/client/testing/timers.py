"""The relay's side in memory: a clock that a test moves, claims, leases, outcomes."""

from __future__ import annotations

import enum
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration

from relay.client import arguments
from relay.client.errors import UsageError
from relay.client.handlers import Registration
from relay.client.lease import Lease
from relay.client.problems import TokenBook
from relay.client.testing.service import MemoryService, at_once
from relay.core.instants import micros
from relay.core.nonce import nonces
from relay.core.outcomes import Extension, Settlement, Verb, Verdict
from relay.core.policy import TopicPolicy
from relay.engine.lease import Lease as Claimed
from relay.rpc import translate
from relay.store.memory import MemoryStore
from relay.v1 import delivery_service_pb2 as pb

MAX_DELIVERIES = 10_000
"""In one go; more means that a handler makes timers due for ever."""


class Outcome(enum.Enum):
    """What became of a delivery."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One delivery that a handler had, as it stood when the handler ended."""

    topic: str
    timer_id: str
    attempt: int
    occurrence_id: str
    at: datetime
    """When, by the clock of the relay in memory: aware, UTC."""
    outcome: Outcome | None
    """None under `AckPolicy.MANUAL`, where nobody has settled it yet."""
    retry_after: timedelta | None
    reason: str
    """As it goes to the relay's log; of an exception, its class."""
    void: bool
    """Whether the outcome changed nothing: the timer was rescheduled or cancelled meanwhile."""


_OUTCOMES = {
    pb.OUTCOME_ACK: (Verb.ACK, Outcome.ACK),
    pb.OUTCOME_NACK: (Verb.NACK, Outcome.NACK),
    pb.OUTCOME_REJECT: (Verb.REJECT, Outcome.REJECT),
}
_PROBLEMS = {
    Verdict.STALE: (pb.PROBLEM_REASON_STALE, "the lease is lost: the timer was rescheduled"),
    Verdict.GONE: (pb.PROBLEM_REASON_GONE, "the timer is no longer there"),
}


class MemoryTimers:
    """All timers, and the clock. `policy` gives `lease_ttl`, `delivery_timeout`, payload size."""

    def __init__(self, now: datetime | None, policy: TopicPolicy) -> None:
        start = arguments.to_timestamp(datetime.now(UTC) if now is None else now, "now")
        self.clock = translate.instant("now", start)
        self.lock = threading.RLock()
        self.policy = policy
        self.store = MemoryStore(lambda: self.clock)
        self.service = MemoryService(self.store, self.lock, policy.max_payload_bytes)
        self.held: dict[bytes, Held] = {}
        self._nonce = nonces()
        self._books: dict[str, TokenBook] = {}
        self._busy = False

    @property
    def now(self) -> datetime:
        """What the clock says."""
        return arguments.to_datetime(translate.timestamp(self.clock))

    def deliveries(
        self, registrations: Mapping[str, tuple[Registration, bool]], until: int
    ) -> Generator[tuple[Registration, Held], None, None]:
        """Move the clock to `until`, and on the way give out each delivery at its time.

        Before the next one is asked for, its handler is run. `registrations` tell, by topic, the
        handler and whether it may extend.
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

    def _next(self, registrations: Mapping[str, tuple[Registration, bool]], until: int) -> Held | None:
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
                return self._claim(topic, may_extend=registrations[topic][1])

    def _head(self, topic: str) -> int | None:
        page = at_once(self.store.list(topic, state=None, limit=1, cursor=""))
        return page.timers[0].next_claim if page.timers else None

    def _keep_leases(self) -> None:
        """As the relay's lease keeper does: renew, unless the delivery has been silent for too long."""
        for held in list(self.held.values()):
            if held.deadline <= self.clock and (self.clock >= held.silent_until or not held.renew()):
                del self.held[held.nonce]

    def _claim(self, topic: str, *, may_extend: bool) -> Held:
        nonce = self._nonce()
        claim = at_once(
            self.store.claim(topic, limit=1, lease=micros(self.policy.lease_ttl), nonce=nonce, max_bytes=1)
        )
        (timer,) = claim.timers
        frame = translate.deliveries([Claimed(topic, timer, nonce, nonce, 0.0, claim.deadline, 0.0)])
        book = self._books.setdefault(topic, TokenBook(topic))
        held = Held(self, frame.deliveries.deliveries[0], book, claim.deadline, may_extend=may_extend)
        held.renew()  # the receipt: a renewal with a flag, after which a lapse counts
        self.held[nonce] = held
        book.add(held.lease)
        return held


class Held:
    """One delivery, and what its lease sees of the stream that it came by."""

    closed = False

    def __init__(
        self, timers: MemoryTimers, message: pb.Delivery, book: TokenBook, deadline: int, *, may_extend: bool
    ) -> None:
        self.topic = message.topic
        self.nonce = message.token
        self.book = book
        self.deadline = deadline
        self.lease = Lease(message, self)
        self.silent_until = self._silence_ends(timers)
        self._timers = timers
        self._may_extend = may_extend
        self._at = timers.now
        self._outcome: Outcome | None = None
        self._retry_after: timedelta | None = None
        self._reason = ""
        self._void = False

    def renew(self) -> bool:
        """Renew the lease; tell whether it holds."""
        timers, lease = self._timers, micros(self._timers.policy.lease_ttl)
        extension = Extension(self.lease.message.timer_id, self.nonce, received=True)
        (verdict,) = at_once(timers.store.extend(self.topic, [extension], lease=lease))
        self.deadline = max(self.deadline, timers.clock + lease)
        return self._holds(verdict)

    def settle(self, token: bytes, outcome: pb.Outcome, retry_after: Duration | None, reason: str) -> Held:
        """See `Stream.settle`; the outcome is in the store when this returns."""
        with self._timers.lock:
            if outcome == pb.OUTCOME_EXTEND:
                if not self._may_extend:
                    raise UsageError("a pushed delivery can't be extended: its call has delivery_timeout")
                self.silent_until = self._silence_ends(self._timers)
                self.renew()
                return self
            verb, self._outcome = _OUTCOMES[outcome]
            self._reason = reason
            pause = None if retry_after is None else translate.length("retry_after", retry_after)
            self._retry_after = None if pause is None else timedelta(microseconds=pause)
            settlement = Settlement(self.lease.message.timer_id, token, verb, pause)
            (verdict,) = at_once(self._timers.store.settle(self.topic, [settlement]))
            self._void = not self._holds(verdict)
            self._timers.held.pop(token, None)
        return self

    async def wait(self) -> bool:
        """It is written."""
        return True

    def finished(self, lease: Lease) -> None:
        """Nothing: whoever runs the handler knows."""

    def delivered(self) -> Delivered:
        """What became of it, so far."""
        message = self.lease.message
        return Delivered(
            topic=message.topic,
            timer_id=message.timer_id,
            attempt=message.attempt,
            occurrence_id=message.occurrence_id,
            at=self._at,
            outcome=self._outcome,
            retry_after=self._retry_after,
            reason=self._reason,
            void=self._void,
        )

    def _holds(self, verdict: Verdict) -> bool:
        if verdict is Verdict.OK:
            return True
        reason, words = _PROBLEMS[verdict]
        self.book.report([pb.Problem(token=self.nonce, reason=reason, message=words)])
        return False

    @staticmethod
    def _silence_ends(timers: MemoryTimers) -> int:
        return timers.clock + micros(timers.policy.delivery_timeout)


def span(delta: timedelta | None, days: float, hours: float, minutes: float, seconds: float) -> int:
    """A length of time as microseconds; not negative."""
    whole = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) + (delta or timedelta())
    if whole < timedelta(0):
        raise UsageError("the clock only goes forward")
    return whole // timedelta(microseconds=1)
