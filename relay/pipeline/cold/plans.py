"""A cold store's plans: what each sweep takes, so that no other takes it again.

    plans/00000007/plan.json     what it takes of which topics, and under which marks
    plans/00000007/staged.json   where its rows lie, and in which batches
    plans/00000007/done.json     it is over: what all plans up to this one have taken
    plans/00000007/closed.json   its marks are closed

Each of these files is created only if it is absent. A store has one open plan at a time: a plan begins when
the one before it is done. A sweep that is killed leaves an open plan, and the next sweep goes on with it. If
two sweeps begin the same plan, one is first, and the other joins in or ends. What a plan took is added to
what those before it took, so a sweep reads the newest `done.json` alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Self

from relay.core.partitions import Layout
from relay.pipeline.cold.taken import Consumed, Reach
from relay.pipeline.spark.files import Files
from relay.store.bulk.sweeping import Marks

FOLDER = "plans"


class Share(NamedTuple):
    """What a plan takes of one topic: the topic's layout, the marks' epoch in each partition, with blanks
    between them, and how many rows."""

    layout: str
    epoch: str
    rows: int

    def is_under(self, marks: Marks) -> bool:
        """Whether these are the marks under which the plan was made."""
        return (self.layout, self.epoch) == (marks.layout.text, marks.epoch)

    def marks(self, topic: str, plan: str) -> Marks:
        return Marks(Layout.parse(topic, self.layout), self.epoch, plan)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of writes by their versions. A version that is not in here is that of a settled write
    with a number that every plan has seen.

    `numbers` has those of settled writes; `waiting` are not settled, `uncommitted` not even committed.
    `begun` are those with a file of their own. `newest` is the largest version of all, `last` that of the
    last committed write; `single` says that this one has no timer twice.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)
    waiting: frozenset[int] = frozenset()
    uncommitted: frozenset[int] = frozenset()
    begun: frozenset[int] = frozenset()
    newest: int = 0
    last: int = 0
    single: bool = False

    def after(self, other: Known) -> Known:
        """Return this, with what was known before of the newest writes, which may be forgotten since."""
        newest = max(self.newest, other.newest)
        later = self if self.last > other.last else other
        return replace(self, newest=newest, last=later.last, single=later.single)

    def document(self) -> dict[str, Any]:
        sets = {name: sorted(getattr(self, name)) for name in ("waiting", "uncommitted", "begun")}
        rest = {name: getattr(self, name) for name in ("newest", "last", "single")}
        return {"numbers": sorted(self.numbers.items()), **sets, **rest}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        sets = {name: frozenset(document[name]) for name in ("waiting", "uncommitted", "begun")}
        return cls(**{**document, **sets, "numbers": dict(document["numbers"])})


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one sweep. It takes of its topics, or if `every` is set of all topics without those that
    were `left` out, what `reach` says and no plan before it has taken. It reads the table at the Delta
    version `table`. `oldest` is the version of its oldest row."""

    number: int
    topics: Mapping[str, Share]
    reach: Reach
    batch: int
    table: int
    known: Known = field(default_factory=Known)
    taken: Consumed = field(default_factory=Consumed)
    every: bool = False
    left: tuple[str, ...] = ()
    oldest: int = 0

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def rows(self) -> int:
        return sum(share.rows for share in self.topics.values())

    def document(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "topics": dict(self.topics),
            "reach": self.reach,
            "batch": self.batch,
            "table": self.table,
            "known": self.known.document(),
            "taken": self.taken.document(),
            "every": self.every,
            "left": self.left,
            "oldest": self.oldest,
        }

    @classmethod
    def of_document(cls, found: dict[str, Any]) -> Self:
        made = {
            "topics": {topic: Share(*share) for topic, share in found["topics"].items()},
            "reach": Reach(*found["reach"]),
            "known": Known.of_document(found["known"]),
            "taken": Consumed.of_document(found["taken"]),
            "left": tuple(found["left"]),
        }
        return cls(**{**found, **made})


@dataclass(frozen=True, slots=True)
class Staged:
    """A plan's rows as they go to Redis. `files` has the name, the batches and the rows of each file,
    `columns` the columns of all."""

    folder: str
    files: tuple[tuple[str, int, int], ...]
    columns: str

    @property
    def name(self) -> str:
        """An id that no other staging has."""
        return self.folder.rpartition("-")[2]

    @property
    def rows(self) -> int:
        return sum(rows for _, _, rows in self.files)

    @property
    def batches(self) -> int:
        return sum(batches for _, batches, _ in self.files)


@dataclass(frozen=True, slots=True)
class Done:
    """What was known when a plan was over: what all plans have taken, which writes had been seen as settled,
    and the topics of which this plan took its rows."""

    number: int = 0
    taken: Consumed = field(default_factory=Consumed)
    settled: int = 0
    known: Known = field(default_factory=Known)
    topics: frozenset[str] = frozenset()


class Plans:
    """The plans of one store."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def numbers(self) -> list[int]:
        """All plans that were begun, in order."""
        return sorted(int(name) for name in self._files.names(FOLDER) if name.isdigit())

    def following(self) -> int:
        """The number of the open plan, or of the next one if none is open."""
        numbers = self.numbers()
        if not numbers:
            return 1
        return numbers[-1] + 1 if self._read(numbers[-1], "done") is not None else numbers[-1]

    def plan(self, number: int) -> Plan | None:
        found = self._read(number, "plan")
        return None if found is None else Plan.of_document(found)

    def staged(self, number: int) -> Staged | None:
        found = self._read(number, "staged")
        return found and Staged(found["folder"], tuple(map(tuple, found["files"])), found.get("columns", ""))

    def done(self, number: int) -> Done | None:
        """Return how a plan ended. Before the first plan nothing was taken."""
        found = self._read(number, "done")
        if found is None:
            return None if number else Done()
        taken, known = Consumed.of_document(found["taken"]), Known.of_document(found["known"])
        return Done(number, taken, found["settled"], known, frozenset(found["topics"]))

    def begin(self, plan: Plan) -> bool:
        """Write the plan; return whether this one has the number now."""
        return self._publish(plan.number, "plan", plan.document())

    def stage(self, number: int, staged: Staged) -> bool:
        """Write the staging; return whether this one counts."""
        return self._publish(number, "staged", asdict(staged))

    def end(self, plan: Plan, counts: dict[str, int], without: Collection[str] = ()) -> bool:
        """End a plan: it has taken its rows, except of the topics `without`, whose rows are free for the next
        plan. Returns false if somebody else has ended it."""
        topics = plan.topics.keys() - set(without)
        if not topics:
            return self.abandon(plan.number)
        taken = plan.taken.plus(plan.reach, None if plan.every else topics, {*plan.left, *without})
        least = taken.least(plan.reach.settled)
        numbers = {
            version: number
            for version, number in plan.known.numbers.items()
            if number > least or version in plan.known.begun
        }
        known = Known(numbers).after(plan.known)
        return self._end(Done(plan.number, taken, plan.reach.settled, known, frozenset(topics)), counts)

    def abandon(self, number: int) -> bool:
        """Give a plan up: it takes nothing, and its rows are free for the next one."""
        before = self.done(number - 1)
        if before is None:  # it was forgotten, since this plan is over, too
            return False
        return self._end(Done(number, before.taken, before.settled, before.known), {"abandoned": 1})

    def is_closed(self, number: int) -> bool:
        """Whether the marks of a plan that is done were closed."""
        return self._read(number, "closed") is not None

    def close(self, number: int) -> None:
        """Note that the marks of a plan were closed."""
        self._publish(number, "closed", {})

    def remove(self, number: int) -> None:
        """Forget a plan. The last one that is done must stay."""
        self._files.remove(f"{FOLDER}/{number:08d}")

    def _end(self, done: Done, counts: dict[str, int]) -> bool:
        document = {
            "taken": done.taken.document(),
            "settled": done.settled,
            "known": done.known.document(),
            "topics": sorted(done.topics),
            "counts": counts,
        }
        return self._publish(done.number, "done", document)

    def _read(self, number: int, part: str) -> Any:
        text = self._files.read(f"{FOLDER}/{number:08d}/{part}.json")
        return None if text is None else json.loads(text)

    def _publish(self, number: int, part: str, document: dict[str, Any]) -> bool:
        return self._files.publish(f"{FOLDER}/{number:08d}/{part}.json", json.dumps(document))
