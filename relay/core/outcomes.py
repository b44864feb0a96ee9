"""What is written about a lease, and the store's answers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count

from relay.core.timers import ClaimedTimer, Content


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
    said that another attempt would not help; or no application can be given it, or ever again, since its
    subject was forgotten."""

    ATTEMPTS = "attempts"
    CLAIMS = "claims"
    AGE = "age"
    EXPIRED = "expired"
    REJECTED = "rejected"
    FAILED = "failed"
    UNREADABLE = "unreadable"
    FORGOTTEN = "forgotten"


NOT_GIVEN = frozenset((Reason.UNREADABLE, Reason.FORGOTTEN))
"""The reasons of what dies unread: no application was given it."""


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
    A timer whose time has come is left to other relays for `behind` microseconds.
    """

    limit: int
    lease: int
    nonce: bytes
    max_bytes: int
    limits: Limits = NO_LIMITS
    behind: int = 0


def nonces(instance: bytes | None = None) -> Callable[[], bytes]:
    """Return a source of 16-byte nonces: 8 random bytes of this instance and a sequence.

    They never repeat within an instance; two instances share one with a chance of 2^-64.
    """
    prefix = secrets.token_bytes(8) if instance is None else instance
    sequence = count(1)
    return lambda: prefix + next(sequence).to_bytes(8, "big")


@dataclass(frozen=True, slots=True)
class Again:
    """A new due time (`due`, or `delay` in microseconds from now) and, if it is not None, a new content,
    which is sealed with a subject's key if `sealed_with` has the id of one."""

    due: int | None = None
    delay: int | None = None
    content: Content | None = None
    sealed_with: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a lease ends.

    `retry_after` (microseconds) goes with NACK, and with a RELEASE that was received, or never sent. These go
    with RELEASE:
    `received`, the application had received the call, so the attempt counts; `broken`, its stream broke, so
    the timer goes alone if it was lost before; `suspect`, it goes alone in any case; `unsent`, it was never
    sent, so not even the claim counts. `reason` goes with REJECT; `error` says why, for the dead letter.
    `again` goes with RESCHEDULE.

    What an application says is an ending, too: there a NACK without `retry_after` leaves the pause to the
    topic's retry policy, and a new content has no more than its payload. `of` completes it. A store makes the
    timer of a NACK without `retry_after` due when its lease would end.
    """

    verb: Verb
    retry_after: int | None = None
    received: bool = False
    broken: bool = False
    suspect: bool = False
    unsent: bool = False
    reason: Reason = Reason.REJECTED
    error: str = ""
    again: Again | None = None

    def of(self, timer: ClaimedTimer, wait: Callable[[], int]) -> Ending:
        """Return what the store is to write of this timer when its application says this.

        `wait` returns the pause (microseconds) of a NACK that names none. Headers, content type and subject
        stay.
        """
        if self.verb is Verb.NACK and self.retry_after is None:
            return Ending(Verb.NACK, retry_after=wait(), error=self.error)
        if self.again is None or self.again.content is None:
            return self
        content = Content.of(timer)._replace(payload=self.again.content.payload)
        return replace(self, again=replace(self.again, content=content, sealed_with=timer.sealed_with))


ACKED = Ending(Verb.ACK)


def spent(error: str) -> Ending:
    """Return the end of a timer whose last attempt, by its handler's own count, has failed."""
    return Ending(Verb.REJECT, reason=Reason.ATTEMPTS, error=error)


@dataclass(slots=True)
class Settlement:
    """Timers whose leases were taken under one nonce and end alike, to be written by `LeaseSource.settle`.

    `proofs` are the timers' where they prove the leases; see `ClaimedTimer.proof`.
    """

    nonce: bytes
    ending: Ending
    timer_ids: Sequence[str]
    proofs: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Extension:
    """A lease to be renewed; `received` records the application's receipt in the same step."""

    timer_id: str
    nonce: bytes
    received: bool = False
