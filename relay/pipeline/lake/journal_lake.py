"""The journal's lake: rows of `timers_journal` as Parquet, by topic and hour, each exactly once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from relay.core.partitions import topic_of
from relay.pipeline.lake.journal_rows import GAP, SCHEMA
from relay.pipeline.lake.lake_log import LakeChange, LakePart, LakeState, Log, Share
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.hour_folders import hour_of

DATA = "data"
TABLE = f"{SCHEMA}, part string, hour string"
"""`part` is the folder that one attempt wrote. `hour`, such as `2026-01-01-09`, is in UTC and comes from the
entry's id, which never steps back in a stream."""

WHOLE_TOPIC = "whole_topic"
"""A column of the files: the topic, if it is too long for a folder's name (`folder_of`)."""

LONGEST = 249
"""The most bytes behind `topic=` in a folder's name that disks and HDFS take. A character that Spark escapes
counts as three."""

_ESCAPED = r"[\x{01}-\x{1F}\x{7F}\"#%'*/:=?\\{\[\]^]"
_SHORT = r"^.{0,16}\+[0-9a-f]{32}$"

PER_FILE = 5_000_000
FAN = 8
"""The number of folders of one level that are compacted into one of the next, so each row is rewritten
rarely."""

GRACE = 24 * 3600.0
"""Seconds for which replaced folders stay, for jobs that read them, and for attempts that write."""


def milliseconds(entry: str = "entry") -> Column:
    """The milliseconds of an entry's id."""
    return f.substring_index(entry, "-", 1).cast("bigint")


def sequence(entry: str = "entry") -> Column:
    """The sequence number of an entry's id."""
    return f.substring_index(entry, "-", -1).cast("bigint")


def partition() -> Column:
    """The number of the partition in whose stream a row is; 0 for a topic without a layout."""
    return f.coalesce("partition", f.lit(0))


def stream() -> Column:
    """What a row's stream is called, as `relay.store.journal.scan.JournalStream` has it."""
    number = partition()
    return f.when(number == 0, f.col("topic")).otherwise(f.concat_ws("#", "topic", number))


def folder_of(topic: Column) -> Column:
    """Return the name of a topic's folder behind `topic=`: the topic, or its beginning and a digest if it is
    too long, or if it looks like such a name."""
    escaped = f.length(topic) - f.length(f.regexp_replace(topic, _ESCAPED, ""))
    too_long = f.octet_length(topic) + 2 * escaped > LONGEST
    digest = f.substring(f.sha2(topic, 256), 1, 32)
    short = f.concat(f.substring(topic, 1, 16), f.lit("+"), digest)
    return f.when(too_long | topic.rlike(_SHORT), short).otherwise(topic)


class Lake:
    """One lake under a path. Methods raise Spark's and Hadoop's errors if something can't be read or written,
    and `InvalidField` for a log that is not Relay's."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.files = Files(spark, path)
        self.log = Log(self.files)

    # ------------------------------------------------------------------------------ reading

    def rows(self, state: LakeState | None = None, topics: Sequence[str] = (), since: str = "") -> DataFrame:
        """Return the table at this state: all of it, or some topics, from the hour `since` on."""
        state = state or self.log.state()
        parts = [
            part.folder
            for part in state.parts
            if part.last_hour >= since and (not topics or set(topics) & set(map(topic_of, part.topics)))
        ]
        rows = self._read(parts, topics)
        return rows.where(f.col("hour") >= since) if since else rows

    def _read(self, folders: Sequence[str], topics: Sequence[str] = ()) -> DataFrame:
        """Return the rows of these parts, of some topics or of all."""
        if not folders:
            return self.spark.createDataFrame([], TABLE)
        table = self.spark.read.schema(f"{TABLE}, {WHOLE_TOPIC} string").option(
            "basePath", self.files.at(DATA)
        )
        rows = table.parquet(*map(self.files.at, folders))
        if topics:  # selected by the folders' names, so that no other folder is read
            names = [*topics, *(folder_of(f.lit(topic)) for topic in topics)]
            rows = rows.where(f.col("topic").isin(*names))
        rows = rows.withColumn("topic", f.coalesce(WHOLE_TOPIC, "topic")).drop(WHOLE_TOPIC)
        return rows.where(f.col("topic").isin(*topics)) if topics else rows

    # ------------------------------------------------------------------------------ writing

    def write(self, rows: DataFrame, level: int = 0) -> LakePart:
        """Write rows of `timers_journal` into a folder of their own, which is not a part of the lake yet."""
        folder = f"{DATA}/part={uuid.uuid4().hex}"
        self.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        topic, place = f.col("topic"), folder_of(f.col("topic"))
        writer = (
            rows.drop("part")
            .withColumn("hour", hour_of(1000 * milliseconds()))
            .withColumns({WHOLE_TOPIC: f.when(place != topic, topic), "topic": place})
            .write.partitionBy("topic", "hour")
        )
        writer.options(compression="zstd", maxRecordsPerFile=str(PER_FILE)).parquet(self.files.at(folder))
        return self._described(folder, level)

    def _described(self, folder: str, level: int) -> LakePart:
        place = f.struct(milliseconds(), sequence())
        of_change = f.col("kind") != GAP
        found = (
            self._read([folder])
            .groupBy(stream().alias("stream"))
            .agg(
                f.count_if(of_change).alias("records"),
                f.count_if(~of_change).alias("gaps"),
                f.min_by("entry", place).alias("first_entry"),
                f.max_by("entry", place).alias("last_entry"),
                f.coalesce(f.max_by("batch_last", f.when(of_change, place)), f.lit(0)).alias("last"),
                f.min("hour").alias("from"),
                f.max("hour").alias("to"),
            )
            .collect()
        )  # a row for each stream
        shares = {
            row.stream: Share(row.records, row.gaps, row.first_entry, row.last_entry, row["last"])
            for row in found
        }
        hours = [row["from"] for row in found] + [row.to for row in found]
        return LakePart(folder, level, min(hours, default=""), max(hours, default=""), shares)

    # ------------------------------------------------------------------------------ upkeep

    def compact(self, fan: int = FAN) -> int:
        """Merge small folders, `fan` of a level at a time. Returns by how many their number fell."""
        before = len(self.log.state().parts)
        level = 0
        while level <= max((part.level for part in self.log.state().parts), default=-1):
            small = [part for part in self.log.state().parts if part.level == level]
            if len(small) >= max(fan, 2):
                self._replace(small, self._read([part.folder for part in small]), level + 1, "compact")
            level += 1
        return before - len(self.log.state().parts)

    def retain(self, since: str) -> dict[str, int]:
        """Drop all hours before this one. Returns how many records of each topic were dropped; the log keeps
        that."""
        old = [part for part in self.log.state().parts if part.first_hour < since]
        if not old:
            return {}
        gone = {row.topic: row["count"] for row in self._counted(old, since)}
        kept = self._read([part.folder for part in old if part.last_hour >= since])
        self._replace(
            old, kept.where(f.col("hour") >= since), max(part.level for part in old), "retain", gone
        )
        return gone

    def _counted(self, parts: Sequence[LakePart], before: str) -> list[Row]:
        rows = self._read([part.folder for part in parts]).where(f.col("hour") < before)
        return rows.where(f.col("kind") != GAP).groupBy("topic").count().collect()  # a row for each topic

    def _replace(
        self,
        old: Sequence[LakePart],
        rows: DataFrame,
        level: int,
        why: str,
        dropped: dict[str, int] | None = None,
    ) -> None:
        ordered = rows.repartition("topic", "hour").sortWithinPartitions(
            "topic", "hour", "partition", "batch_first", "number"
        )
        part = self.write(ordered, level)
        folders = tuple(each.folder for each in old)

        def change(state: LakeState) -> LakeChange | None:
            if not state.holds(set(folders)):
                return None  # somebody else has replaced them meanwhile
            add = (part,) if part.topics else ()
            return LakeChange(why, add, folders, dropped=dropped or {})

        if self.log.commit(change) is None or not part.topics:
            self.files.remove(part.folder)

    def clean(self, grace: float = GRACE, now: float | None = None) -> int:
        """Remove folders that no version has named for `grace` seconds. Returns how many."""
        now = time.time() if now is None else now
        named = self.log.removed(now, grace) | {part.folder for part in self.log.state().parts}
        stray = [f"{DATA}/{name}" for name in self.files.names(DATA) if f"{DATA}/{name}" not in named]
        removed = [folder for folder in stray if self.files.age(folder, now) > grace]
        for folder in removed:
            self.files.remove(folder)
        self.log.prune(now, grace)
        return len(removed)
