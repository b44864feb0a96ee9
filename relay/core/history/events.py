"""What a journal has of one timer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relay.core.journal import HAND_OVERS, RECURRING, JournalBatch, JournalRecord, RecordKind, place_of

NO_CHANGE = frozenset({RecordKind.STALE, RecordKind.GONE, RecordKind.REPAIRED, RecordKind.PURGED})
"""The kinds after which a timer lives, or does not, as before."""

_DEATHS = (RecordKind.DEAD, RecordKind.EXPIRED)


LAST_SEQUENCE = 10**19 - 1
"""The highest sequence number of an entry's id that a cursor may have."""


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """One record of a timer, with what its batch says of it.

    `time` is that of the batch (microseconds), `entry` its place in the stream of the journal of `partition`,
    and `relay` the name of the relay that made the call. `recurrence_id` names the recurrence whose tick made
    the timer, where one did, and `principal` who asked for that, or for what the record tells.
    """

    time: int
    entry: str
    partition: int
    record: JournalRecord
    relay: str = ""
    recurrence_id: str = ""
    principal: str = ""

    @property
    def kind(self) -> RecordKind:
        """What happened."""
        return self.record.kind

    @property
    def millisecond(self) -> int:
        """The first part of the entry's id, by which a stream is in order."""
        return int(self.entry.partition("-")[0])


class HistoryPage(NamedTuple):
    """Events of one timer, the newest first.

    `cursor` is that of the next page, empty at the end. `has_gaps` says that records are missing from what
    was read: they were trimmed, or can't be read.
    """

    events: Sequence[TimerEvent]
    cursor: str = ""
    has_gaps: bool = False

    @property
    def lives(self) -> bool | None:
        """Whether the timer lives by the newest change of it; None if there is none here."""
        for event in self.events:
            if event.kind not in NO_CHANGE and not (event.kind in HAND_OVERS and event.record.dead_id):
                return not event.kind.ends
        return None

    @property
    def letters(self) -> list[str]:
        """The dead letters that are kept by these events, the newest first."""
        gone: set[str] = set()
        kept: list[str] = []
        for event in self.events:
            name = event.record.dead_id
            if event.kind in _DEATHS or event.kind in (RecordKind.ARRIVED, RecordKind.RETURNED):
                if name and name not in gone:
                    kept.append(name)
            elif name:
                gone.add(name)
        return kept


def events_of(batch: JournalBatch, timer_id: str) -> list[TimerEvent]:
    """What a batch has of a timer, the newest first."""
    partition, entry = place_of(batch.entry)
    found: list[TimerEvent] = []
    tick = None
    for record in batch.records:
        if record.kind in RECURRING:
            tick = record if record.kind is RecordKind.TICKED else None
        elif record.timer_id == timer_id:
            made_by = tick if tick is not None and timer_id.startswith(f"{tick.timer_id}@") else None
            found.append(
                TimerEvent(
                    batch.time,
                    entry,
                    partition,
                    record,
                    batch.relay,
                    made_by.timer_id if made_by else "",
                    made_by.principal if made_by else record.principal,
                )
            )
    return found[::-1]


def entry_before(entry: str) -> str:
    """The highest id before that of an entry of a stream."""
    millisecond, sequence = map(int, entry.split("-"))
    return f"{millisecond}-{sequence - 1}" if sequence else f"{max(millisecond - 1, 0)}-{LAST_SEQUENCE}"
