"""A legal history in which one record is dropped, doubled or altered is not proved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest

from relay.core.audit import PromiseVerdict, Report
from relay.core.instants import SECOND
from relay.core.journal import HAND_OVERS, RECURRING, JournalBatch, JournalRecord, RecordKind
from tests.audit.forge import refuted, renumbered
from tests.audit.test_histories import in_memory, judge

SEEDS = 20
WRITES = {
    RecordKind.RECEIVED,
    RecordKind.EXTENDED,
    RecordKind.ACKED,
    RecordKind.NACKED,
    RecordKind.RELEASED,
    RecordKind.RESCHEDULED,
}
COUNTED = {
    RecordKind.CLAIMED,
    RecordKind.NACKED,
    RecordKind.RELEASED,
    RecordKind.RUN,
    RecordKind.DEAD,
    RecordKind.EXPIRED,
}
DUE = {
    RecordKind.SCHEDULED,
    RecordKind.CLAIMED,
    RecordKind.NACKED,
    RecordKind.RELEASED,
    RecordKind.RESCHEDULED,
    RecordKind.CANCELLED,
    RecordKind.DEAD,
}
Mutation = Callable[[JournalRecord], Sequence[JournalRecord]]


def changed(**fields: Any) -> Mutation:
    return lambda record: [record._replace(**fields)]


MILD = {
    RecordKind.RECEIVED,
    RecordKind.EXTENDED,
    RecordKind.RUN,
    RecordKind.REPLACED,
    RecordKind.STALE,
    RecordKind.GONE,
}
"""What may have changed nothing: without it, or with it twice, the history may be as legal."""

MUTATIONS: dict[str, tuple[set[RecordKind], Mutation]] = {
    "dropped": (
        set(RecordKind) - MILD - {RecordKind.RELEASED},
        lambda record: [],
    ),  # one release looks like a lapse
    "doubled": (set(RecordKind) - MILD, lambda record: [record, record]),
    "another nonce": (WRITES, changed(nonce=b"n" * 16)),
    "another occurrence": ({RecordKind.CLAIMED}, changed(occurrence=b"o" * 16)),
    "another timer": (
        WRITES | {RecordKind.CLAIMED, RecordKind.SCHEDULED, RecordKind.CANCELLED, RecordKind.REPLACED},
        changed(timer_id="z"),
    ),
    "an attempt more": (COUNTED, lambda record: [record._replace(attempts=record.attempts + 1)]),
    "a claim more": (COUNTED, lambda record: [record._replace(claims=record.claims + 1)]),
    "due sooner": (DUE, lambda record: [record._replace(due=record.due - 1)]),
    "due later": (DUE, lambda record: [record._replace(due=record.due + 1)]),
    "another due before": (
        {RecordKind.REPLACED, RecordKind.RESCHEDULED, RecordKind.RUN},
        changed(previous_due=SECOND),
    ),
}
"""Of which kinds, and what becomes of the record."""


def mutants(
    batches: list[JournalBatch], kinds: set[RecordKind], mutation: Mutation
) -> Iterator[tuple[JournalRecord, list[JournalBatch]]]:
    """One for each record of these kinds; the numbers show nothing of it. The second of two comes in a
    batch of its own."""
    for at, batch in enumerate(batches):
        for n, record in enumerate(batch.records):
            if record.kind not in kinds:
                continue
            made = tuple(mutation(record))
            whole = replace(batch, records=(*batch.records[:n], *made[:1], *batch.records[n + 1 :]))
            second = replace(batch, entry=f"{batch.entry}-2", records=made[1:])
            yield record, renumbered([*batches[:at], whole, second, *batches[at + 1 :]])


@cache
def histories() -> list[list[JournalBatch]]:
    return [asyncio.run(in_memory(Random(seed), finish=True)) for seed in range(SEEDS)]


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutants_are_not_proved(name: str) -> None:
    """Not one, in all histories, and each kind of record was tried."""
    kinds, mutation = MUTATIONS[name]
    tried: Counter[RecordKind] = Counter()
    for batches in histories():
        for record, mutant in mutants(batches, kinds, mutation):
            report: Report = judge(mutant, None, at_rest=True)
            tried[record.kind] += 1
            assert report.verdict is not PromiseVerdict.PROVED, f"{record} in {batches}"
            assert refuted(report), "numbers that show no gap leave no doubt"
    in_memory_kinds = kinds - {
        RecordKind.REDRIVEN,
        RecordKind.PARKED,
        RecordKind.ORPHANED,
        RecordKind.TAKEN,
        RecordKind.REPAIRED,
    }
    topic_kinds = {RecordKind.PURGED, RecordKind.TRIMMED, RecordKind.PAUSED, RecordKind.RESUMED}
    # The store in memory has no lists, no streams, no partitions and no recurrences: tests/dispatch,
    # test_hand_overs and test_recurring have.
    elsewhere = {RecordKind.PROMOTED, *HAND_OVERS, *RECURRING}
    assert set(tried) == in_memory_kinds - topic_kinds - elsewhere


def test_time_moved_back_is_early() -> None:
    """A claim that is said to have been made before the timer was due."""
    for batches in histories():
        for at, batch in enumerate(batches):
            if any(record.kind is RecordKind.CLAIMED for record in batch.records):
                due = min(record.due for record in batch.records if record.kind is RecordKind.CLAIMED)
                mutant = [*batches[:at], replace(batch, time=due - 1), *batches[at + 1 :]]
                assert judge(mutant, None, at_rest=True).verdict is PromiseVerdict.REFUTED


def test_a_dropped_batch_shows_in_the_numbers() -> None:
    """What was dropped with its numbers can't be said, whatever it was."""
    for batches in histories():
        for at in range(len(batches) - 1):
            report = judge(batches[:at] + batches[at + 1 :], None, at_rest=False)
            assert report.verdict is PromiseVerdict.UNSAID
