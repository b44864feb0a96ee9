"""Moves a cold store of the first format, Parquet files behind manifests of its own, into a table.

    OLD/data/<write>/topic=orders/due_hour=2026-12-01-09/*.parquet
    OLD/commits/<version>-<write>.json, OLD/settled/<version>-<write>.json
    OLD/plans/topic=orders/00000007/{plan,done}.json

Only what rests is moved: rows that no plan has taken, and that no later row replaces or cancels. A write that
was not settled stays so, and the next sweep finishes it. The old store is only read. No job of an older
release may run beside this or after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import md5
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.cold.intents import rank
from relay.pipeline.cold.store import BEGUN, MOVES, STORE, ColdStore, name_of
from relay.pipeline.spark.files import Files

SCHEMA = "timer_id string, version long, due_us long, expires_us long, envelope binary"
NAMES = tuple(part.split()[0] for part in SCHEMA.split(", "))
COUNTED = ("topic", "timer_id", "due_us", "expires_us", "envelope")


class OldFile(NamedTuple):
    """A file of one topic, and the version of its write. A file that a compaction made has rows of many."""

    name: str
    topic: str
    version: int
    settled: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """The counts of a move: topics, and rows, without those that were not settled."""

    topics: int = 0
    rows: int = 0
    unsettled: int = 0


class OldStore:
    """Reads a store of the first format. Raises `InvalidField` if a sweep of it was not finished."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._files = spark, Files(spark, path)
        settled = set(self._files.names("settled"))
        self.files: list[OldFile] = []
        for name in self._files.names("commits"):
            if name[0] == "." or not name.endswith(".json"):
                continue
            write = self._read(f"commits/{name}")
            for each in write["files"]:
                self.files.append(OldFile(each["name"], each["topic"], write["version"], name in settled))
        self.taken: set[str] = set()
        for folder in self._files.names("plans"):
            self._add_plans(f"plans/{folder}")
        self.topics = sorted({file.topic for file in self.files})
        told = self._read(STORE)
        self.name: str = told["name"] if told else md5(self._files.root.encode()).hexdigest()
        """The store's name; before it had one, that of its path."""

    def _add_plans(self, folder: str) -> None:
        for number in self._files.names(folder):
            plan, done = (self._read(f"{folder}/{number}/{part}.json") for part in ("plan", "done"))
            if done is None and plan is not None and plan["kind"] == "sweep":
                why = f"has an unfinished sweep of {plan['topic']!r}: run it with the older release first"
                raise InvalidField("old", why)
            if done is not None:
                self.taken |= set(done["consumed"])
                made = done.get("added", ())
                self.files += [OldFile(each["name"], each["topic"], 0, True) for each in made]

    def resting(self, topic: str) -> DataFrame:
        """Return a topic's rows that count and rest, those of unsettled writes included, as `topic, timer_id,
        version, due_us, expires_us, envelope, settled`."""
        mine = [file for file in self.files if file.topic == topic]
        parts = [self._rows(some, taken, settled) for taken, settled, some in self._parts(mine)]
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionAll(part)
        best = rows.groupBy(f.col("timer_id").alias("id")).agg(f.max(rank()).alias("rank"))
        won = rows.join(best, (f.col("timer_id") == f.col("id")) & (rank() == f.col("rank")), "left_semi")
        rests = won.where("not taken and (due_us is not null or not settled)").dropDuplicates(["timer_id"])
        return rests.select(f.lit(topic).alias("topic"), *NAMES, "settled")

    def _parts(self, files: Sequence[OldFile]) -> Iterable[tuple[bool, bool, list[OldFile]]]:
        for taken in (False, True):
            for settled in (False, True):
                some = [file for file in files if (file.name in self.taken, file.settled) == (taken, settled)]
                if some:
                    yield taken, settled, some

    def _rows(self, files: Sequence[OldFile], taken: bool, settled: bool) -> DataFrame:
        read = self._spark.read.schema(SCHEMA).parquet(*(self._files.at(file.name) for file in files))
        return read.withColumns({"taken": f.lit(taken), "settled": f.lit(settled)})

    def _read(self, name: str) -> Any:
        text = self._files.read(name)
        return None if text is None else json.loads(text)


def move(old: OldStore, cold: ColdStore) -> Moved:
    """Bring what rests in an old store into a new one, which may be in use. It may be killed anywhere and run
    again. Raises `RuntimeError` if what has arrived is not what was read.

    All rows arrive before any counts, and a file says that they have: who goes on behind it brings none
    again, also if sweeps have taken and deleted some by then.
    """
    if not old.files:
        return Moved()
    version = max(file.version for file in old.files) + 1
    waiting = sorted({file.version for file in old.files if not file.settled})
    arrived = f"{MOVES}/{old.name}.arrived.json"
    if cold.files.read(arrived) is None:
        # Their versions are as old as the writes: without this file an upkeep beside us takes them for dead.
        cold.files.publish(f"{MOVES}/{old.name}.json", json.dumps({"versions": [version, *waiting]}))
        for each in (version, *waiting):
            cold.files.publish(f"{BEGUN}/{name_of(each)}", "{}")
        cold.files.publish(arrived, json.dumps(asdict(_arrived(old, cold, version, waiting))))
    for each in (*waiting, version):
        if each in cold.state().known.uncommitted:
            cold.commit(each)
    write = cold.state().commits.get(version)
    if write is not None:
        cold.settle(write)
    return Moved(**json.loads(cold.files.read(arrived) or "{}"))


def _arrived(old: OldStore, cold: ColdStore, version: int, waiting: Sequence[int]) -> Moved:
    """Bring the rows of all topics: what was settled gets one version, each other write keeps its own."""
    total = Moved()
    for topic in old.topics:
        rows = old.resting(topic)
        arrived = _brought(cold, topic, rows.where("settled"), version)
        for each in waiting:
            _brought(cold, topic, rows.where(f"not settled and version = {each}"), each)
        total = Moved(total.topics + (arrived > 0), total.rows + arrived, len(waiting))
    return total


def _brought(cold: ColdStore, topic: str, rows: DataFrame, version: int) -> int:
    """Append a topic's rows, unless they are there. An append is whole or not there at all."""
    there = (f.col("topic") == topic) & (f.col("version") == version)
    expected = _digest(rows)
    if expected[0] and _digest(cold.table.rows().where(there)) != expected:
        cold.table.append(rows, version)
        if _digest(cold.table.rows().where(there)) != expected:
            raise RuntimeError(f"the rows of {topic!r} did not arrive as they were read")
    return expected[0]


def _digest(rows: DataFrame) -> tuple[int, int]:
    """Count rows, and add up hashes of their content."""
    hashed = f.sum(f.xxhash64(*COUNTED).cast("decimal(38,0)"))
    found = rows.agg(f.count("*"), f.coalesce(hashed, f.lit(0))).first()
    assert found is not None  # an aggregate without groups has one row
    return int(found[0]), int(found[1])
