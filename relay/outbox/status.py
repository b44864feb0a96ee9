"""How an outbox stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """`waiting` rows are on their way, `blocked` ones wait behind a refused row of their timer. `lag` is the
    age of the oldest that waits, in seconds."""

    waiting: int
    blocked: int
    refused: int
    lag: float


class RefusedRow(NamedTuple):
    """A row that a relay has refused for good, and the reason that it gave."""

    id: int
    action: str
    topic: str
    timer_id: str
    refused_at: datetime
    reason: str
