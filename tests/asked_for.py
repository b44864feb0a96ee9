"""What callers asked for, as they themselves wrote it down, and what a journal says came of it too late.

A producer's list of what was answered OK sees no ghost: a call that was given up, or the first try of one
that was repeated, acts after its caller has gone on, and the journal then tells of one more change, which is
as good as any. So all calls are written down, those without an answer too, with the moment from which they
must not act.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord, RecordKind

EARLIER = 0.1
"""Seconds by which a server's time may be behind in a script: it is that of a turn of its loop."""


@dataclass(frozen=True)
class AskedFor:
    """One call about a timer, in however many tries, by one clock, which is the server's too (seconds since
    1970).

    `ended`: when it was answered; or when it was given up, and its last try's time was over. `due` is in
    microseconds since 1970; None for a due time that the caller does not know.
    """

    timer_id: str
    began: float
    ended: float
    answered: bool
    due: int | None = None
    cancels: bool = False

    def explains(self, record: JournalRecord, time: int) -> bool:
        """Whether a change of its timer at that time (microseconds) was this call's."""
        if self.cancels is not (record.kind is RecordKind.CANCELLED):
            return False
        meant = self.cancels or self.due in (None, record.due)
        return meant and self.began - EARLIER <= time / SECOND <= self.ended


@dataclass(frozen=True)
class Ghost:
    """A change that nobody was asking for when it happened."""

    record: JournalRecord
    time: int
    asked: tuple[AskedFor, ...]

    def __str__(self) -> str:
        told = ", ".join(
            f"{'cancel' if each.cancels else each.due} from {each.began - self.time / SECOND:+.3f} s to "
            f"{each.ended - self.time / SECOND:+.3f} s{'' if each.answered else ' without an answer'}"
            for each in self.asked
        )
        what = f"{self.record.timer_id} was {self.record.kind.name}, due {self.record.due}"
        return f"{what}; and its callers asked for: {told}"


def ghosts(asked: Iterable[AskedFor], batches: Iterable[JournalBatch]) -> Sequence[Ghost]:
    """The changes of these calls' timers that no call explains, while it was under way."""
    book: dict[str, list[AskedFor]] = defaultdict(list)
    for each in asked:
        book[each.timer_id].append(each)
    changes = (RecordKind.SCHEDULED, RecordKind.REPLACED, RecordKind.CANCELLED)
    return [
        Ghost(record, batch.time, tuple(book[record.timer_id]))
        for batch in batches
        for record in batch.records
        if record.kind in changes
        and record.timer_id in book
        and not any(each.explains(record, batch.time) for each in book[record.timer_id])
    ]
