"""The work of an audit's workers: the rules of `relay.core.audit` on sorted rows, timer by timer.

Rows come as Arrow, all rows of a timer together and in the journal's order. Findings leave as
`relay.pipeline.audit.facts`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from relay.core.audit.per_timer import Apart, Finding, StretchTally
from relay.core.audit.state import Living
from relay.core.journal import JournalRecord
from relay.pipeline.audit.facts import FACTS_AT_ONCE, HOUR, FactRows
from relay.pipeline.lake.journal_rows import id_of, records, values

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Around:
    """What all timers of a topic share: the gaps of each of its partitions, in order, and its last batch.

    `certain` is false if there are more gaps than are listed: then records behind them are not compared with
    each other.
    """

    gaps: Mapping[int, tuple[Place, ...]] = field(default_factory=dict)
    last_entry: str = ""
    last_time: int = 0
    certain: bool = True

    def epoch(self, partition: int, place: Place, number: int) -> int:
        """Return the number of gaps before a record in its partition's journal."""
        gaps = self.gaps.get(partition, ())
        count = bisect_right(gaps, place)
        return count if self.certain or count < len(gaps) else count + number

    def last_epoch(self, partition: int) -> int:
        """The last one, as `epoch` counts. A timer that lives from an earlier one is uncertain."""
        return len(self.gaps.get(partition, ())) if self.certain else -1


@dataclass(frozen=True, slots=True)
class Replay:
    """A worker's part of an audit. `step` is the width of the steps of the backlog, in microseconds."""

    topics: Mapping[str, Around]
    exclusive: bool
    step: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _Worker(self).run(batches)


class _Worker:
    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._facts = FactRows()
        self._rules = Apart(self._found, self._late, exclusive=replay.exclusive)
        self._topic = ""
        self._key: tuple[str | None, bytes | None] = (None, None)
        self._around = Around()
        self._hours: dict[int, StretchTally] = {}
        self._hour = -1
        self._steps: Counter[tuple[str, int]] = Counter()
        self._alive: tuple[int, int] | None = None
        """Return since when the timer lives, and when it is due."""

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = ("topic", "timer_id", "raw_id", "place", "ms", "seq", "number", "entry", "used", "at")
        for batch in batches:
            heads = zip(*(values(batch.column(name)) for name in names), strict=True)
            for (topic, timer_id, raw_id, place, ms, seq, number, entry, used, at), record in zip(
                heads, records(batch), strict=True
            ):
                if (timer_id, raw_id) != self._key or topic != self._topic:
                    self._other(topic, timer_id, raw_id)
                self._see(entry, self._around.epoch(place, (ms, seq), number), used, at, record)
            yield from self._facts.take(FACTS_AT_ONCE)
        self._end_of_timer()
        self._end_of_topic()
        yield from self._facts.take()

    def _other(self, topic: str, timer_id: str, raw_id: bytes | None) -> None:
        self._end_of_timer()
        if topic != self._topic:
            self._end_of_topic()
            self._topic, self._around = topic, self._replay.topics[topic]
        self._key = (timer_id, raw_id)
        self._rules.other()

    def _see(self, entry: str, epoch: int, used: bool, at: int, record: JournalRecord) -> None:
        hour = at // HOUR
        if hour != self._hour:
            self._hour = hour
            self._rules.count(self._hours.setdefault(hour, StretchTally()))
        self._rules.see(entry, at, epoch, used, record)
        self._follow(at, self._rules.remains())

    # ------------------------------------------------------------------------------ the backlog

    def _follow(self, at: int, timer: Living | None) -> None:
        """Count when the timer begins to live, becomes overdue, and ends."""
        known = self._alive
        due = timer.due if timer is not None and timer.due is not None else at
        if (timer is None) == (known is not None):
            self._rules.tally.counts["began" if known is None else "ended"] += 1
        if timer is None:
            if known is not None:
                self._mark("open", known[0], at)
                self._mark("overdue", max(known), at)
                self._alive = None
        elif known is None:
            self._alive = (at, due)
        elif due != known[1]:
            self._mark("overdue", max(known), at)
            self._alive = (known[0], due)

    def _mark(self, name: str, start: int, end: int | None) -> None:
        """Count a span between two instants at the steps' ends. An `end` of None means that it goes on."""
        step = self._replay.step
        first = -(-start // step)
        if end is None:
            self._steps[name, first] += 1
        elif (last := -(-end // step)) > first:
            self._steps[name, first] += 1
            self._steps[name, last] -= 1

    # ------------------------------------------------------------------------------ ends

    def _end_of_timer(self) -> None:
        self._rules.settle()
        timer_id, raw_id = self._key
        for _, timer, on_way, place in self._rules.remaining():
            self._facts.add(
                "living", self._topic, timer_id=timer_id, raw_id=raw_id, at=timer.time, due=timer.due,
                entry=timer.entry, occurrence=timer.occurrence or b"", epoch=timer.epoch,
                recorded=timer.recorded, leased=timer.live_lease is not None, place=place.number,
                target=on_way.hand_over.target if on_way is not None else None,
            )  # fmt: skip
        if self._alive is not None:
            self._mark("open", self._alive[0], None)
            if max(self._alive) <= self._around.last_time:
                self._mark("overdue", max(self._alive), None)
        self._alive = None

    def _end_of_topic(self) -> None:
        for hour, tally in self._hours.items():
            counted: dict[str, int] = defaultdict(int, tally.counts)
            counted.update({f"kind:{kind.name}": count for kind, count in tally.kinds.items()})
            counted.update({f"checked:{int(promise)}": count for promise, count in tally.checked.items()})
            for name, count in counted.items():
                self._facts.add("hour", self._topic, time=hour, name=name, count=count)
        for (name, step), count in self._steps.items():
            self._facts.add("step", self._topic, time=step, name=name, count=count)
        self._hours, self._hour = {}, -1
        self._steps.clear()

    def _found(self, found: Finding) -> None:
        self._facts.finding(self._topic, found)

    def _late(self, due: int, since: int) -> None:
        self._facts.late(self._topic, due // HOUR, since - due)


@dataclass(frozen=True, slots=True)
class Judging:
    """Judge which of the timers that live are lost. Rows of `living` with the answers of Redis (`missed` and
    `remembered`, null if it was not asked) become findings and `unasked`."""

    topics: Mapping[str, Around]
    exclusive: bool
    at_rest: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts = FactRows()
        topic = ""

        def tell(found: Finding) -> None:
            facts.finding(topic, found)

        rules = Apart(tell, lambda _due, _since: None, exclusive=self.exclusive)
        for batch in batches:
            for row in batch.to_pylist():
                topic = row["topic"]
                around = self.topics[topic]
                rules.entry, rules.now = around.last_entry, around.last_time
                timer = Living(row["epoch"], row["entry"], row["at"], row["due"], recorded=row["recorded"])
                timer.occurrence, timer.missed = row["occurrence"], row["missed"]
                timer.remembered = bool(row["remembered"])
                name, target = id_of(row["timer_id"], row["raw_id"]), row["target"]
                certain = row["epoch"] == around.last_epoch(row["place"])
                certain = certain and (target is None or around.last_epoch(target) == 0)
                if rules.judge_living(name, timer, self.at_rest, certain=certain):
                    facts.add("unasked", topic, count=1)
                if taken := rules.counts.pop("taken", 0):
                    facts.add("hour", topic, time=row["at"] // HOUR, name="taken", count=taken)
            yield from facts.take(FACTS_AT_ONCE)
        yield from facts.take()
