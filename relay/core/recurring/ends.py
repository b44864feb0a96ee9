"""What becomes of occurrences, and how the records of a journal tell it.

All instants are microseconds since 1970 by the clock of Redis.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from relay.core.journal import HAND_OVERS, HandOver, JournalRecord, RecordKind


class OccurrenceOutcome(Enum):
    """Where an occurrence is, or how it has ended.

    WAITING: for its due time or its next attempt. LEASED: it is being delivered. ACKED: a handler has done
    it. PROMOTED: it went to the topic's list or stream, and nothing is recorded of it there. REMOVED: it had
    no payload, or a foreign worker has handled or removed it. UNKNOWN: it has ended, and nothing tells how.
    """

    WAITING = "waiting"
    LEASED = "leased"
    ACKED = "acked"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    PROMOTED = "promoted"
    REMOVED = "removed"
    UNKNOWN = "unknown"


NO_JOURNAL = "no_journal"
"""Why an outcome is unknown: the topic has no journal."""
TRIMMED = "trimmed"
"""The journal does not reach back to the occurrence any more."""
NOT_RECORDED = "not_recorded"
"""The journal reaches back to it and has no end of it: it was off then, or a relay without it was at work."""
TOO_FAR = "too_far"
"""The end lies behind more records than one call reads."""

NO_PAYLOAD, FOREIGN = "no_payload", "foreign"
"""Why an occurrence was removed."""


@dataclass(frozen=True, slots=True)
class Became:
    """What became of an occurrence. `reason` is that of a death, or why it was removed or its outcome is
    unknown. `attempts` counts those that were made; 0 also where that is not known. `ended` is when it
    ended."""

    outcome: OccurrenceOutcome
    reason: str = ""
    attempts: int = 0
    ended: int | None = None

    @classmethod
    def unknown(cls, reason: str) -> Became:
        """It has ended, and it is not known how."""
        return cls(OccurrenceOutcome.UNKNOWN, reason)


_ENDS = {
    RecordKind.ACKED: (OccurrenceOutcome.ACKED, ""),
    RecordKind.CANCELLED: (OccurrenceOutcome.CANCELLED, ""),
    RecordKind.PROMOTED: (OccurrenceOutcome.PROMOTED, ""),
    RecordKind.ORPHANED: (OccurrenceOutcome.REMOVED, NO_PAYLOAD),
    RecordKind.TAKEN: (OccurrenceOutcome.REMOVED, FOREIGN),
}
"""What ends an occurrence for good."""

_DEATHS = {RecordKind.DEAD: OccurrenceOutcome.DEAD, RecordKind.EXPIRED: OccurrenceOutcome.EXPIRED}
"""What a redrive may follow, if it is kept as a dead letter."""

_NEW_LIVES = {
    RecordKind.SCHEDULED,
    RecordKind.REPLACED,
    RecordKind.RESCHEDULED,
    RecordKind.REDRIVEN,
}

_COUNTED = {RecordKind.CLAIMED, RecordKind.NACKED, RecordKind.RELEASED, RecordKind.RUN, RecordKind.PARKED}
"""The kinds of a living timer that say how many attempts there were."""


class Trail:
    """Follows one occurrence through the records of the partition in which it is.

    Its first end counts: whoever schedules a timer under its name afterwards makes another one. Only a dead
    letter may live again. One that is moved, by its handler or by a person, is followed on.
    """

    def __init__(self, before: Trail | None = None) -> None:
        """`before` has followed it through the partition that it has left."""
        self.attempts: int | None = None if before is None else before.attempts
        self.became: Became | None = None if before is None else before.became
        self.awaits: str = "" if before is None else before.left
        """The hand-over by which it comes in; records before that are of other times."""
        self.left: str = ""
        """The hand-over by which it has gone to another partition, or its dead letter has."""
        self.left_at = 0
        self.letter: str = ""
        """Its dead letter in this partition, where it died, the letter was kept, and nobody has asked yet
        whether it still is."""
        self.last_letter: str = "" if before is None else before.last_letter
        """The name of the dead letter, wherever it is and whether or not it still is."""
        self.is_another: bool = before is not None and before.is_another
        """Whether another timer has the name of the one that has died: records are about that one."""
        self.seen = False
        self.has_begun_here = False
        """Whether the first record was no hand-over."""
        self.is_over = False
        """Whether nothing can follow what it became."""

    def take(self, record: JournalRecord, time: int) -> None:
        """Take the next record of the occurrence in this partition, and its instant."""
        kind = record.kind
        if self.is_over or not self._has_come(record):
            return
        if kind is RecordKind.SCHEDULED and self.became is not None:
            self.is_another = True
        is_its_letter = self.last_letter in (record.dead_id, record.previous_dead_id)
        if self.is_another and not is_its_letter:
            return
        if kind in HAND_OVERS:
            self.last_letter = record.dead_id
            leaves = kind is RecordKind.LEFT
            self.left, self.left_at = record.hand_over if leaves else "", time
            self.letter = "" if leaves else record.dead_id
        elif kind in _NEW_LIVES:
            self._lives(0)
        elif kind in _COUNTED:
            self._lives(record.attempts)
        elif kind is RecordKind.PURGED:
            self.is_over = self.became is not None
        else:
            self._ends(record, time)

    def _has_come(self, record: JournalRecord) -> bool:
        """Whether it is in this partition already."""
        comes_in = record.kind in HAND_OVERS and record.kind is not RecordKind.LEFT
        if self.awaits and not (comes_in and record.hand_over == self.awaits):
            return False
        self.awaits = ""
        if not self.seen:
            self.seen, self.has_begun_here = True, record.kind not in HAND_OVERS
        return True

    def _lives(self, attempts: int) -> None:
        self.attempts, self.became, self.letter = attempts, None, ""
        self.last_letter, self.is_another = "", False

    def _ends(self, record: JournalRecord, time: int) -> None:
        kind = record.kind
        if kind in _DEATHS:
            self.became = Became(_DEATHS[kind], record.reason, record.attempts, time)
            self.letter = self.last_letter = record.dead_id
            self.is_over = not record.dead_id
        elif kind in _ENDS:
            acked = kind is RecordKind.ACKED and self.attempts is not None
            self.became = Became(*_ENDS[kind], attempts=(self.attempts or 0) + acked, ended=time)
            self.is_over = True

    @property
    def goes_to(self) -> tuple[int, int]:
        """The partitions in which it goes on once it has left: that where it was to go, and that from which
        it left, for it comes back there if the other has no room."""
        hand_over = HandOver.parse(self.left)
        return hand_over.target, hand_over.source
