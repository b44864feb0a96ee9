"""Journals written by hand: each call is a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from relay.core.audit import Audit, Promise, PromiseVerdict, Report
from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord, RecordKind

START = 1_767_225_600 * SECOND
LEASE = 30 * SECOND
DEAD_ID = "1767225600000-0"


def nonce(number: int, relay: bytes = b"relay-01") -> bytes:
    """Of a relay's so-and-so-many-th claim."""
    return relay + number.to_bytes(8, "big")


class Forge:
    """A journal in the making. `at` is the clock of Redis, seconds after `START`."""

    def __init__(self) -> None:
        self.batches: list[JournalBatch] = []
        self.at = 0.0

    @property
    def now(self) -> int:
        return START + round(self.at * SECOND)

    @property
    def number(self) -> int:
        return self.batches[-1].last if self.batches else 0

    def wait(self, seconds: float) -> Self:
        self.at += seconds
        return self

    def batch(self, *records: JournalRecord) -> Self:
        """What one call of the store has changed."""
        entry = f"{START // 1000}-{len(self.batches)}"
        first = self.number + 1
        self.batches.append(JournalBatch(entry, self.now, first, first + len(records) - 1, records))
        return self

    def lose(self, count: int = 1) -> Self:
        """The last batches were trimmed, and their numbers are used."""
        lost = self.batches[-1].last
        del self.batches[-count:]
        records: tuple[JournalRecord, ...] = (JournalRecord(RecordKind.RESUMED),)
        self.batches.append(
            JournalBatch(f"{START // 1000}-{lost + 1000}", self.now, lost + 1, lost + 1, records)
        )
        return self

    # What happens

    def scheduled(self, timer_id: str, due: float = 0.0, **fields: Any) -> Self:
        return self.batch(JournalRecord(RecordKind.SCHEDULED, timer_id, due=instant(due), **fields))

    def replaced(self, timer_id: str, due: float, previous: float, held: int = 0, **fields: Any) -> Self:
        void = nonce(held) if held else b""
        return self.batch(
            JournalRecord(
                RecordKind.REPLACED,
                timer_id,
                void,
                due=instant(due),
                previous_due=instant(previous),
                **fields,
            )
        )

    def claimed(
        self,
        timer_id: str,
        number: int,
        due: float = 0.0,
        attempts: int = 0,
        claims: int = 1,
        first: int = 0,
        **fields: Any,
    ) -> Self:
        """Under the nonce of this number; `first` is that of the occurrence's first claim."""
        fields.setdefault("occurrence", nonce(first or number))
        fields.setdefault("score", self.now + LEASE)
        fields |= {"due": instant(due), "attempts": attempts, "claims": claims}
        return self.batch(JournalRecord(RecordKind.CLAIMED, timer_id, nonce(number), **fields))

    def again(self, attempts: int, claims: int) -> Self:
        """The timer `t` of the first claim is claimed under the second, and acked."""
        return self.claimed("t", 2, 0.0, attempts, claims, first=1).acked("t", 2)

    def received(self, timer_id: str, number: int) -> Self:
        return self.batch(JournalRecord(RecordKind.RECEIVED, timer_id, nonce(number), score=self.now + LEASE))

    def extended(self, timer_id: str, number: int) -> Self:
        return self.batch(JournalRecord(RecordKind.EXTENDED, timer_id, nonce(number), score=self.now + LEASE))

    def promoted(self, timer_id: str, due: float = 0.0, **fields: Any) -> Self:
        return self.batch(JournalRecord(RecordKind.PROMOTED, timer_id, due=instant(due), **fields))

    def acked(self, timer_id: str, number: int) -> Self:
        return self.batch(JournalRecord(RecordKind.ACKED, timer_id, nonce(number)))

    def nacked(self, timer_id: str, number: int, attempts: int, claims: int, due: float = 0.0) -> Self:
        return self.batch(
            JournalRecord(
                RecordKind.NACKED, timer_id, nonce(number), due=instant(due), score=self.now,
                attempts=attempts, claims=claims,
            )
        )  # fmt: skip

    def released(
        self, timer_id: str, number: int, attempts: int, claims: int, due: float = 0.0, received: bool = False
    ) -> Self:
        return self.batch(
            JournalRecord(
                RecordKind.RELEASED, timer_id, nonce(number), due=instant(due), score=self.now,
                attempts=attempts, claims=claims, received=received,
            )
        )  # fmt: skip

    def rescheduled(self, timer_id: str, number: int, due: float, previous: float = 0.0) -> Self:
        return self.batch(
            JournalRecord(
                RecordKind.RESCHEDULED,
                timer_id,
                nonce(number),
                due=instant(due),
                previous_due=instant(previous),
            )
        )

    def dead(self, timer_id: str, number: int, attempts: int, claims: int, **fields: Any) -> Self:
        fields = {"reason": "attempts", "received": True, "due": START, "dead_id": DEAD_ID, **fields}
        held = nonce(number) if number else b""
        return self.batch(
            JournalRecord(RecordKind.DEAD, timer_id, held, attempts=attempts, claims=claims, **fields)
        )

    def redriven(self, timer_id: str, first: int, due: float) -> Self:
        fields: dict[str, Any] = {"occurrence": nonce(first), "score": self.now, "dead_id": DEAD_ID}
        return self.batch(JournalRecord(RecordKind.REDRIVEN, timer_id, due=instant(due), **fields))

    def cancelled(self, timer_id: str, held: int = 0, due: float = 0.0) -> Self:
        return self.batch(
            JournalRecord(RecordKind.CANCELLED, timer_id, nonce(held) if held else b"", due=instant(due))
        )

    def stale(
        self, timer_id: str, number: int, refused: RecordKind = RecordKind.ACKED, **fields: Any
    ) -> Self:
        return self.batch(JournalRecord(RecordKind.STALE, timer_id, nonce(number), refused=refused, **fields))

    def gone(self, timer_id: str, number: int, refused: RecordKind = RecordKind.ACKED) -> Self:
        return self.batch(JournalRecord(RecordKind.GONE, timer_id, nonce(number), refused=refused))


def instant(seconds: float) -> int:
    return START + round(seconds * SECOND)


def audited(
    batches: Iterable[JournalBatch],
    *,
    exclusive: bool = True,
    at_rest: bool = True,
    there: dict[str, tuple[bool, bool]] | None = None,
) -> Report:
    """The report on a forged journal; `there` tells how Redis stands, for ids that are asked of."""
    audit = Audit(exclusive=exclusive)
    for batch in batches:
        audit.add(batch)
    if there is not None:
        ids = list(audit.unreconciled())
        audit.reconcile(ids, [there.get(timer_id, (False, False)) for timer_id in ids])
    return audit.report(at_rest=at_rest)


def refuted(report: Report) -> set[Promise]:
    return {each.promise for each in report.judgements if each.verdict is PromiseVerdict.REFUTED}


def unsaid(report: Report) -> set[Promise]:
    return {each.promise for each in report.judgements if each.verdict is PromiseVerdict.UNSAID}


def renumbered(batches: Iterable[JournalBatch]) -> list[JournalBatch]:
    """The same with numbers that show no gap, and without the batches that are empty."""
    made: list[JournalBatch] = []
    for batch in batches:
        if batch.records:
            first = made[-1].last + 1 if made else 1
            made.append(replace(batch, first=first, last=first + len(batch.records) - 1))
    return made
