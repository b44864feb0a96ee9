"""A sweep's plans: what each has taken of the cold store, so that none takes it again.

    plans/topic=orders/00000007/plan.json     what it takes, and under which marks: create-if-absent, as all
    of these plans/topic=orders/00000007/staged.json   where its rows lie, in which batches
    plans/topic=orders/00000007/done.json     it is over: what it took is consumed, or nothing if it was
    abandoned

There is one plan of a topic at a time: a plan begins when the one before it is done. Whoever is killed leaves
one that is open, and whoever comes next goes on with it. Of two that begin the same one, one is first, and
the other takes part in that or ends.
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
    """What one sweep, or one compaction, of one topic does. `rivals` are files that may hold newer rows of
    the same timers."""

    number: int
    topic: str
    epoch: str
    until: str
    batch: int
    inputs: tuple[DataFile, ...]
    rivals: tuple[DataFile, ...]
    kind: str = SWEEP

    @property
    def name(self) -> str:
        return str(self.number)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.inputs)


@dataclass(frozen=True, slots=True)
class Staged:
    """Its rows as they go to Redis: `files` holds name, batches and rows of each, `columns` what is in
    them."""

    folder: str
    files: tuple[tuple[str, int, int], ...]
    columns: str

    @property
    def name(self) -> str:
        """That no other staging has."""
        return self.folder.rpartition("-")[2]

    @property
    def rows(self) -> int:
        return sum(rows for _, _, rows in self.files)

    @property
    def batches(self) -> int:
        return sum(batches for _, batches, _ in self.files)


@dataclass(frozen=True, slots=True)
class Holdings:
    """A topic's files; the names of those that plans have taken, and of those that compactions made, each
    with the plan's number."""

    files: list[DataFile]
    consumed: dict[str, int]
    made: dict[str, int]

    @property
    def resting(self) -> list[DataFile]:
        """What no plan has taken."""
        return [file for file in self.files if file.name not in self.consumed]

    def resting_of(self, writes: Iterable[Write]) -> tuple[DataFile, ...]:
        """The same, of these writes alone, and of what compactions made."""
        names = {file.name for write in writes for file in write.files}
        return tuple(file for file in self.resting if file.name in names or file.name in self.made)

    def rivals(self, inputs: Sequence[DataFile]) -> tuple[DataFile, ...]:
        """Files that may hold newer rows of what the inputs hold: also such as earlier plans have taken,
        since a row that was replaced must not win over them, however long it rests and however late it came.

        Not those that can't: an input's neighbours, where no timer has two rows in a write; and what was
        taken before a compaction made the input, or by it, since that has compared them.
        """
        oldest: dict[tuple[str, int], int] = {}
        for file in inputs:
            if file.hour == CANCELLED:
                continue  # nothing comes of it
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
        """The names of what plans have taken and nothing that rests has to be compared with."""
        return self.consumed.keys() - {file.name for file in self.rivals(self.resting)}


class Plans:
    """The plans of one topic."""

    def __init__(self, files: Files, topic: str) -> None:
        self._files = files
        self.topic = topic
        self.folder = f"plans/{folder_name(topic)}"

    def numbers(self) -> list[int]:
        """All that were begun, in order."""
        return sorted(int(name) for name in self._files.names(self.folder) if name.isdigit())

    def following(self) -> int:
        """The number of the plan that is open, or else of the next one."""
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
        """Whether it is this one that has the number now."""
        return self._publish(plan.number, "plan", asdict(plan))

    def stage(self, number: int, staged: Staged) -> bool:
        """Whether it is this staging that counts."""
        return self._publish(number, "staged", asdict(staged))

    def end(self, plan: Plan, counts: dict[str, int], added: Sequence[DataFile] = ()) -> bool:
        """It is over: its inputs are consumed, and `added` are there instead. Whether nobody said so before,
        or otherwise."""
        document = {
            "consumed": [file.name for file in plan.inputs],
            "added": [asdict(file) for file in added],
            **counts,
        }
        return self._publish(plan.number, "done", document)

    def abandon(self, number: int) -> bool:
        """It takes nothing: its inputs are free for the next one."""
        return self._publish(number, "done", {"consumed": [], "abandoned": True})

    def all_done(self) -> dict[int, dict[str, Any]]:
        """What plans that are over have come to."""
        found = {number: self.done(number) for number in self.numbers()}
        return {number: done for number, done in found.items() if done is not None}

    def holdings(self, settled: Iterable[Write]) -> Holdings:
        """The topic's files: those of settled writes, and what compactions made of them."""
        done = self.all_done()
        added = {number: _files(each.get("added", ())) for number, each in done.items()}
        written = [file for write in settled for file in write.files if file.topic == self.topic]
        return Holdings(
            [*written, *(file for files in added.values() for file in files)],
            {name: number for number, each in done.items() for name in each["consumed"]},
            {file.name: number for number, files in added.items() for file in files},
        )

    def remove(self, number: int) -> None:
        """Forget a plan; never the last one."""
        self._files.remove(f"{self.folder}/{number:08d}")

    def _read(self, number: int, part: str) -> Any:
        text = self._files.read(f"{self.folder}/{number:08d}/{part}.json")
        return None if text is None else json.loads(text)

    def _publish(self, number: int, part: str, document: dict[str, Any]) -> bool:
        return self._files.publish(f"{self.folder}/{number:08d}/{part}.json", json.dumps(document))


def topics(cold: ColdStore, writes: Iterable[Write]) -> list[str]:
    """All that have, or had, anything in the store: also those whose rows are a compaction's alone, since
    their writes have been forgotten."""
    planned = (_topic_of(cold.files, name) for name in cold.files.names("plans") if name[0] != ".")
    return sorted({name for name in planned if name}.union(*(write.topics for write in writes)))


def folder_name(topic: str) -> str:
    """Of what is known of a topic: readable, or, if that were longer than a disk takes, with a digest."""
    quoted = quote(topic, safe="")
    if len(quoted) > LONGEST:
        quoted = f"{quoted[:LONGEST]}{CUT}{hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()}"
    return f"topic={quoted}"


def _topic_of(files: Files, folder: str) -> str | None:
    """The reverse; None where no plan tells it yet."""
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


def make(cold: ColdStore, plans: Plans, number: int, epoch: str, until: int | None, batch: int) -> Plan:
    """A plan for what is due by `until` (microseconds; None for all), to the end of that hour.

    What is committed and not settled is no input, and a rival all the same: a cancel may have been at Redis
    before there were marks, and be settled before this plan's rows are there.
    """
    last = hour_text(until) if until is not None else "9999-99"
    writes = cold.writes()
    held = plans.holdings(writes)
    resting = held.resting_of(cold.settled(writes))
    inputs = tuple(file for file in resting if file.hour <= last and file.hour != CANCELLED)
    return Plan(number, plans.topic, epoch, last, batch, inputs, held.rivals(inputs))
