"""The audit of recurrences: each nominal instant is gone through once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.audit import Promise
from relay.core.journal import JournalBatch, JournalRecord, RecordKind
from tests.audit.forge import START, Forge, audited, refuted, renumbered, unsaid

MINUTE = 60_000_000


def ticked(before: int, after: int, name: str = "r") -> JournalRecord:
    """From one minute on to before another; -1: for ever."""
    return JournalRecord(RecordKind.TICKED, name, previous_due=at(before), due=at(after), count=1)


def changed(before: int, after: int, name: str = "r") -> JournalRecord:
    return JournalRecord(RecordKind.CHANGED, name, previous_due=at(before), due=at(after), reason="put")


def at(minute: int) -> int:
    return 0 if minute < 0 else START + minute * MINUTE


def judged(*records: JournalRecord) -> set[Promise]:
    forge = Forge()
    for record in records:
        forge.batch(record)
    return refuted(audited(forge.batches))


HONEST = {
    "ticks": [changed(-1, 0), ticked(0, 1), ticked(1, 5), ticked(5, 6)],
    "it ends": [changed(-1, 0), ticked(0, 1), ticked(1, -1)],
    "it is removed and put again": [
        changed(-1, 0),
        ticked(0, 1),
        changed(1, -1),
        changed(-1, 1),
        ticked(1, 2),
    ],
    "another rule": [changed(-1, 0), ticked(0, 10), changed(10, 3), ticked(3, 4)],
    "a trigger": [changed(-1, 0), ticked(0, 1), ticked(1, 1), ticked(1, 2)],
    "a pause": [changed(-1, 0), changed(0, 0), ticked(0, 1)],
    "it is older than the journal": [ticked(0, 1), ticked(1, 2)],
    "it is older, and was removed and put again": [
        ticked(0, 1),
        changed(1, -1),
        changed(-1, 3),
        ticked(3, 4),
    ],
    "and was removed once more": [ticked(0, 1), changed(1, -1), changed(-1, 3), changed(3, -1)],
    "two": [changed(-1, 0), changed(-1, 0, "s"), ticked(0, 1), ticked(0, 1, "s")],
    "read in the order of partitions": [ticked(5, 6), ticked(6, 7), changed(-1, 4), ticked(4, 5)],
}

BROKEN = {
    "a tick is missing": [changed(-1, 0), ticked(0, 1), ticked(2, 3)],
    "the first tick is missing": [changed(-1, 0), ticked(1, 2)],
    "a tick twice": [changed(-1, 0), ticked(0, 1), ticked(0, 1)],
    "a tick twice, in the midst": [changed(-1, 0), ticked(0, 1), ticked(0, 1), ticked(1, 2)],
    "two relays went on from one instant": [changed(-1, 0), ticked(0, 1), ticked(0, 2), ticked(1, 2)],
    "a tick after the end": [changed(-1, 0), ticked(0, 1), changed(1, -1), ticked(1, 2)],
    "the first tick twice, and then it ends": [changed(-1, 0), ticked(0, 1), ticked(0, 1), ticked(1, -1)],
    "the first tick is missing, and then it ends": [changed(-1, 0), ticked(1, -1)],
    "twice of one that is older, removed and put again": [
        ticked(0, 1),
        ticked(0, 1),
        changed(1, -1),
        changed(-1, 3),
    ],
    "of one that is older": [ticked(0, 1), ticked(0, 1)],
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_history(name: str) -> None:
    assert judged(*HONEST[name]) == set()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_history(name: str) -> None:
    assert judged(*BROKEN[name]) == {Promise.EVERY_INSTANT}


def test_with_a_gap_it_cant_be_said() -> None:
    """The missing tick may be among the records that are missing."""
    forge = Forge()
    for record in (changed(-1, 0), ticked(0, 1)):
        forge.batch(record)
    forge.batch(ticked(1, 2)).lose()
    forge.batch(ticked(2, 3))
    report = audited(forge.batches)
    assert (refuted(report), Promise.EVERY_INSTANT in unsaid(report)) == (set(), True)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    steps=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    broken=st.integers(0, 11),
    drops=st.booleans(),
    order=st.randoms(use_true_random=False),
)
def test_each_tick_that_is_dropped_or_doubled_is_found(
    steps: list[int], broken: int, drops: bool, order: object
) -> None:
    """Wherever it is, and in whatever order the records are read; the last one may be missing unseen."""
    records = [changed(-1, 0)]
    now = 0
    for step in steps:
        records.append(ticked(now, now + step))
        now += step
    assert judged(*records) == set()
    place = 1 + broken % (len(steps) - 1)
    if drops:
        del records[place]
    else:
        records.insert(place, records[place])
    order.shuffle(records)  # type: ignore[attr-defined]
    batches: list[JournalBatch] = renumbered(Forge().batch(record).batches[0] for record in records)
    assert refuted(audited(batches)) == {Promise.EVERY_INSTANT}
