"""The cold store, where far-future timers rest as versioned rows of a Delta table.

    COLD/timers/                        the rows; see `table`
    COLD/begun/<version>.json           a write has this version from now on, and no other write ever
    COLD/commits/<version>.json         its manifest: before that its rows count for nothing
    COLD/settled/<number>.json          what it replaces is out of Redis: from then on sweeps take it
    COLD/store.json                     the store's name, by which Redis knows whose sweep it is
    COLD/plans/00000007/…               what sweeps do with it; see `plans`
    COLD/staged/…                       rows on their way to Redis; see `staging`
    COLD/moves/<name>.json              what comes from an older store, by its name; see `old_store`

Small files are never changed, and each is created only if it is absent. The latest version of a timer's rows
counts; a row's version is that of its write: the time by the clock of Redis at which the write began.

The small files of a write are there until a finished plan has seen it settled: from then on its version is
not told from those of older writes. So `begun` goes first, and who reads lists `settled`, then looks at the
table, reads the manifests, and lists `begun` last. A version of the table that has no such file is then
surely that of a settled write, and one that has it and no manifest surely is not committed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField, ServiceError
from relay.pipeline.cold.plans import Done, Known, Plans
from relay.pipeline.cold.table import Table
from relay.pipeline.cold.taken import EVER
from relay.pipeline.spark import delta
from relay.pipeline.spark.files import Files

STORE = "store.json"
BEGUN, COMMITS, SETTLED = "begun", "commits", "settled"
MOVES = "moves"

VERSION_BITS = 10
"""The random digits behind the microseconds, so that two writes seldom want one version."""


class WriteLost(ServiceError):
    """Somebody took a write for dead, since it was under way for a day or more; nothing of it counts."""


@dataclass(frozen=True, slots=True)
class Write:
    """One committed write: its rows by topic. `single` says that no timer has two rows in it; `settled` that
    it was settled from the beginning, since it replaces nothing in Redis."""

    version: int
    topics: Mapping[str, int]
    single: bool = False
    settled: bool = False

    @property
    def rows(self) -> int:
        return sum(self.topics.values())

    @property
    def began(self) -> int:
        """When the write began, in microseconds, by the clock of Redis."""
        return self.version >> VERSION_BITS


@dataclass(frozen=True, slots=True)
class State:
    """A cold store at one moment: how the last finished plan ended, the number up to which all settled writes
    are known, the next one that is free, the Delta version of the table, what is known of versions, the
    writes that have manifests, and the versions of dead ones."""

    done: Done = field(default_factory=Done)
    settled: int = 0
    free: int = 1
    table: int = -1
    known: Known = field(default_factory=Known)
    commits: Mapping[int, Write] = field(default_factory=dict)
    dead: frozenset[int] = frozenset()

    @property
    def oldest(self) -> int:
        """The version of the oldest write that may still be settled; `EVER` if there is none."""
        return min(self.known.waiting - self.dead, default=EVER)

    @property
    def unsettled(self) -> list[Write]:
        """The writes that are committed and not settled, the oldest first."""
        return [self.commits[version] for version in sorted(self.known.waiting & self.commits.keys())]

    def waiting(self, settled: int) -> frozenset[int]:
        """The versions of writes that were not settled by this number."""
        later = {version for version, number in self.known.numbers.items() if number > settled}
        return self.known.waiting | later


class ColdStore:
    """A cold store under a path that Spark can write to. Raises Spark's and Hadoop's errors as they are, and
    `InvalidField` for a session without Delta Lake."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        delta.require(spark)
        self.spark = spark
        self.files = Files(spark, path)
        self.table = Table(spark, self.files)

    @property
    def plans(self) -> Plans:
        return Plans(self.files)

    @property
    def name(self) -> str:
        """The store's id, which is the same for every reader and every path. It is made at the first look."""
        told = self.files.read(STORE)
        if told is None:  # read it again: somebody may have been quicker
            self.files.publish(STORE, json.dumps({"name": secrets.token_hex(8)}))
            told = self.files.read(STORE)
        return str(json.loads(told or "{}")["name"])

    @property
    def place(self) -> str:
        """The store's path for people, without a password."""
        user, _, _ = urlsplit(self.files.root).netloc.rpartition("@")
        return self.files.root.replace(f"{user}@", "", 1) if ":" in user else self.files.root

    # ------------------------------------------------------------------------------ writing

    def version(self, now: int) -> int:
        """Return a version for a write that begins at `now` (microseconds by the clock of Redis). It is above
        all that exist, and nobody else gets it."""
        version = (now << VERSION_BITS) + secrets.randbelow(1 << VERSION_BITS)
        version = max(version, self.state().known.newest + 1)
        while not self.files.publish(f"{BEGUN}/{name_of(version)}", "{}"):
            version += 1
        return version

    def write(self, rows: DataFrame, version: int) -> Write | None:
        """Commit rows of `topic, timer_id, due_us, expires_us, envelope`; return None if there are none. What
        they replace must then be retired, and the write settled. Raises `WriteLost`."""
        return self._commit(rows, version)

    def cancel(self, rows: DataFrame, version: int, *, settled: bool = False) -> Write | None:
        """Commit cancels, given as rows of `topic, timer_id`. With `settled` they are about resting rows
        alone: then there is no moment in which a sweep could take timers that live in Redis for ones to
        retire."""
        nothing = {name: f.lit(None) for name in ("due_us", "expires_us", "envelope")}
        return self._commit(rows.withColumns(nothing), version, settled)

    def _commit(self, rows: DataFrame, version: int, settled: bool = False) -> Write | None:
        self.table.append(rows, version)
        return self.commit(version, settled)

    def commit(self, version: int, settled: bool = False) -> Write | None:
        """Publish the manifest of rows that are in the table. Raises `WriteLost`."""
        key = f.xxhash64("timer_id")
        told = (
            self.table.rows()
            .where(f.col("version") == version)
            .groupBy("topic")
            .agg(f.count("*").alias("rows"), f.count_distinct(key).alias("timers"))
            .collect()  # one row a topic
        )
        if not told:
            self.give_back(version)
            return None
        single = all(row["rows"] == row["timers"] for row in told)
        write = Write(version, {row["topic"]: row["rows"] for row in told}, single, settled)
        manifest = {"topics": write.topics, "single": single, "settled": settled}
        if not self.files.publish(f"{COMMITS}/{name_of(version)}", json.dumps(manifest)):
            raise WriteLost("this write to the cold store was taken for dead; run the job again")
        return write

    def settle(self, write: Write) -> None:
        """Settle a write: what its rows replace is out of Redis, and from now on sweeps take it.

        Between our look and our file others may settle, plan and forget: then the number has been another's
        before, and ours says nothing. So we look again.
        """
        while not self.is_settled(write):
            number = self.state().free
            self.files.publish(f"{SETTLED}/{number:012d}.json", json.dumps({"version": write.version}))

    def is_settled(self, write: Write) -> bool:
        return write.version not in self.state().known.waiting

    def give_back(self, version: int) -> None:
        """Forget a version with which no row was written."""
        self.files.remove(f"{BEGUN}/{name_of(version)}")

    def moving(self) -> frozenset[int]:
        """Return the versions with which rows come from older stores. They are old, and not dead."""
        documents = [self.files.read(f"{MOVES}/{name}") for name in self._small_files(MOVES)]
        return frozenset(each for text in documents if text for each in json.loads(text).get("versions", ()))

    def void(self, version: int) -> bool:
        """Say of a write that has no manifest that nothing of it counts. Returns false if it has one now."""
        return self.files.publish(f"{COMMITS}/{name_of(version)}", json.dumps({"void": True}))

    # ------------------------------------------------------------------------------ reading

    def state(self) -> State:
        """Read the small files. The order matters, and nobody must finish a plan meanwhile: see above."""
        while True:
            done = self._last_done()
            behind = self._settled_behind(done.settled)
            table = self.table.version()
            listed = {version: self._manifest(version) for version in self.versions(COMMITS)}
            begun = self.versions(BEGUN)
            if self._last_done().number == done.number:
                break
        # The first number of a write counts, and none if the write is forgotten: whoever settled it was late.
        numbers = {version: number for number, version in sorted(behind.items(), reverse=True)}
        numbers = {version: number for version, number in numbers.items() if version in begun}
        numbers |= done.known.numbers
        settled = done.settled  # a listing may lack the file before the last one
        while settled + 1 in behind:
            settled += 1
        commits = {version: each for version, each in listed.items() if each is not None and version in begun}
        last = max(commits, default=0)
        known = Known(
            numbers,
            waiting=begun - numbers.keys() - {version for version, each in commits.items() if each.settled},
            uncommitted=begun - commits.keys(),
            begun=begun,
            newest=max(begun, default=0),
            last=last,
            single=last in commits and commits[last].single,
        )
        free = max(behind, default=done.settled) + 1
        dead = (begun & listed.keys()) - commits.keys()
        return State(done, settled, free, table, known.after(done.known), commits, dead)

    def _last_done(self) -> Done:
        plans = self.plans
        while True:
            done = plans.done(plans.following() - 1)
            if done is not None:  # else it was forgotten since: there is a later one
                return done

    def _settled_behind(self, last: int) -> dict[int, int]:
        """Return the versions of writes that were settled after a number, by their numbers."""
        found: dict[int, int] = {}
        for name in self._small_files(SETTLED):
            if int(name[:12]) <= last:
                continue
            text = self.files.read(f"{SETTLED}/{name}")
            if text is not None:
                found[int(name[:12])] = json.loads(text)["version"]
        return found

    def versions(self, folder: str) -> frozenset[int]:
        """List versions that have a file."""
        return frozenset(int(name[:-5]) for name in self._small_files(folder))

    def _small_files(self, folder: str) -> list[str]:
        """List files without drafts, which a killed job leaves beside them. Raises `InvalidField` for a store
        of the first format, whose names have a dash."""
        names = [name for name in self.files.names(folder) if name[0] != "." and name.endswith(".json")]
        if any("-" in name for name in names):
            raise InvalidField(
                "cold", f"{self.place} is from before Delta: move it with relay pipeline migrate-cold"
            )
        return names

    def _manifest(self, version: int) -> Write | None:
        text = self.files.read(f"{COMMITS}/{name_of(version)}")
        document: dict[str, Any] = json.loads(text) if text is not None else {"void": True}
        return None if "void" in document else Write(version, **document)


def name_of(version: int) -> str:
    """Return the name of a write's small files."""
    return f"{version:019d}.json"
