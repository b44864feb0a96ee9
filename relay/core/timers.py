"""Timers as values: what is asked for, what is stored, what was claimed.

All instants are microseconds since 1970 by the clock of Redis (`relay.core.instants`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

NO_HEADERS: Mapping[str, str] = {}


class TimerState(Enum):
    """Where a timer is in its life."""

    PENDING = "pending"
    LEASED = "leased"


@dataclass(frozen=True, slots=True)
class NewTimer:
    """A timer to be stored. Exactly one of `due` (an instant) and `delay` (microseconds) is set."""

    timer_id: str
    payload: bytes
    due: int | None = None
    delay: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What became of a `NewTimer`: its due time, and whether a timer of its id lived before."""

    due: int
    replaced: bool


@dataclass(frozen=True, slots=True)
class StoredTimer:
    """A timer as it stands.

    `next_claim` is the instant from which it can be claimed: its due time, the end of its lease
    or of a back-off. In a listing payload, headers and content type are left empty.
    """

    timer_id: str
    state: TimerState
    due: int
    next_claim: int
    attempts: int
    payload: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a listing; `cursor` is empty at the end."""

    timers: list[StoredTimer]
    cursor: str


@dataclass(slots=True, eq=False)
class ClaimedTimer:
    """A timer under a lease.

    `attempt` counts from 1 and is what this delivery would be, were it to count. `suspect` marks
    a timer that was in flight when its application's stream broke: it is delivered alone, so
    that what kills an application counts against itself only. `approximate` says that `due` is
    a guess, since a foreign worker held the timer before. `readable` is false where the id is
    not UTF-8: such a timer can't be named to an application.
    """

    timer_id: str
    payload: bytes
    headers: Mapping[str, str]
    content_type: str
    due: int
    attempt: int
    occurrence_id: str
    approximate: bool = False
    suspect: bool = False
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer to one claim call.

    `now` is the server's time, `next` the instant at which the topic's first remaining timer can
    be claimed (None: there is none). `deadline` ends the leases of all `timers`. `parked` counts
    timers put aside because their payload is missing, `orphans` names those removed because it
    still was after the grace period.
    """

    timers: list[ClaimedTimer]
    now: int
    next: int | None
    deadline: int
    parked: int = 0
    orphans: tuple[str, ...] = ()
