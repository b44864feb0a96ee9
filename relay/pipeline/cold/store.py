"""The cold store, where far-future timers rest as versioned rows of Parquet behind manifests.

    COLD/data/<write>/topic=orders/due_hour=2026-12-01-09/*.parquet     what one attempt wrote
    COLD/commits/<version>-<write>.json     its manifest: without one nobody sees the files
    COLD/settled/<version>-<write>.json     what it replaces is out of Redis: from then on sweeps take it
    COLD/store.json                         the store's name, by which Redis knows whose sweep it is
    COLD/plans/topic=orders/00000007/…      what sweeps do with it; see `plans`
    COLD/staged/…                           rows on their way to Redis; see `staging`

No file is ever changed, and a manifest is created only if it is absent. A row is an intent: to schedule a
timer, or, in `due_hour=cancelled` and without a due time, to cancel it. The latest version of a timer's rows
counts; a row's version is that of its write: the time by the clock of Redis at which the write began.
`ColdTable` is what another table format would have to provide.
"""

from __future__ import annotations

import datetime as dt
import json
import secrets
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.instants import LATEST
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.hour_folders import hour_of

SCHEMA = "timer_id string, version long, due_us long, expires_us long, envelope binary"
STORE = "store.json"
CANCELLED = "cancelled"
"""The folder of cancels, since a cancel does not know the timer's due time."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for the folder of nulls. A topic may have this name, and no topic is null."""

VERSION_BITS = 10
"""The random digits behind the microseconds, so that two writes do not share a version."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file: its name below the store, and its rows of one topic and hour. `single` means that no timer
    has two rows in its folder, which is that of one write."""

    name: str
    topic: str
    hour: str
    rows: int
    oldest: int
    newest: int
    single: bool = False

    @property
    def folder(self) -> str:
        return "/".join(self.name.split("/")[:2])


@dataclass(frozen=True, slots=True)
class Write:
    """One committed write."""

    version: int
    name: str
    files: tuple[DataFile, ...]

    @property
    def manifest(self) -> str:
        return f"{self.version:019d}-{self.name}.json"

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def topics(self) -> set[str]:
        return {file.topic for file in self.files}

    @property
    def began(self) -> int:
        """When the write began, in microseconds, by the clock of Redis."""
        return self.version >> VERSION_BITS


class ColdTable(Protocol):
    """What jobs need of a cold store, in whatever format it keeps its rows."""

    def write(self, rows: DataFrame, version: int) -> Write | None: ...
    def cancel(self, rows: DataFrame, version: int, *, settled: bool = False) -> Write | None: ...
    def settle(self, write: Write) -> None: ...
    def writes(self) -> list[Write]: ...
    def settled(self, writes: Iterable[Write]) -> list[Write]: ...
    def read(self, files: Sequence[DataFile]) -> DataFrame: ...


def hour_text(instant: int) -> str:
    """Return the hour of an instant in microseconds, as in the files. Beyond the year 9999, which no timer
    reaches, it is that year's last hour."""
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=min(instant, LATEST))
    return moment.strftime("%Y-%m-%d-%H").rjust(13, "0")


class ColdStore:
    """A `ColdTable` of Parquet under a path that Spark can write to. Raises Spark's and Hadoop's errors as
    they are."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.files = Files(spark, path)

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
        all that exist."""
        names = self._manifests()
        last = int(names[-1].partition("-")[0]) if names else 0
        return max((now << VERSION_BITS) + secrets.randbelow(1 << VERSION_BITS), last + 1)

    def write(self, rows: DataFrame, version: int) -> Write | None:
        """Commit rows of `topic, timer_id, due_us, expires_us, envelope`; return None if there are none. What
        they replace must then be retired, and the write settled."""
        return self._commit(rows.withColumn("due_hour", hour_of(f.col("due_us"))), version)

    def cancel(self, rows: DataFrame, version: int, *, settled: bool = False) -> Write | None:
        """Commit cancels, given as rows of `topic, timer_id`. With `settled` they are about resting rows
        alone: then there is no moment in which a sweep could take timers that live in Redis for ones to
        retire."""
        nothing = {name: f.lit(None) for name in ("due_us", "expires_us", "envelope")}
        return self._commit(rows.withColumns({**nothing, "due_hour": f.lit(CANCELLED)}), version, settled)

    def _commit(self, rows: DataFrame, version: int, settled: bool = False) -> Write | None:
        name = uuid.uuid4().hex
        folder = f"data/{name}"
        table = rows.select(
            "topic",
            "due_hour",
            "timer_id",
            f.lit(version).cast("long").alias("version"),
            f.col("due_us").cast("long"),
            f.col("expires_us").cast("long"),
            f.col("envelope").cast("binary"),
        ).hint("rebalance", "topic", "due_hour")  # few files, and no task with all rows of an hour
        table.write.partitionBy("topic", "due_hour").parquet(self.files.at(folder))
        write = Write(version, name, tuple(self.describe(folder)))
        if not write.files:
            self.files.remove(folder)
            return None
        if settled:
            self.settle(write)
        self.files.publish(f"commits/{write.manifest}", json.dumps(asdict(write)))
        return write

    def keep(self, rows: DataFrame, topic: str) -> list[DataFile]:
        """Write rows of one topic that have their versions already. Nobody sees them until a plan names
        them."""
        folder = f"data/{uuid.uuid4().hex}"
        whole = rows.select("*", f.lit(topic).alias("topic"), hour_of(f.col("due_us")).alias("due_hour"))
        whole.hint("rebalance", "due_hour").write.partitionBy("topic", "due_hour").parquet(
            self.files.at(folder)
        )
        return self.describe(folder)

    def describe(self, folder: str) -> list[DataFile]:
        """List the files of a folder."""
        table = self.spark.read.schema(f"{SCHEMA}, topic string, due_hour string")
        topic = f.coalesce("topic", f.lit(NULL_FOLDER)).alias("topic")
        found = (
            table.parquet(self.files.at(folder))
            .groupBy(topic, "due_hour", f.col("_metadata.file_path").alias("path"))
            .agg(
                f.count("*").alias("rows"), f.min("version").alias("oldest"), f.max("version").alias("newest")
            )
        )
        root = len(_plain(self.files.root)) + 1
        single = self._is_single(folder)
        return [
            DataFile(
                _plain(unquote(row.path))[root:],
                row.topic,
                row.due_hour,
                row.rows,
                row.oldest,
                row.newest,
                single,
            )
            for row in found.sort("path").toLocalIterator()  # one a file, and not one a timer
        ]

    def _is_single(self, folder: str) -> bool:
        """Whether no timer has two rows there. This is found once, and saves each sweep of one write the
        search."""
        table = self.spark.read.schema("timer_id string, topic string").parquet(self.files.at(folder))
        return table.groupBy(f.xxhash64("topic", "timer_id")).count().where("count > 1").isEmpty()

    def settle(self, write: Write) -> None:
        """Settle a write: what its rows replace is out of Redis, and from now on sweeps take it."""
        self.files.publish(f"settled/{write.manifest}", "{}")

    # ------------------------------------------------------------------------------ reading

    def writes(self) -> list[Write]:
        """Return all committed writes, the oldest first."""
        texts = (self.files.read(f"commits/{name}") for name in self._manifests())
        return [_write(json.loads(text)) for text in texts if text is not None]

    def _manifests(self) -> list[str]:
        """List manifests, the oldest first, without drafts, which a killed job leaves beside them."""
        names = self.files.names("commits")
        return [name for name in names if name[0] != "." and name.endswith(".json")]

    def settled(self, writes: Iterable[Write]) -> list[Write]:
        """Return the writes that are settled."""
        names = set(self.files.names("settled"))
        return [write for write in writes if write.manifest in names]

    def read(self, files: Sequence[DataFile]) -> DataFrame:
        """Return the rows of files: `timer_id, version, due_us, expires_us, envelope`."""
        if not files:
            return self.spark.createDataFrame([], SCHEMA)
        return self.spark.read.schema(SCHEMA).parquet(*(self.files.at(file.name) for file in files))


def _write(document: dict[str, object]) -> Write:
    files = tuple(DataFile(**file) for file in document["files"])  # type: ignore[attr-defined]
    return Write(int(str(document["version"])), str(document["name"]), files)


def _plain(path: str) -> str:
    """Return a path without scheme and leading slashes: Spark writes `file:///a` where Hadoop writes
    `file:/a`."""
    scheme, colon, rest = path.partition(":")
    return (rest if colon and "/" not in scheme else path).lstrip("/")
