"""The records of deliveries and deaths that a test gets."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta


class Outcome(enum.Enum):
    """What became of a delivery."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    RESCHEDULE = "reschedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One delivery of a handler, as it was when the handler ended."""

    topic: str
    timer_id: str
    attempt: int
    occurrence_id: str
    at: datetime
    """When it was delivered, by the clock of the relay in memory, as an aware datetime in UTC."""
    outcome: Outcome | None
    """The outcome; None under `AckPolicy.MANUAL` while nobody has settled the delivery."""
    retry_after: timedelta | None
    reason: str
    """The reason as it goes to the relay's log; for an exception, its class."""
    void: bool
    """Whether the outcome changed nothing: the timer was rescheduled or cancelled meanwhile, or
    the relay refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A timer that is never delivered again; with a real relay it would be a dead letter now."""

    topic: str
    timer_id: str
    reason: str
    """Why it died, as in a dead letter: `attempts`, `age`, `expired`, `rejected` or `failed`."""
    attempts: int
    """The number of attempts that had counted."""
    due_time: datetime
    at: datetime
    """When it died, by the clock of the relay in memory, as an aware datetime in UTC."""
    last_error: str
    """The reason in the outcome of which it died; empty if it did not die of an outcome."""
