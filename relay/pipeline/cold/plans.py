"""A sweep's plans: what each has taken from the cold store, so that no other takes it again.

    plans/topic=orders/00000007/plan.json     what it takes, and under which marks
    plans/topic=orders/00000007/staged.json   where its rows lie, and in which batches
    plans/topic=orders/00000007/done.json     it is over: its inputs are consumed, or free again

Each of these files is created only if it is absent. A topic has one plan at a time: a plan begins when the
one before it is done. A sweep that is killed leaves an open plan, and the next sweep goes on with it. If two
sweeps begin the same plan, one is first, and the other joins in or ends.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, unquote

from relay.pipeline.cold.store import CANCELLED, ColdStore, DataFile, Write, hour_text
from relay.pipeline.spark.files import Files

SWEEP, COMPACTION = "sweep", "compaction"
NEVER = 1 << 62
LONGEST, CUT = 150, "+"


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one sweep or compaction of one topic. `rivals` are files that may hold newer rows of the
    same timers. `epoch` has that of the marks of each partition of `layout`, with blanks between them."""

    number: int
    topic: str
    epoch: str
    until: str
    batch: int
    inputs: tuple[DataFile, ...]
    rivals: tuple[DataFile, ...]
    kind: str = SWEEP
    layout: str = ""

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)


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
class Holdings:
    """A topic's files, with the names of those that plans have taken, and of those that compactions made,
    each with the plan's number."""

    files: list[DataFile]
    consumed: dict[str, int]
    made: dict[str, int]

    @property
    def resting(self) -> list[DataFile]:
        """The files that no plan has taken."""
        return [file for file in self.files if file.name not in self.consumed]

    def resting_of(self, writes: Iterable[Write]) -> tuple[DataFile, ...]:
        """The resting files of these writes, and those that compactions made."""
        names = {file.name for write in writes for file in write.files}
        return tuple(file for file in self.resting if file.name in names or file.name in self.made)

    def rivals(self, inputs: Sequence[DataFile]) -> tuple[DataFile, ...]:
        """Return files that may hold newer rows of the inputs' timers. Files that earlier plans have taken
        are among them, since a replaced row must not win over their rows, however long it rests and however
        late it came.

        Two kinds of files can't hold newer rows: the neighbours of an input, if no timer has two rows in a
        write; and files that were taken before a compaction made the input, or by it, since the compaction
        has compared them.
        """
        oldest: dict[tuple[str, int], int] = {}
        for file in inputs:
            if file.hour == CANCELLED:
                continue  # it has no effect
            kind = file.folder if file.single else "", self.made.get(file.name, 0)
            oldest[kind] = min(file.oldest, oldest.get(kind, file.oldest))
        names = {file.name for file in inputs}

        def is_rival(file: DataFile) -> bool:
            taken = self.consumed.get(file.name, NEVER)
            return any(
                version <= file.newest and folder != file.folder and made < taken
                for (folder, made), version in oldest.items()
            )

        return tuple(file for file in self.files if file.name not in names and is_rival(file))

    @property
    def over(self) -> set[str]:
        """The names of files that plans have taken, and that need not be compared with resting rows any
        more."""
        return self.consumed.keys() - {file.name for file in self.rivals(self.resting)}


class Plans:
    """The plans of one topic."""

    def __init__(self, files: Files, topic: str) -> None:
        self._files = files
        self.topic = topic
        self.folder = f"plans/{folder_name(topic)}"

    def numbers(self) -> list[int]:
        """All plans that were begun, in order."""
        return sorted(int(name) for name in self._files.names(self.folder) if name.isdigit())

    def following(self) -> int:
        """The number of the open plan, or of the next one if none is open."""
        numbers = self.numbers()
        if not numbers:
            return 1
        return numbers[-1] + 1 if self.done(numbers[-1]) is not None else numbers[-1]

    def plan(self, number: int) -> Plan | None:
        found = self._read(number, "plan")
        if found is None:
            return None
        return Plan(**{**found, "inputs": _files(found["inputs"]), "rivals": _files(found["rivals"])})

    def staged(self, number: int) -> Staged | None:
        found = self._read(number, "staged")
        return found and Staged(found["folder"], tuple(map(tuple, found["files"])), found.get("columns", ""))

    def done(self, number: int) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._read(number, "done")
        return found

    def begin(self, plan: Plan) -> bool:
        """Write the plan; return whether this one has the number now."""
        return self._publish(plan.number, "plan", asdict(plan))

    def stage(self, number: int, staged: Staged) -> bool:
        """Write the staging; return whether this one counts."""
        return self._publish(number, "staged", asdict(staged))

    def end(self, plan: Plan, counts: dict[str, int], added: Sequence[DataFile] = ()) -> bool:
        """End a plan: its inputs are consumed, and `added` are there instead. Returns false if somebody else
        has ended it differently."""
        document = {
            "consumed": [file.name for file in plan.inputs],
            "added": [asdict(file) for file in added],
            **counts,
        }
        return self._publish(plan.number, "done", document)

    def abandon(self, number: int) -> bool:
        """Give a plan up: it takes nothing, and its inputs are free for the next one."""
        return self._publish(number, "done", {"consumed": [], "abandoned": True})

    def all_done(self) -> dict[int, dict[str, Any]]:
        """Return the combined effect of the plans that are over."""
        found = {number: self.done(number) for number in self.numbers()}
        return {number: done for number, done in found.items() if done is not None}

    def holdings(self, settled: Iterable[Write]) -> Holdings:
        """Return the topic's files: those of settled writes, and those that compactions made of them."""
        done = self.all_done()
        added = {number: _files(each.get("added", ())) for number, each in done.items()}
        written = [file for write in settled for file in write.files if file.topic == self.topic]
        return Holdings(
            [*written, *(file for files in added.values() for file in files)],
            {name: number for number, each in done.items() for name in each["consumed"]},
            {file.name: number for number, files in added.items() for file in files},
        )

    def remove(self, number: int) -> None:
        """Forget a plan. The last one must stay."""
        self._files.remove(f"{self.folder}/{number:08d}")

    def _read(self, number: int, part: str) -> Any:
        text = self._files.read(f"{self.folder}/{number:08d}/{part}.json")
        return None if text is None else json.loads(text)

    def _publish(self, number: int, part: str, document: dict[str, Any]) -> bool:
        return self._files.publish(f"{self.folder}/{number:08d}/{part}.json", json.dumps(document))


def topics(cold: ColdStore, writes: Iterable[Write]) -> list[str]:
    """Return all topics that have, or had, anything in the store, even if all their rows come from a
    compaction whose writes have been forgotten."""
    planned = (_topic_of(cold.files, name) for name in cold.files.names("plans") if name[0] != ".")
    return sorted({name for name in planned if name}.union(*(write.topics for write in writes)))


def folder_name(topic: str) -> str:
    """Return the name of a topic's folder: readable, or with a digest if it would be too long for a disk."""
    quoted = quote(topic, safe="")
    if len(quoted) > LONGEST:
        quoted = f"{quoted[:LONGEST]}{CUT}{hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()}"
    return f"topic={quoted}"


def _topic_of(files: Files, folder: str) -> str | None:
    """Return the topic of a folder; None if no plan names it yet."""
    quoted = folder.removeprefix("topic=")
    if CUT not in quoted:
        return unquote(quoted)
    for number in sorted(files.names(f"plans/{folder}"), reverse=True):
        text = files.read(f"plans/{folder}/{number}/plan.json")
        if text is not None:
            return str(json.loads(text)["topic"])
    return None


def _files(documents: Iterable[dict[str, Any]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(**document) for document in documents)


def make(
    cold: ColdStore,
    plans: Plans,
    number: int,
    epoch: str,
    until: int | None,
    batch: int,
    layout: str = "",
) -> Plan:
    """Make a plan for timers that are due by `until` (microseconds; None for all), to the end of that hour.

    A write that is committed and not settled is not an input but a rival: a cancel may have been at Redis
    before there were marks, and may be settled before this plan's rows are there.
    """
    last = hour_text(until) if until is not None else "9999-99"
    writes = cold.writes()
    held = plans.holdings(writes)
    resting = held.resting_of(cold.settled(writes))
    inputs = tuple(file for file in resting if file.hour <= last and file.hour != CANCELLED)
    return Plan(number, plans.topic, epoch, last, batch, inputs, held.rivals(inputs), layout=layout)
