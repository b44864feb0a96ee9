"""What a test is told of deliveries and deaths."""

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
    """Whether the outcome changed nothing: the timer was rescheduled or cancelled meanwhile, or
    the relay refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """A timer that is never delivered again; with a real relay it would be a dead letter now."""

    topic: str
    timer_id: str
    reason: str
    """As in a dead letter: `attempts`, `age`, `expired`, `rejected` or `failed`."""
    attempts: int
    """How many had counted."""
    due_time: datetime
    at: datetime
    """When it died, by the clock of the relay in memory: aware, UTC."""
    last_error: str
    """What its application said in the outcome that it died of; empty if it died of none."""
