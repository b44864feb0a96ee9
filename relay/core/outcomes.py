"""What is written about a lease, and the store's answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import NamedTuple

from relay.core.timers import ClaimedTimer, Content, NewTimer


class Verb(Enum):
    """How a lease ends. RELEASE comes from the relay, all others from the application."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    RESCHEDULE = "reschedule"
    RELEASE = "release"


class Verdict(Enum):
    """The verdict on a token: it was valid, it was stale, or the timer is no longer there."""

    OK = "OK"
    STALE = "STALE"
    GONE = "GONE"


class Reason(Enum):
    """Why a timer died: it ran out of attempts, claims or age, or it expired; its application rejected it, or
    said that another attempt would not help; or no application can be given it."""

    ATTEMPTS = "attempts"
    CLAIMS = "claims"
    AGE = "age"
    EXPIRED = "expired"
    REJECTED = "rejected"
    FAILED = "failed"
    UNREADABLE = "unreadable"


Settled = Verdict | Reason
"""The result of a settlement: the verdict on its token, or the reason if it was a death."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A topic's limits for timers that fail. Ages are in microseconds; 0 means no limit.

    A timer dies of its `max_attempts`-th attempt, of a claim after `max_claims`, and of a further
    attempt `max_age` after its due time. Dead timers are kept as dead letters if `keep` is set, expired
    ones if `keep_expired` is set, too.
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


def nonces(instance: bytes | None = None) -> Callable[[], bytes]:
    """Return a source of 16-byte nonces: 8 random bytes of this instance and a sequence.

    They never repeat within an instance; two instances share one with a chance of 2^-64.
    """
    prefix = secrets.token_bytes(8) if instance is None else instance
    sequence = count(1)
    return lambda: prefix + next(sequence).to_bytes(8, "big")


@dataclass(slots=True)
class Settlement:
    """The end of one lease, to be written by `TimerStore.settle`.

    `retry_after` (microseconds) goes with NACK, where None makes the timer due when its lease would end, and
    with a RELEASE that was received. `received`, `suspect` and `unsent` go with RELEASE: whether the
    application had received the call, so that the attempt counts; whether the next delivery goes
    alone; whether it was never sent, so that not even the claim counts. `reason` goes with REJECT;
    `error` says why, for the dead letter. `again` goes with RESCHEDULE: the new due time or delay, and
    with `new_content` the new payload, headers and content type.
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
    """Timers with one nonce whose leases end by an ACK, as most do."""

    nonce: bytes
    timer_ids: Sequence[str]


def one_by_one(
    settlements: Iterable[Settlement], acknowledged: Iterable[Acknowledged]
) -> Iterator[Settlement]:
    """Return all as settlements, in the order of the answer of `LeaseSource.settle`."""
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
    """The outcome that an application gives when its handler is done.

    `retry_after` (microseconds) goes with NACK; None leaves it to the topic's retry policy. `reason`
    goes with REJECT, `error` with NACK and REJECT, `again` with RESCHEDULE.
    """

    verb: Verb
    retry_after: int | None = None
    reason: Reason = Reason.REJECTED
    error: str = ""
    again: Again | None = None

    def settlement(self, timer: ClaimedTimer, nonce: bytes, wait: Callable[[], int]) -> Settlement:
        """Return it for the store. What is not given stays as it was in the timer.

        `wait` returns the pause (microseconds) of a NACK that names none.
        """
        retry_after, again = self.retry_after, None
        if self.verb is Verb.NACK and retry_after is None:
            retry_after = wait()
        if self.again is not None:
            content, payload = Content.of(timer), self.again.payload
            if payload is not None:
                content = content._replace(payload=payload)
            again = NewTimer(
                timer_id=timer.timer_id, due=self.again.due, delay=self.again.delay, **content.fields()
            )
        return Settlement(
            timer_id=timer.timer_id,
            nonce=nonce,
            verb=self.verb,
            retry_after=retry_after,
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
