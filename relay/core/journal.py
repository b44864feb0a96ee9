"""The journal's values: what has happened to a topic's timers, batch by batch.

`docs/reference/journal.md` tells which kind has which fields. The numbers of the enums are those of
`proto/relay/journal/v1/journal.proto`. All instants are microseconds since 1970 by the clock of Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class RecordKind(IntEnum):
    """What happened."""

    SCHEDULED = 1
    REPLACED = 2
    CLAIMED = 3
    RECEIVED = 4
    EXTENDED = 5
    ACKED = 6
    NACKED = 7
    RELEASED = 8
    RESCHEDULED = 9
    DEAD = 10
    EXPIRED = 11
    REDRIVEN = 12
    CANCELLED = 13
    RUN = 14
    PARKED = 15
    ORPHANED = 16
    TAKEN = 17
    REPAIRED = 18
    STALE = 19
    GONE = 20
    PURGED = 21
    TRIMMED = 22
    PAUSED = 23
    RESUMED = 24
    PROMOTED = 25

    @property
    def ends(self) -> bool:
        """Whether the timer is gone afterwards."""
        return self in _ENDS


_ENDS = {
    RecordKind.ACKED,
    RecordKind.DEAD,
    RecordKind.EXPIRED,
    RecordKind.CANCELLED,
    RecordKind.ORPHANED,
    RecordKind.TAKEN,
    RecordKind.PROMOTED,
}


class Adoption(IntEnum):
    """What the step found a foreign writer to have done before: given a new due time, or leased the timer."""

    INTENT = 1
    LEASE = 2


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One thing that happened to one timer. What its kind has no use for is empty or 0.

    `nonce` is that of the lease that this is about, `occurrence` that of the first claim: both are there
    with CLAIMED. `attempts` and `claims` are what has counted by now. `score` is when the timer is next
    claimed or its lease ends; `expires` is 0 for never. An id that is not UTF-8 comes with surrogate escapes.
    """

    kind: RecordKind
    timer_id: str = ""
    nonce: bytes = b""
    occurrence: bytes = b""
    due: int = 0
    score: int = 0
    attempts: int = 0
    claims: int = 0
    received: bool = False
    suspect: bool = False
    approximate: bool = False
    expires: int = 0
    previous_due: int = 0
    reason: str = ""
    refused: RecordKind | None = None
    adopted: Adoption | None = None
    dead_id: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """What one call of the store changed at one instant, `time`.

    `first` and `last` number its records within the topic's journal, from 1. `entry` is its place in the
    stream, from which reading goes on.
    """

    entry: str
    time: int
    first: int
    last: int
    records: tuple[JournalRecord, ...]

    def lost_since(self, before: int) -> int:
        """How many records are missing between the one with number `before` (0: none) and this batch.

        Negative if the journal went back: a failover or a restore of Redis, or it was removed.
        """
        return self.first - before - 1


@dataclass(frozen=True, slots=True)
class Journals:
    """Which topics have a journal.

    `keep(topic)` answers how many records it keeps at least, 0 where the topic has none.
    `trimmed(topic, count)` is called with how many were dropped for that.
    """

    keep: Callable[[str], int] = lambda _topic: 0
    trimmed: Callable[[str, int], None] = lambda _topic, _count: None


NO_JOURNALS = Journals()
