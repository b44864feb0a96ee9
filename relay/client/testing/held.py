"""One delivery in memory: its lease, and the effect of its handler's outcome on its timer."""

from __future__ import annotations

from datetime import timedelta

from relay.api import frames, times, translate
from relay.client import arguments
from relay.client.errors import UsageError
from relay.client.handling import settlements
from relay.client.handling.lease import DeliveryLease
from relay.client.handling.reported_problems import TokenBook
from relay.client.testing.records import Delivered, Outcome
from relay.client.testing.service import MemoryState, at_once
from relay.core.errors import InvalidField
from relay.core.instants import SECOND, micros
from relay.core.outcomes import Ending, Extension, Settled, Settlement, Verb, Verdict, spent
from relay.core.policy import HandlerPolicy, RetryPolicy
from relay.engine.delivery.leases import Lease as Claimed
from relay.v1 import delivery_service_pb2 as pb

LONGEST = 1.0
"""The share of the longest wait that is taken; a real relay takes a random time between 0 and the longest."""

_OUTCOMES = {
    pb.OUTCOME_ACK: Outcome.ACK,
    pb.OUTCOME_NACK: Outcome.NACK,
    pb.OUTCOME_REJECT: Outcome.REJECT,
    pb.OUTCOME_RESCHEDULE: Outcome.RESCHEDULE,
}
_PROBLEMS: dict[Settled, tuple[pb.ProblemReason, str]] = {
    Verdict.STALE: (pb.PROBLEM_REASON_STALE, "the lease is lost: the timer was rescheduled"),
    Verdict.GONE: (pb.PROBLEM_REASON_GONE, "the timer is no longer there"),
}


class HeldDelivery:
    """One delivery, which its lease takes for a stream; `ended` is set once its end is stored, `closed` once
    the relay that has delivered it is gone."""

    closed = False
    ended = False

    def __init__(
        self,
        state: MemoryState,
        claimed: Claimed,
        book: TokenBook,
        asked: pb.HandlerSettings | None,
        *,
        pushed: bool,
    ) -> None:
        self.topic = claimed.topic
        self.nonce = claimed.nonce
        self.book = book
        self.deadline = claimed.deadline_time
        self.lease = DeliveryLease(frames.deliveries([claimed]).deliveries[0], self)
        self._state = state
        self._handler = state.policy.narrowed(_read(asked))
        self.silent_until = self._silence_ends()
        self._timer = claimed.timer
        self._pushed = pushed
        self._at = arguments.from_micros(state.clock)
        self._outcome: Outcome | None = None
        self._retry_after: timedelta | None = None
        self._reason = ""
        self._void = False

    def renew(self) -> bool:
        """Renew the lease; return whether it holds."""
        lease = micros(self._state.policy.lease_ttl)
        extension = Extension(timer_id=self.lease.message.timer_id, nonce=self.nonce, received=True)
        (verdict,) = at_once(self._state.store.extend(self.topic, [extension], lease=lease))
        self.deadline = max(self.deadline, self._state.clock + lease)
        if verdict is not Verdict.OK:
            self._refused(*_PROBLEMS[verdict])
        return verdict is Verdict.OK

    def settle(self, token: bytes, settlement: pb.Settlement) -> HeldDelivery | None:
        """See `Stream.settle`. The outcome is in the store when this returns. Raises `UsageError`."""
        if self.closed:
            return None
        with self._state.lock:
            if settlement is settlements.EXTEND:
                if self._pushed:
                    raise UsageError("a pushed delivery can't be extended: its call has delivery_timeout")
                self.silent_until = self._silence_ends()
                self.renew()
            else:
                self._end(settlement)
        return self

    def _end(self, settlement: pb.Settlement) -> None:
        self._outcome = _OUTCOMES[settlement.outcome]
        self._reason = settlement.reason
        if settlement.HasField("retry_after"):
            pause = times.length("retry_after", settlement.retry_after)
            self._retry_after = timedelta(microseconds=pause)
        try:
            ending = translate.ending(settlement, self._state.policy.max_payload_bytes)
        except InvalidField as failure:
            self._refused(pb.PROBLEM_REASON_INVALID, str(failure))
            self._void = True
            if not self._pushed:
                return  # it stays leased, as if there had been no outcome
            ending = Ending(Verb.NACK, error=str(failure))
        self._write(ending)

    def _write(self, ending: Ending) -> None:
        store, policy, attempt = self._state.store, self._state.policy, self.lease.message.attempt
        if ending.verb is Verb.NACK and 0 < self._handler.max_attempts <= attempt:
            ending = spent(ending.error)
        retry = self._handler.backoff or policy.retry
        ending = ending.of(self._timer, lambda: retry.delay(attempt, LONGEST))
        settlement = Settlement(self.nonce, ending, [self._timer.timer_id])
        (settled,) = at_once(store.settle(self.topic, [settlement], limits=policy.limits))
        if settled in _PROBLEMS:
            self._refused(*_PROBLEMS[settled])
            self._void = True
        self.ended = True

    async def wait(self) -> bool:
        """Return true: it is written."""
        return True

    def finished(self, lease: DeliveryLease) -> None:
        """Do nothing: the code that runs the handler knows."""

    def delivered(self) -> Delivered:
        """Return what became of the delivery so far."""
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

    def _refused(self, reason: pb.ProblemReason, words: str) -> None:
        self.book.report([pb.Problem(token=self.lease.message.token, reason=reason, message=words)])

    def _silence_ends(self) -> int:
        return self._state.clock + micros(self._state.policy.delivery_timeout)


def _read(asked: pb.HandlerSettings | None) -> HandlerPolicy:
    if asked is None:
        return HandlerPolicy()
    wait = asked.backoff
    backoff = RetryPolicy(
        initial=times.length("initial", wait.initial) / SECOND,
        multiplier=wait.multiplier,
        max=times.length("max", wait.max) / SECOND,
    )
    return HandlerPolicy(asked.max_attempts, backoff if asked.HasField("backoff") else None)
