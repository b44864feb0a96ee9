"""What is written back about a lease, and what the store says to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from relay.core.timers import ClaimedTimer, NewTimer


class Verb(Enum):
    """How a lease ends. RELEASE comes from the relay, all others from the application."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    RESCHEDULE = "reschedule"
    RELEASE = "release"


class Verdict(Enum):
    """What a token was worth: it held; it was stale; the timer is no longer there."""

    OK = "OK"
    STALE = "STALE"
    GONE = "GONE"


class Reason(Enum):
    """Why a timer died: it ran out of attempts, claims or age, or expired; or its application rejected it,
    or said that another attempt is of no use; or no application can be given it."""

    ATTEMPTS = "attempts"
    CLAIMS = "claims"
    AGE = "age"
    EXPIRED = "expired"
    REJECTED = "rejected"
    FAILED = "failed"
    UNREADABLE = "unreadable"


Settled = Verdict | Reason
"""What became of a settlement: the verdict on its token, or the reason of the death that it was."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a topic's policy says of timers that fail. Ages in microseconds; 0: no limit.

    A timer dies of its `max_attempts`-th attempt, of a claim after `max_claims`, and of a further
    attempt `max_age` after its due time. The dead are kept as dead letters if `keep` says so, the
    expired if `keep_expired` does too.
    """

    max_attempts: int = 4_294_967_295
    max_claims: int = 4_294_967_295
    max_age: int = 0
    keep: bool = False
    keep_expired: bool = False


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Which timers to lease, and how: up to `limit`, for `lease` microseconds.

    `nonce` has never been used before, not even by a try of this call that failed. Payloads sum up to about
    `max_bytes`; the first timer is taken whatever its size. Timers that are beyond the `limits` die instead.
    """

    limit: int
    lease: int
    nonce: bytes
    max_bytes: int
    limits: Limits = NO_LIMITS


@dataclass(slots=True)
class Settlement:
    """The end of one lease, to be written by `TimerStore.settle`.

    `retry_after` (microseconds) goes with NACK, where None leaves the timer where its lease ends, and
    with a RELEASE that was received. `received`, `suspect` and `unsent` go with RELEASE: whether the
    application had received the call, so that the attempt counts; whether the next delivery is to go
    alone; whether it was never sent, so that not even the claim counts. `reason` goes with REJECT,
    `error` says why, for the dead letter. `again` goes with RESCHEDULE: the new due time or delay, and,
    if `new_content`, the new payload, headers and content type.
    """

    timer_id: str
    nonce: bytes
    verb: Verb
    retry_after: int | None = None
    received: bool = False
    suspect: bool = False
    unsent: bool = False
    reason: Reason = Reason.REJECTED
    error: str = ""
    again: NewTimer | None = None
    new_content: bool = False


class Acknowledged(NamedTuple):
    """Timers whose leases end by an ACK, as most do, and have one nonce."""

    nonce: bytes
    timer_ids: Sequence[str]


def one_by_one(
    settlements: Iterable[Settlement], acknowledged: Iterable[Acknowledged]
) -> Iterator[Settlement]:
    """All as settlements, in the order in which `LeaseSource.settle` answers."""
    yield from settlements
    for nonce, timer_ids in acknowledged:
        for timer_id in timer_ids:
            yield Settlement(timer_id, nonce, Verb.ACK)


@dataclass(frozen=True, slots=True)
class Again:
    """A new due time (`due`, or `delay` in microseconds from now) and, if it is not None, a new payload."""

    due: int | None = None
    delay: int | None = None
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What an application says of a delivery as its handler is done.

    `retry_after` (microseconds) goes with NACK; None leaves it to the topic's retry policy. `reason`
    goes with REJECT, `error` with NACK and REJECT, `again` with RESCHEDULE.
    """

    verb: Verb
    retry_after: int | None = None
    reason: Reason = Reason.REJECTED
    error: str = ""
    again: Again | None = None

    def settlement(self, timer: ClaimedTimer, nonce: bytes, wait: Callable[[], int]) -> Settlement:
        """The same for the store; of the timer, what is not given anew stays.

        `wait` answers the pause (microseconds) of a NACK that names none.
        """
        retry_after, again = self.retry_after, None
        if self.verb is Verb.NACK and retry_after is None:
            retry_after = wait()
        if self.again is not None:
            again = NewTimer(
                timer.timer_id,
                timer.payload if self.again.payload is None else self.again.payload,
                self.again.due,
                self.again.delay,
                timer.headers,
                timer.content_type,
            )
        return Settlement(
            timer.timer_id,
            nonce,
            self.verb,
            retry_after,
            reason=self.reason,
            error=self.error,
            again=again,
            new_content=self.again is not None and self.again.payload is not None,
        )


ACKED = Ending(Verb.ACK)


@dataclass(frozen=True, slots=True)
class Extension:
    """A lease to be renewed; `received` records the application's receipt in the same step."""

    timer_id: str
    nonce: bytes
    received: bool = False
