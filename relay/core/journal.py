"""The journal's values: what happened to a topic's timers, batch by batch.

`docs/reference/journal.md` says which kind has which fields. The numbers of the enums are those of
`proto/relay/journal/v1/journal.proto`. All instants are microseconds since 1970 by the clock of Redis.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self


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
    LEFT = 26
    ARRIVED = 27
    RETURNED = 28
    TICKED = 29
    CHANGED = 30

    @property
    def ends(self) -> bool:
        """The kinds after which the timer is gone."""
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

HAND_OVERS = frozenset({RecordKind.LEFT, RecordKind.ARRIVED, RecordKind.RETURNED})
"""The kinds by which a timer goes from one partition to another."""


BY_CALLERS = frozenset((RecordKind.SCHEDULED, RecordKind.REPLACED, RecordKind.CANCELLED))
"""What callers do, several perhaps in one script call: who that was is known where all are the same."""

BY_HAND = frozenset(
    {
        RecordKind.RUN,
        RecordKind.REDRIVEN,
        RecordKind.PURGED,
        RecordKind.PAUSED,
        RecordKind.RESUMED,
        RecordKind.CHANGED,
    }
)
"""The kinds that people ask for."""

RECURRING = frozenset({RecordKind.TICKED, RecordKind.CHANGED})
"""The kinds that are about a recurrence, whose name then stands in the timer's place."""


class HandOver(NamedTuple):
    """What the journals of two partitions call a batch that goes from one to the other: the epoch of the
    layout by which the topic moves, both partitions, and a name. The later of two that leave a partition has
    the higher `rank`."""

    epoch: int
    source: int
    target: int
    name: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a record says, such as `2:1>3:1767225600000000`. Raises `ValueError`."""
        found = _HAND_OVER.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a hand-over; one reads 2:1>3:1767225600000000")
        return cls(*map(int, found.groups()))

    @property
    def rank(self) -> tuple[int, int]:
        """By which the hand-overs of one partition are in order."""
        return self.epoch, self.name


_HAND_OVER = re.compile(r"(\d{1,18}):(\d{1,4})>(\d{1,4}):(\d{1,18})", re.ASCII)


class Adoption(IntEnum):
    """What a foreign writer had done before the step: it gave a new due time, or leased the timer."""

    INTENT = 1
    LEASE = 2


MOST_OF_ERROR = 200
"""The bytes of an error that a record has."""


def in_short(error: str | bytes) -> str:
    """What a record says of an error: its first 200 bytes of UTF-8, without a character that these cut."""
    raw = error.encode(errors="surrogateescape") if isinstance(error, str) else error
    return raw[:MOST_OF_ERROR].decode(errors="ignore")


class JournalRecord(NamedTuple):
    """One thing that happened to one timer. Fields that its kind does not have are empty or 0.

    `hand_over` names the batch that went from one partition to another, see `HandOver`; a `dead_id` beside it
    says that it is a dead letter which did, and `previous_dead_id` what that was called before. `principal`
    is who asked for it, where that is known. `error` is what went wrong, in short (`in_short`).

    `nonce` is that of the lease that this is about, `occurrence` that of the first claim, or what a
    caller named it; CLAIMED has both.
    `attempts` and `claims` are the counts so far. `score` is when the timer is next claimed or its lease
    ends; `expires` is 0 for never. An id that is not UTF-8 comes with surrogate escapes.
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
    count: int = 0  # type: ignore[assignment]  # it hides a method of tuples that no record needs
    hand_over: str = ""
    previous_dead_id: str = ""
    principal: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class JournalBatch:
    """The changes of one call of the store at one instant, `time`.

    `first` and `last` are the numbers of its records within the journal, from 1. `entry` is its place in the
    stream, from which reading goes on; in a topic of several partitions, each of which has a journal, the
    partition's number follows, as in `1767225600000-0#3`. `relay` is what the relay is called that made the
    call, empty where none did.
    """

    entry: str
    time: int
    first: int
    last: int
    records: tuple[JournalRecord, ...]
    relay: str = ""

    @property
    def place(self) -> tuple[int, str]:
        """The number of its partition, and the entry's id in the stream of that."""
        return place_of(self.entry)

    def lost_since(self, before: int) -> int:
        """Return how many records are missing between number `before` (0: none) and this batch.

        It is negative if the journal went back: after a failover or a restore of Redis, or a removal.
        """
        return self.first - before - 1


def place_of(entry: str) -> tuple[int, str]:
    """The number of the partition that an entry's name tells of, and its id in the stream of that."""
    entry, _, number = entry.partition("#")
    return int(number or 0), entry


@dataclass(frozen=True, slots=True)
class Journals:
    """Says which topics have a journal.

    `keep(topic)` returns the number of records that it keeps, or 0 if the topic has none.
    `trimmed(topic, count)` is called with the number of records that were dropped for that.
    """

    keep: Callable[[str], int] = lambda _topic: 0
    trimmed: Callable[[str, int], None] = lambda _topic, _count: None


NO_JOURNALS = Journals()
