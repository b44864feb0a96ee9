"""An audit of timers that go from one partition to another: whatever the clocks of nodes show, and in
whichever order their entries are read, it says the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Self

import pytest

from relay.core.audit import Promise, PromiseVerdict, Report
from relay.core.audit.hand_overs import NO_DEPARTURE
from relay.core.journal import JournalBatch, JournalRecord, RecordKind
from tests.audit.forge import DEAD_ID, START, Forge, audited, refuted, unsaid

EARLY, ONCE, LEASED, NEWEST, ATTEMPTS, INSTANTS = Promise
ALL = set(Promise)
GROWS, SHRINKS = "2:0>1", "4:1>0"
"""A topic of one partition gets a second one, and goes back to one."""
MERGES = 12
"""Orders in which the entries of several partitions are read, beside one partition after the other."""


class Part(Forge):
    """The journal of one partition. Its clock is its own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number_of_part = number

    def batch(self, *records: JournalRecord) -> Self:
        super().batch(*records)
        last = self.batches[-1]
        self.batches[-1] = JournalBatch(
            f"{last.entry}#{self.number_of_part}", last.time, last.first, last.last, last.records
        )
        return self

    def handed(self, kind: RecordKind, move: str, name: int, *timer_ids: str, **fields: Any) -> Self:
        hand_over = f"{move}:{START + name}"
        return self.batch(*(JournalRecord(kind, each, hand_over=hand_over, **fields) for each in timer_ids))

    def left(self, name: int = 1, *timer_ids: str, move: str = GROWS) -> Self:
        return self.handed(RecordKind.LEFT, move, name, *(timer_ids or ("t",)))

    def arrived(self, name: int = 1, *timer_ids: str, move: str = GROWS) -> Self:
        return self.handed(RecordKind.ARRIVED, move, name, *(timer_ids or ("t",)))

    def returned(self, name: int = 1, *timer_ids: str, move: str = GROWS) -> Self:
        return self.handed(RecordKind.RETURNED, move, name, *(timer_ids or ("t",)))


@dataclass
class Parts:
    """The journals of two partitions, 0 and 1. The clock of the second is a minute behind."""

    old: Part
    new: Part

    @classmethod
    def begun(cls) -> Parts:
        parts = cls(Part(0), Part(1))
        parts.new.at = -60.0
        return parts

    def orders(self) -> Iterator[list[JournalBatch]]:
        """In which the entries may be read."""
        old, new = self.old.batches, self.new.batches
        yield [*old, *new]
        yield [*new, *old]
        for seed in range(MERGES):
            yield merged(Random(seed), old, new)


def merged(chance: Random, *streams: list[JournalBatch]) -> list[JournalBatch]:
    """Each stream in its order, and all together in any."""
    rest, found = [list(stream) for stream in streams], []
    while any(rest):
        found.append(chance.choice([stream for stream in rest if stream]).pop(0))
    return found


def shown(report: Report) -> str:
    return "\n".join(f"{each.promise.title}: {each.doubts} {each.examples}" for each in report.judgements)


# --------------------------------------------------------------------------- histories

History = Callable[[], Parts]


def moved() -> Parts:
    """A timer that was moved before it was due."""
    parts = Parts.begun()
    parts.old.scheduled("t").left()
    parts.new.arrived()
    return parts


def leased() -> Parts:
    """One that was moved under a lease."""
    parts = Parts.begun()
    parts.old.scheduled("t").claimed("t", 1).left()
    parts.new.arrived()
    return parts


def at_new(parts: Parts, after: Callable[[Part], Forge]) -> Parts:
    """What happened at the new place; time has passed there."""
    parts.new.wait(100)
    after(parts.new)
    return parts


def moved_twice() -> Parts:
    parts = leased()
    parts.new.wait(100).nacked("t", 1, 1, 1)
    parts.new.left(5, move=SHRINKS)
    parts.old.wait(200).arrived(5, move=SHRINKS).claimed("t", 2, 0.0, 1, 2, first=1).acked("t", 2)
    return parts


def came_back() -> Parts:
    """There was no room for it, and it was claimed before it went again."""
    parts = Parts.begun()
    parts.old.scheduled("t").left().returned().claimed("t", 1).left(2)
    parts.new.arrived(2)
    return parts


def ended_and_scheduled_elsewhere() -> Parts:
    """The same id, which has its timer at the new place now; nothing goes from one to the other."""
    parts = Parts.begun()
    parts.old.scheduled("t").claimed("t", 1).acked("t", 1).scheduled("t").cancelled("t")
    return at_new(parts, lambda new: new.scheduled("t").claimed("t", 2).acked("t", 2))


def a_letter() -> Parts:
    """It died at the old place, and was brought back to life at the new one."""
    parts = Parts.begun()
    parts.old.scheduled("t").claimed("t", 1).received("t", 1).dead("t", 1, 1, 1)
    parts.old.handed(RecordKind.LEFT, GROWS, 1, "t", dead_id=DEAD_ID)
    new = parts.new.wait(100)
    new.handed(RecordKind.ARRIVED, GROWS, 1, "t", dead_id="5-0", previous_dead_id=DEAD_ID)
    return parts


def redriven(first: int) -> JournalRecord:
    forge = Forge().redriven("t", first, 0.0)
    (record,) = forge.batches[0].records
    return JournalRecord(
        record.kind, "t", occurrence=record.occurrence, due=record.due, score=record.score, dead_id="5-0"
    )


LEGAL: dict[str, History] = {
    "moved and delivered": lambda: at_new(moved(), lambda new: new.claimed("t", 1).acked("t", 1)),
    "moved and cancelled": lambda: at_new(moved(), lambda new: new.cancelled("t")),
    "moved and replaced": lambda: at_new(
        moved(), lambda new: new.replaced("t", 50.0, 0.0).wait(60).claimed("t", 1, 50.0).acked("t", 1)
    ),
    "moved under a lease, which goes on": lambda: at_new(leased(), lambda new: new.acked("t", 1)),
    "moved under a lease, which lapsed": lambda: at_new(leased(), lambda new: new.again(0, 2)),
    "moved under a lease, and cancelled": lambda: at_new(
        leased(), lambda new: new.cancelled("t", 1).gone("t", 1)
    ),
    "moved there and back": moved_twice,
    "came back before it went": lambda: at_new(came_back(), lambda new: new.acked("t", 1)),
    "ended, and scheduled elsewhere": ended_and_scheduled_elsewhere,
    "a letter moved, and redriven": lambda: at_new(
        a_letter(), lambda new: new.batch(redriven(1)).claimed("t", 2, 0.0, 0, 1, first=1).acked("t", 2)
    ),
}


def moved_late() -> Parts:
    parts = Parts.begun()
    parts.old.scheduled("t", 500.0).left()
    parts.new.arrived()
    return parts


def nacked() -> Parts:
    parts = Parts.begun()
    parts.old.scheduled("t").claimed("t", 1).nacked("t", 1, 1, 1).left()
    parts.new.arrived()
    return parts


def leased_long() -> Parts:
    parts = Parts.begun()
    parts.old.scheduled("t").claimed("t", 1, score=START + 10**9).left()
    parts.new.arrived()
    return parts


def both() -> Parts:
    """The old place went on with what it had given away."""
    parts = at_new(moved(), lambda new: new.claimed("t", 1).acked("t", 1))
    parts.old.claimed("t", 2).acked("t", 2)
    return parts


def over_another() -> Parts:
    parts = Parts.begun()
    parts.old.scheduled("t").left()
    parts.new.scheduled("t").arrived()
    return at_new(parts, lambda new: new.claimed("t", 1).acked("t", 1))


def left_twice() -> Parts:
    parts = Parts.begun()
    parts.old.scheduled("t").left().left(2)
    parts.new.arrived().wait(100).claimed("t", 1).acked("t", 1)
    return parts


BROKEN: dict[str, tuple[History, set[Promise]]] = {
    "claimed before it is due": (
        lambda: at_new(moved_late(), lambda new: new.claimed("t", 1, 500.0).acked("t", 1)),
        {EARLY},
    ),
    "the due time lost on the way": (
        lambda: at_new(moved_late(), lambda new: new.claimed("t", 1, 5.0).acked("t", 1)),
        {EARLY, NEWEST},
    ),
    "attempts lost on the way": (
        lambda: at_new(nacked(), lambda new: new.claimed("t", 2, 0.0, 0, 2, first=1).acked("t", 2)),
        {ATTEMPTS},
    ),
    "the occurrence lost on the way": (
        lambda: at_new(nacked(), lambda new: new.claimed("t", 2, 0.0, 1, 2).acked("t", 2)),
        {NEWEST},
    ),
    "claimed while the lease of the old place stands": (
        lambda: at_new(leased_long(), lambda new: new.again(0, 2)),
        {LEASED},
    ),
    "ended under a token that was void before": (
        lambda: at_new(nacked(), lambda new: new.acked("t", 1)),
        {LEASED},
    ),
    "a valid token refused": (
        lambda: at_new(leased(), lambda new: new.stale("t", 1).acked("t", 1)),
        {LEASED},
    ),
    "delivered at both places": (both, {NEWEST}),
    "arrived over a timer of its id": (over_another, {ONCE}),
    "left twice": (left_twice, {NEWEST}),
    "never ended": (moved, {ONCE}),
}  # fmt: skip


# --------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("name", LEGAL)
def test_legal(name: str, exclusive: bool) -> None:
    """Proved, whichever entry is read first."""
    for batches in LEGAL[name]().orders():
        report = audited(batches, exclusive=exclusive)
        assert report.verdict is PromiseVerdict.PROVED, shown(report)


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    """Refuted, whichever entry is read first."""
    history, promises = BROKEN[name]
    for batches in history().orders():
        report = audited(batches)
        assert promises <= refuted(report), shown(report)


def test_a_letter_redriven_as_another_occurrence() -> None:
    """Refuted where it is read that the letter left before it arrived; else nobody knows whose it was."""
    parts = at_new(
        a_letter(), lambda new: new.batch(redriven(9)).claimed("t", 2, 0.0, 0, 1, first=9).acked("t", 2)
    )
    assert refuted(audited([*parts.old.batches, *parts.new.batches])) == {NEWEST}


def test_on_its_way() -> None:
    """It left, and no arrival was read: it lives, and says where. Only Redis can tell that it is lost."""
    parts = Parts.begun()
    parts.old.scheduled("t").claimed("t", 1).left()
    there = audited(parts.old.batches, at_rest=False, there={"t": (True, False)})
    assert there.verdict is PromiseVerdict.PROVED, shown(there)
    assert [(each.timer_id, each.state) for each in there.open] == [("t", "on its way")]
    assert unsaid(audited(parts.old.batches, at_rest=False)) == {ONCE}
    lost = audited(parts.old.batches, at_rest=False, there={})
    assert refuted(lost) == {ONCE}
    assert lost.open[0].state == "gone"
    assert refuted(audited(parts.old.batches, there={"t": (True, False)})) == {ONCE}, "it is not at rest"


def test_an_arrival_of_which_no_departure_is_read() -> None:
    """What was before can't be said, and refutes nothing; what follows is judged."""
    parts = at_new(leased(), lambda new: new.acked("t", 1))
    report = audited(parts.new.batches)
    assert (refuted(report), unsaid(report)) == (set(), ALL)
    assert list(report.of(ONCE).doubts) == [NO_DEPARTURE]
    parts = at_new(leased(), lambda new: new.again(1, 5).scheduled("x", 500.0).claimed("x", 9, 500.0))
    assert EARLY in refuted(audited(parts.new.batches))


def test_a_departure_that_never_comes() -> None:
    """A later hand-over of the partition tells: nobody waits to the end."""
    parts = Parts.begun()
    parts.new.arrived(1, "lost").arrived(2, "t").wait(100).claimed("lost", 1).acked("lost", 1)
    parts.old.scheduled("t").left(2)
    for batches in parts.orders():
        report = audited(batches, at_rest=False, there={"t": (True, True)})
        assert (refuted(report), unsaid(report)) == (set(), ALL), shown(report)
        assert report.counts["committed"] == 1


@pytest.mark.parametrize("name", LEGAL)
def test_records_missing_anywhere(name: str) -> None:
    """A gap in the journal of either partition refutes nothing, and nothing is proved."""
    whole = LEGAL[name]()
    for part, other in ((whole.old, whole.new), (whole.new, whole.old)):
        for lost in range(len(part.batches) - 1):
            left = part.batches[:lost] + part.batches[lost + 1 :]
            for seed in range(MERGES):
                report = audited(merged(Random(seed), left, other.batches), at_rest=False)
                assert (refuted(report), unsaid(report)) == (set(), ALL), (lost, shown(report))


def test_what_has_arrived_where_records_are_missing() -> None:
    """Its arrival is among those: it may have ended since, and is not called lost."""
    parts = at_new(moved(), lambda new: new.claimed("t", 1).acked("t", 1).scheduled("x").cancelled("x"))
    late = parts.new.batches[3:]
    for seed in range(MERGES):
        batches = merged(Random(seed), parts.old.batches, late)
        report = audited(batches, exclusive=False, at_rest=False, there={})
        assert (refuted(report), unsaid(report)) == (set(), ALL), shown(report)


def test_a_gap_is_that_of_its_partition() -> None:
    """What is known of the timers of another stays certain: a break there is one."""
    parts = Parts.begun()
    parts.old.scheduled("a").scheduled("t").claimed("t", 1)
    parts.new.scheduled("b").scheduled("c")
    batches = [*parts.old.batches, parts.new.batches[1]]
    gone = audited(batches, exclusive=False, at_rest=False, there={"c": (True, False), "a": (True, False)})
    assert refuted(gone) == {ONCE}, "t is gone, and its journal is whole"
