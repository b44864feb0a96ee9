"""What the ledger knows of a timer, of a token, and of a dead letter."""

from __future__ import annotations

from dataclasses import dataclass

from relay.core.outcomes import Limits, Reason


@dataclass(slots=True, eq=False)
class Intent:
    """A timer as somebody last asked for it.

    Of a `foreign` one, in which a worker that keeps no records has taken part, relays may know a later due
    time and fewer attempts than there were; of a `hidden` one nothing but that it is there.
    """

    due: int
    payload: bytes
    not_before: int
    expires: int | None = None
    attempts: int = 0
    claims: int = 0
    occurrence: str = ""
    seen: bool = False  # a relay stored or delivered it
    foreign: bool = False
    hidden: bool = False  # relays can't tell it from the intent before

    def fate(self, at: int, limits: Limits) -> Reason | None:
        """Why it is not to be delivered at an instant."""
        if self.attempts >= limits.max_attempts:
            return Reason.ATTEMPTS
        if self.claims >= limits.max_claims:
            return Reason.CLAIMS
        too_old = limits.max_age and self.attempts and at - self.due > limits.max_age
        return Reason.AGE if too_old else None

    def expired(self, now: int) -> bool:
        return self.expires is not None and now >= self.expires

    def may_die_of(self, reason: Reason, at: int, limits: Limits) -> bool:
        """Whether it is true of a foreign one, of which relays know less than we do."""
        return {
            Reason.EXPIRED: self.expired(at),
            Reason.ATTEMPTS: self.attempts >= limits.max_attempts,
            Reason.CLAIMS: self.claims >= limits.max_claims,
            Reason.AGE: limits.max_age > 0 and at - self.due > limits.max_age,
        }[reason]


@dataclass(slots=True, eq=False)
class Token:
    """What one claim handed out for one timer."""

    timer_id: str
    nonce: bytes
    deadline: int
    received: bool = False


@dataclass(slots=True, eq=False)
class Grave:
    """A dead letter that must be there."""

    timer_id: str
    intent: Intent
    reason: Reason
    died: int
    error: str = ""
