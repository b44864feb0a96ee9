"""Replays a journal batch by batch, and judges each promise by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest

from relay.core.audit.hand_overs import HandOverRules, Remaining
from relay.core.audit.places import OnWay
from relay.core.audit.report import (
    LIVES,
    MISSING,
    NOT_WHOLE,
    ON_WAY,
    TRIMMED,
    WENT_BACK,
    Findings,
    JournalGap,
    Open,
    Promise,
    Report,
    doubts_of,
)
from relay.core.audit.state import Living
from relay.core.journal import JournalBatch, RecordKind

MOST_GAPS = 100
"""The most gaps that are listed; all are counted."""


class Audit:
    """Audits one topic's journal, or those of its partitions. `add` its batches in order, `reconcile` the
    timers that live, and read the `report`.

    It remembers the timers that live, the last 100,000 that ended, the last 10,000 nonces of each relay and
    eight bytes for each first delivery. `exclusive` means that only relays with a journal have ever written
    to the topic, so a change without a record is a broken promise and not the work of another writer.
    """

    def __init__(self, *, exclusive: bool = False, examples: int = 5) -> None:
        self._findings = Findings(examples)
        self._examples = examples
        self._rules = HandOverRules(self._findings, exclusive)
        self._kinds: Counter[RecordKind] = Counter()
        self._gaps: list[JournalGap] = []
        self._gap_count = self._missing = self._batches = 0
        self._last: dict[int, int] = {}
        """The number of each partition's last record."""
        self.places: dict[int, str] = {}
        """The entry of each partition's stream that was added last."""
        self._asked: dict[str, list[Living]] = {}
        self._first_entry = self._last_entry = ""
        self._first_time = self._last_time = 0

    def add(self, batch: JournalBatch) -> None:
        """Add the next batch."""
        if not self._batches:
            self._first_entry, self._first_time = batch.entry, batch.time
        partition, entry = batch.place
        self._rules.begin(batch.entry, batch.time)
        lost = batch.lost_since(self._last.get(partition, 0))
        if lost > 0:
            self._gap(batch, lost, MISSING if partition in self._last else TRIMMED)
        elif lost < 0:
            self._gap(batch, 0, WENT_BACK)
        whole = batch.last - batch.first + 1
        if whole != len(batch.records):
            self._gap(batch, max(whole - len(batch.records), 0), NOT_WHOLE)
        self._batches += 1
        self._last[partition], self.places[partition] = batch.last, entry
        self._last_entry, self._last_time = batch.entry, batch.time
        for record in batch.records:
            self._kinds[record.kind] += 1
            self._rules.take(record)

    def _gap(self, batch: JournalBatch, missing: int, why: str) -> None:
        self._gap_count += 1
        self._missing += missing
        if len(self._gaps) < MOST_GAPS:
            self._gaps.append(JournalGap(batch.entry, missing, why))
        self._rules.forget()

    # ------------------------------------------------------------------------------ what lives

    @property
    def waits(self) -> bool:
        """Whether timers have arrived in a partition, and it was not read yet that they left another."""
        return self._rules.waits

    def unreconciled(self) -> Iterator[str]:
        """Yield the timers that live and may be missing from Redis, those on their way between two partitions
        too."""
        self._asked = {}
        for timer_id, timer, _, _ in self._rules.remaining():
            if timer.missed is None:
                self._asked.setdefault(timer_id, []).append(timer)
        return iter(self._asked)

    def reconcile(self, timer_ids: Sequence[str], present: Sequence[tuple[bool, bool]]) -> None:
        """Take for each of these timers, which were `unreconciled`, whether Redis has it in a partition or on
        its way, and whether Redis has a record of ours.

        Batches from before Redis was asked may be added later: a timer's next record makes this void.
        """
        for timer_id, (there, remembered) in zip(timer_ids, present, strict=True):
            for timer in self._asked.get(timer_id, ()):
                timer.missed, timer.remembered = not there, remembered

    # ------------------------------------------------------------------------------ the verdict

    def report(self, *, at_rest: bool = False, reconciled: bool = False) -> Report:
        """Return the verdicts; to be called once.

        `at_rest` requires that every timer has ended. `reconciled` means that Redis was asked for all timers
        that lived, so one without an answer has a newer record.
        """
        self._rules.settle()
        remaining = list(self._rules.remaining())
        unasked = 0
        for timer_id, timer, on_way, place in remaining:
            certain = self._rules.is_certain(timer, on_way, place)
            unasked += self._rules.judge_living(timer_id, timer, at_rest, certain=certain)
        doubts = doubts_of(self._batches, self._gap_count, self._missing)
        if unasked and not reconciled:
            self._findings.doubt(Promise.AT_LEAST_ONCE, LIVES.format(unasked), count=unasked)
        counts = self._rules.counts
        return Report(
            judgements=[self._findings.judgement(promise, doubts) for promise in Promise],
            batches=self._batches,
            records=self._kinds.total(),
            kinds={kind.name: self._kinds[kind] for kind in RecordKind if self._kinds[kind]},
            first_entry=self._first_entry,
            last_entry=self._last_entry,
            first_time=self._first_time,
            last_time=self._last_time,
            gaps=tuple(self._gaps),
            gap_count=self._gap_count,
            missing=self._missing,
            lateness=self._rules.lateness.summary(),
            lateness_count=len(self._rules.lateness),
            counts={name: counts[name] for name in sorted(counts)},
            open_count=len(remaining),
            open=self._open(remaining),
        )

    def _open(self, remaining: Sequence[Remaining]) -> list[Open]:
        """Return the timers whose last records are the oldest."""
        oldest = nsmallest(self._examples, remaining, key=lambda each: each[1].time)
        return [
            Open(
                timer_id=timer_id,
                state=_state(timer, on_way),
                due=timer.due or 0,
                age=self._last_time - timer.time,
                entry=timer.entry,
            )
            for timer_id, timer, on_way, _ in oldest
        ]


def _state(timer: Living, on_way: OnWay | None) -> str:
    if timer.missed:
        return "gone"
    return ON_WAY if on_way is not None else "leased" if timer.live_lease else "pending"
