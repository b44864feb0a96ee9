"""The journal replayed: what it says of each timer must be what Redis holds, after every step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from relay.core.instants import from_score
from relay.core.journal import Adoption, JournalBatch, JournalRecord, RecordKind
from relay.store.codec.lease_record import LEASED, NO_NONCE
from tests.worlds.scripts.states import State


@dataclass(frozen=True, slots=True)
class Told:
    """A timer as the journal tells it."""

    due: int
    score: int
    attempts: int = 0
    claims: int = 0
    nonce: bytes = b""
    received: bool = False
    suspect: bool = False
    occurrence: bytes = b""
    expires: int = 0


HELD = (
    RecordKind.RECEIVED,
    RecordKind.EXTENDED,
    RecordKind.ACKED,
    RecordKind.NACKED,
    RecordKind.RELEASED,
    RecordKind.RESCHEDULED,
)
"""What only the holder of the lease can have done."""
BORN = (RecordKind.SCHEDULED, RecordKind.REPLACED, RecordKind.RESCHEDULED)
SILENT = (
    RecordKind.STALE,
    RecordKind.GONE,
    RecordKind.REPAIRED,
    RecordKind.PURGED,
    RecordKind.TRIMMED,
    RecordKind.PAUSED,
    RecordKind.RESUMED,
)
"""What leaves the timers as they are."""


@dataclass(slots=True)
class Replay:
    """`timers` by the journal; of the `foreign` ones somebody wrote who keeps none."""

    timers: dict[str, Told] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    last: int = 0
    letters: int = 0

    def add(self, batches: Iterable[JournalBatch]) -> None:
        """What was written since the last time."""
        for batch in batches:
            assert batch.lost_since(self.last) == 0, "numbered without gaps"
            assert batch.last - batch.first + 1 == len(batch.records)
            self.last = batch.last
            for record in batch.records:
                self._letters(record)
                if record.kind in SILENT:
                    self._refused(record)
                    continue
                if record.timer_id not in self.foreign:
                    self._check(record, batch.time)
                self._apply(record)
                self.foreign.discard(record.timer_id)

    def _letters(self, record: JournalRecord) -> None:
        kinds = {RecordKind.DEAD: 1, RecordKind.EXPIRED: 1, RecordKind.REDRIVEN: -1, RecordKind.PURGED: -1}
        self.letters += kinds.get(record.kind, 0) if record.dead_id else 0
        self.letters -= record.count

    def _refused(self, record: JournalRecord) -> None:
        timer = self.timers.get(record.timer_id)
        if record.kind in (RecordKind.STALE, RecordKind.GONE) and record.timer_id not in self.foreign:
            assert (timer is None) is (record.kind is RecordKind.GONE)
            assert timer is None or timer.nonce != record.nonce, "what holds is not refused"

    def _check(self, record: JournalRecord, time: int) -> None:
        """Whether it may follow what the journal said before."""
        timer, kind = self.timers.get(record.timer_id), record.kind
        assert record.adopted is None, "nobody else wrote"
        assert (timer is None) is (kind in (RecordKind.SCHEDULED, RecordKind.REDRIVEN)), kind
        if timer is None:
            return
        if kind in HELD:
            assert timer.nonce == record.nonce, "the lease that it speaks of"
        elif kind is not RecordKind.CLAIMED:
            assert record.nonce == timer.nonce
        if kind in (RecordKind.CLAIMED, RecordKind.PARKED, RecordKind.EXPIRED, RecordKind.ORPHANED):
            assert time >= timer.score, "never early"
        if kind is RecordKind.CLAIMED:
            assert (record.due, record.claims) == (timer.due, timer.claims + 1)
            assert record.attempts == timer.attempts + timer.received
            assert record.received is timer.received
            assert record.occurrence == (timer.occurrence or record.nonce)
        elif kind in (RecordKind.REPLACED, RecordKind.RESCHEDULED, RecordKind.RUN):
            assert record.previous_due == timer.due
        elif kind is RecordKind.EXPIRED:
            assert 0 < timer.expires == record.expires <= time

    def _apply(self, record: JournalRecord) -> None:
        kind, timer_id = record.kind, record.timer_id
        if kind.ends:
            self.timers.pop(timer_id, None)
            return
        if kind in BORN:
            self.timers[timer_id] = Told(record.due, record.due, expires=record.expires)
            return
        timer = self.timers.get(timer_id, Told(0, 0))
        if record.adopted is Adoption.INTENT or kind is RecordKind.REDRIVEN:
            timer = Told(0, 0)
        if kind in (RecordKind.RECEIVED, RecordKind.EXTENDED):
            received = timer.received or kind is RecordKind.RECEIVED
            self.timers[timer_id] = replace(timer, score=record.score, received=received)
            return
        self.timers[timer_id] = Told(
            record.due,
            record.score,
            record.attempts,
            record.claims,
            nonce=record.nonce if kind is RecordKind.CLAIMED else b"",
            suspect=record.suspect,
            occurrence=record.occurrence or timer.occurrence,
            expires=timer.expires,
        )

    def check(self, state: State) -> None:
        """Redis holds the same."""
        known = state.timeline.keys() - self.foreign
        assert self.timers.keys() - self.foreign == known, "the same timers"
        for timer_id in known:
            assert _held(state, timer_id) == self.timers[timer_id], timer_id
        assert self.letters == len(state.dead), "the same dead"


def _held(state: State, timer_id: str) -> Told:
    at, _, record = state.of(timer_id)
    assert at is not None
    if record is None:
        return Told(from_score(at), from_score(at))
    return Told(
        from_score(record.due),
        from_score(at),
        record.attempts,
        record.claims,
        nonce=record.nonce if record.state == LEASED else b"",
        received=record.received == 1,
        suspect=record.suspect == 1,
        occurrence=b"" if record.occurrence == NO_NONCE else record.occurrence,
        expires=from_score(record.expires),
    )
