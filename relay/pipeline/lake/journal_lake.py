"""The journal's lake: rows of `timers_journal` in one Delta table, each exactly once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from delta import exceptions as conflicts
from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from relay.core.errors import InvalidField
from relay.pipeline.lake.journal_rows import COLUMNS, GAP
from relay.pipeline.lake.lake_state import LakeState, heard
from relay.pipeline.spark.delta import require
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.hour_folders import hour_of
from relay.pipeline.spark.session import configured
from relay.store.journal.scan import Mark

TABLE = {"topic": "string", "hour": "string", "timer_id": "string", **COLUMNS}
"""The columns of the table. `hour`, such as `2026-01-01-09`, is in UTC and comes from the entry's id, which
never steps back in a stream."""

APP = "relay-journal"
"""The name under which Relay's commits are numbered, as Delta's `txn` actions. If two commits
have one number, the second is refused or skipped."""

CONFLICTS = (  # which have no class in common
    conflicts.ConcurrentAppendException,
    conflicts.ConcurrentDeleteDeleteException,
    conflicts.ConcurrentDeleteReadException,
    conflicts.ConcurrentTransactionException,
    conflicts.ConcurrentWriteException,
    conflicts.DeltaConcurrentModificationException,
    conflicts.MetadataChangedException,
    conflicts.ProtocolChangedException,
)
"""The refusals of a commit because of another one."""

CLUSTERED = ("topic", "timer_id")  # see 0103
PROPERTIES = {
    "delta.dataSkippingStatsColumns": "topic,hour,timer_id,number,at,kind,due",
    # Replaced files stay for a day, for jobs that read them and for attempts that write.
    "delta.deletedFileRetentionDuration": "interval 24 hours",
    "delta.logRetentionDuration": "interval 7 days",
}
FILES = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
SIZES = {
    # Rows of about one size of files are clustered together once. Without a bound, the whole lake would be
    # written again at each compaction until it has 100 GB.
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(256 << 20),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(384 << 20),
}

_CONF = {
    "txnAppId": "spark.databricks.delta.write.txnAppId",
    "txnVersion": "spark.databricks.delta.write.txnVersion",
    "userMetadata": "spark.databricks.delta.commitInfo.userMetadata",
}
"""A writer's options, as configuration of statements that have no options."""

LOOK_BACK = 1000
"""The number of versions in which Relay's newest commit is looked for. Behind these the marks are taken from
the rows."""


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


def hour() -> Column:
    """The hour of a row's entry, as the table has it."""
    return hour_of(1000 * milliseconds())


def ends(rows: DataFrame) -> dict[str, Mark]:
    """Return how far the rows of each stream reach."""
    place = f.struct(milliseconds(), sequence())
    found = (
        rows.where(f.col("kind") != GAP)
        .groupBy(stream().alias("stream"))
        .agg(f.max_by("entry", place).alias("entry"), f.max_by("batch_last", place).alias("last"))
        .collect()
    )  # a row for each stream
    return {row.stream: Mark(row.entry, row["last"]) for row in found}


class Lake:
    """One lake under a path. Methods raise Spark's and Delta's errors if something can't be read or written,
    and `InvalidField` for a lake of a newer Relay, or a session without Delta."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        require(spark)
        for name, value in FILES.items():
            spark.conf.set(name, value)  # of the session, since a stream's batches have a copy of it
        self.spark = spark
        self.files = Files(spark, path)

    # ------------------------------------------------------------------------------ reading

    def exists(self) -> bool:
        """Say whether there is a table."""
        return DeltaTable.isDeltaTable(self.spark, self.files.root)

    def state(self) -> LakeState:
        """Return what is known of the newest version: what Relay's newest commit says. Other commits may lie
        behind it, since users compact and vacuum as they like."""
        if not self.exists():
            return LakeState()
        version = -1
        for most in (1, LOOK_BACK):
            commits = self._table().history(most).collect()
            version = commits[0].version
            for commit in commits:
                found = heard(commit.userMetadata, commit.version)
                if found is not None:
                    return replace(found, version=version)
                if commit.operation == "RESTORE":
                    return self._derived(version)  # the rows of an older version are there again
        return self._derived(version)

    def rows(self, state: LakeState | None = None, topics: Sequence[str] = (), since: str = "") -> DataFrame:
        """Return the table at this state: all of it, or some topics, from the hour `since` on."""
        state = state or self.state()
        if state.version < 0:
            return self.spark.createDataFrame([], _schema())
        rows = self.spark.read.format("delta").option("versionAsOf", state.version).load(self.files.root)
        if topics:
            rows = rows.where(f.col("topic").isin(*topics))
        if since:
            rows = rows.where(f.col("hour") >= since)
        return rows.select(  # a lake that an older Relay wrote may lack a column
            *(
                f.col(name) if name in rows.columns else f.lit(None).cast(kind).alias(name)
                for name, kind in TABLE.items()
            )
        )

    def _table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.files.root)

    def _derived(self, version: int) -> LakeState:
        """Return what the table itself says, where no metadata of Relay's does."""
        log: Any = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]
        snapshot = log.forTable(self.spark._jsparkSession, self.files.root).unsafeVolatileSnapshot()
        number = snapshot.transactions().get(APP)
        commits = int(number.get()) if number.isDefined() else 0
        return LakeState(version, commits, marks=ends(self.rows(LakeState(version))))

    # ------------------------------------------------------------------------------ writing

    def create(self) -> None:
        """Create the table unless it exists. Raises `InvalidField` where a lake from before Delta is."""
        if self.exists():
            return
        if self.files.names("log"):
            raise InvalidField("lake", "is from before Delta: move it with relay pipeline migrate-lake")
        builder = DeltaTable.createIfNotExists(self.spark).location(self.files.root)
        builder = builder.addColumns(_schema()).clusterBy(*CLUSTERED)
        for name, value in PROPERTIES.items():
            builder = builder.property(name, value)
        try:
            builder.execute()
        except (AnalysisException, *CONFLICTS):
            if not self.exists():  # another job was faster
                raise

    def append(self, rows: DataFrame, after: LakeState) -> bool:
        """Add rows of `timers_journal` to the state that `after` was made from, in one commit.

        Returns False, and adds nothing, if another commit of Relay's came in between.
        """
        # A batch has a task for each part of a stream; the files are as many as tasks run at once.
        placed = rows.withColumn("hour", hour()).coalesce(self.spark.sparkContext.defaultParallelism)

        def write(marked: Mapping[str, str]) -> None:
            writer = placed.select(*TABLE).write.format("delta").mode("append")
            writer.options(mergeSchema="true", **marked).save(self.files.root)

        return self._committed(after, write)

    def delete(self, condition: Column, after: LakeState) -> bool:
        """Delete rows from the state that `after` was made from; there must be some. Returns as `append`
        does."""

        def work(marked: Mapping[str, str]) -> None:
            with configured(self.spark, {_CONF[name]: value for name, value in marked.items()}):
                self._table().delete(condition)

        return self._committed(after, work)

    def _committed(self, after: LakeState, work: Callable[[Mapping[str, str]], None]) -> bool:
        # The number is an optimistic lock. If two begin with one state, Delta refuses the second commit. If
        # the first is done before the second begins, Delta skips the second silently, so the name is looked
        # for.
        mine = replace(after, commits=after.commits + 1, by=uuid.uuid4().hex)
        marked = {"txnAppId": APP, "txnVersion": str(mine.commits), "userMetadata": mine.told()}
        try:
            work(marked)
        except CONFLICTS:
            return False
        for most in (1, LOOK_BACK):
            for commit in self._table().history(most).collect():
                found = heard(commit.userMetadata, commit.version)
                if found is not None and found.commits <= mine.commits:
                    return found.by == mine.by
        return False

    # ------------------------------------------------------------------------------ upkeep

    def compact(self) -> int:
        """Merge small files, and cluster their rows. Returns by how many the number of files fell."""
        with configured(self.spark, SIZES):
            (found,) = self._table().optimize().executeCompaction().select("metrics.*").collect()
        while not self._noted():
            pass
        return int(found.numFilesRemoved - found.numFilesAdded)

    def _noted(self) -> bool:
        state = self.state()
        nothing = self.spark.createDataFrame([], _schema())
        return self.append(nothing, replace(state, compacted=state.commits + 1))

    def retain(self, since: str) -> dict[str, int]:
        """Drop all hours before this one. Returns how many records of each topic were dropped, which the
        lake's state keeps."""
        return self._drop(f.col("hour") < since)

    def forget(self, condition: Column) -> int:
        """Drop these rows, and remove the files that had them. Returns the number of records."""
        dropped = self._drop(condition)
        purge(self.spark, self.files.root)
        return sum(dropped.values())

    def _drop(self, condition: Column) -> dict[str, int]:
        while True:
            state = self.state()
            counted = (
                self.rows(state)
                .where(condition)
                .groupBy("topic")
                .agg(f.count_if(f.col("kind") != GAP).alias("records"))
                .collect()
            )  # a row for each topic
            gone = {row.topic: row.records for row in counted}
            total = {topic: state.dropped.get(topic, 0) + count for topic, count in gone.items()}
            if not gone or self.delete(condition, replace(state, dropped={**state.dropped, **total})):
                return gone

    def clean(self) -> None:
        """Remove files that no version of the last day names."""
        self._table().vacuum()


def purge(spark: SparkSession, path: str) -> None:
    """Remove the files of a table that its newest version does not name, at once. Readers of older versions
    fail."""
    # LITE goes by the log. Without it, files would go that a batch has written and not committed yet.
    with configured(spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        spark.sql(f"VACUUM delta.`{path.replace('`', '``')}` LITE RETAIN 0 HOURS")


def _schema() -> StructType:
    found = StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in TABLE.items()))
    assert isinstance(found, StructType)
    return found
