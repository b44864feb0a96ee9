"""A legal history in which one record is dropped, doubled or altered is not proved."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from relay.core.audit import Report, Verdict
from relay.core.instants import SECOND
from relay.core.journal import Batch, Kind, Record
from tests.audit.forge import refuted, renumbered
from tests.audit.test_histories import in_memory, judge

SEEDS = 20
WRITES = {Kind.RECEIVED, Kind.EXTENDED, Kind.ACKED, Kind.NACKED, Kind.RELEASED, Kind.RESCHEDULED}
COUNTED = {Kind.CLAIMED, Kind.NACKED, Kind.RELEASED, Kind.RUN, Kind.DEAD, Kind.EXPIRED}
DUE = {Kind.SCHEDULED, Kind.CLAIMED, Kind.NACKED, Kind.RELEASED, Kind.RESCHEDULED, Kind.CANCELLED, Kind.DEAD}
Mutation = Callable[[Record], Sequence[Record]]


def changed(**fields: object) -> Mutation:
    return lambda record: [replace(record, **fields)]  # type: ignore[arg-type]


MILD = {Kind.RECEIVED, Kind.EXTENDED, Kind.RUN, Kind.REPLACED, Kind.STALE, Kind.GONE}
"""What may have changed nothing: without it, or with it twice, the history may be as legal."""

MUTATIONS: dict[str, tuple[set[Kind], Mutation]] = {
    "dropped": (set(Kind) - MILD - {Kind.RELEASED}, lambda record: []),  # one release looks like a lapse
    "doubled": (set(Kind) - MILD, lambda record: [record, record]),
    "another nonce": (WRITES, changed(nonce=b"n" * 16)),
    "another occurrence": ({Kind.CLAIMED}, changed(occurrence=b"o" * 16)),
    "another timer": (
        WRITES | {Kind.CLAIMED, Kind.SCHEDULED, Kind.CANCELLED, Kind.REPLACED},
        changed(timer_id="z"),
    ),
    "an attempt more": (COUNTED, lambda record: [replace(record, attempts=record.attempts + 1)]),
    "a claim more": (COUNTED, lambda record: [replace(record, claims=record.claims + 1)]),
    "due sooner": (DUE, lambda record: [replace(record, due=record.due - 1)]),
    "due later": (DUE, lambda record: [replace(record, due=record.due + 1)]),
    "another due before": ({Kind.REPLACED, Kind.RESCHEDULED, Kind.RUN}, changed(previous_due=SECOND)),
}
"""Of which kinds, and what becomes of the record."""


def mutants(
    batches: list[Batch], kinds: set[Kind], mutation: Mutation
) -> Iterator[tuple[Record, list[Batch]]]:
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
def histories() -> list[list[Batch]]:
    return [asyncio.run(in_memory(Random(seed), finish=True)) for seed in range(SEEDS)]


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutants_are_not_proved(name: str) -> None:
    """Not one, in all histories, and each kind of record was tried."""
    kinds, mutation = MUTATIONS[name]
    tried: Counter[Kind] = Counter()
    for batches in histories():
        for record, mutant in mutants(batches, kinds, mutation):
            report: Report = judge(mutant, None, at_rest=True)
            tried[record.kind] += 1
            assert report.verdict is not Verdict.PROVED, f"{record} in {batches}"
            assert refuted(report), "numbers that show no gap leave no doubt"
    in_memory_kinds = kinds - {Kind.REDRIVEN, Kind.PARKED, Kind.ORPHANED, Kind.TAKEN, Kind.REPAIRED}
    topic_kinds = {Kind.PURGED, Kind.TRIMMED, Kind.PAUSED, Kind.RESUMED}
    elsewhere = {Kind.PROMOTED}  # the store in memory has no lists and no streams; tests/dispatch has them
    assert set(tried) == in_memory_kinds - topic_kinds - elsewhere


def test_time_moved_back_is_early() -> None:
    """A claim that is said to have been made before the timer was due."""
    for batches in histories():
        for at, batch in enumerate(batches):
            if any(record.kind is Kind.CLAIMED for record in batch.records):
                due = min(record.due for record in batch.records if record.kind is Kind.CLAIMED)
                mutant = [*batches[:at], replace(batch, time=due - 1), *batches[at + 1 :]]
                assert judge(mutant, None, at_rest=True).verdict is Verdict.REFUTED


def test_a_dropped_batch_shows_in_the_numbers() -> None:
    """What was dropped with its numbers can't be said, whatever it was."""
    for batches in histories():
        for at in range(len(batches) - 1):
            report = judge(batches[:at] + batches[at + 1 :], None, at_rest=False)
            assert report.verdict is Verdict.UNSAID
