"""The Delta table in which a cold store's rows rest.

A row is an intent: to schedule a timer, or, without a due time, to cancel it. Its version is that of its
write. Rows are clustered by topic, due time and id: a sweep and a look-up of an id skip most files, and a
small write makes one file, however many days it spans.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.pipeline.spark.files import Files
from relay.pipeline.spark.session import configured

if TYPE_CHECKING:
    from delta.tables import DeltaTable

FOLDER = "timers"
COLUMNS = {
    "topic": "string",
    "timer_id": "string",
    "version": "long",
    "due_us": "long",
    "expires_us": "long",
    "envelope": "binary",
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
CLUSTERED = ("topic", "due_us", "timer_id")
PROPERTIES = {
    "delta.dataSkippingStatsColumns": "topic,timer_id,version,due_us",
    "delta.enableDeletionVectors": "false",  # other engines must read what rests here
}
FILES = {
    # A file's least and greatest ids say little, since its rows lie in the order of due times. By the filter
    # a look-up passes over row groups. The writer fills 13 sizes, from 1 KiB to 4 MiB, and keeps the least
    # that has room for the row group's ids.
    "parquet.bloom.filter.enabled#timer_id": "true",
    "parquet.bloom.filter.adaptive.enabled": "true",
    "parquet.bloom.filter.candidates.number#timer_id": "13",
    "parquet.bloom.filter.max.bytes": str(4 << 20),
    "parquet.block.size": str(16 << 20),  # the row group that has the id is read whole
}
"""How files are written (see 0133). A new table has this among its properties, so a merge by anybody keeps to
it. What Relay writes keeps to it in an older table, too: properties that change fail all writes under way."""
NO_TABLE = -1
VACUUMED = "_last_vacuum_info"
"""Delta's note of the last time."""

FILE_BYTES = 128 << 20
_OPTIMIZING = {
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    # Files that are clustered already are rewritten with new ones only while they are fewer bytes than this.
    "spark.databricks.delta.optimize.clustering.mergeStrategy.minCubeSize.threshold": str(8 * FILE_BYTES),
    "spark.databricks.delta.optimize.clustering.mergeStrategy.targetCubeSize.threshold": str(12 * FILE_BYTES),
}
FAILURES = (PySparkException, Py4JJavaError)
"""What Spark's and Delta's errors arrive as."""
_GONE = ("FILE_NOT_EXIST", "FILE_NOT_FOUND", "FileNotFound", "VERSION_NOT_FOUND", "VersionNotFound")
_RACED = ("Concurrent", "CONCURRENT")


class TableGone(Exception):
    """The version of the table that a plan has read is there no more: somebody removed its files."""


class Table:
    """The rows of one cold store. Raises Spark's errors as they are."""

    def __init__(self, spark: SparkSession, files: Files) -> None:
        self._spark, self._files = spark, files
        self.path = files.at(FOLDER)

    def version(self) -> int:
        """The newest Delta version; `NO_TABLE` if there is no table."""
        names = self._files.names(f"{FOLDER}/_delta_log")
        found = [int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdigit()]
        return max(found, default=NO_TABLE)

    def rows(self, version: int | None = None) -> DataFrame:
        """Return the rows of a Delta version, or the newest."""
        version = self.version() if version is None else version
        if version == NO_TABLE:
            return self._spark.createDataFrame([], SCHEMA)
        return self._spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def append(self, rows: DataFrame, version: int) -> None:
        """Add rows of one write, in one commit."""
        if self.version() == NO_TABLE:
            self._create()
        table = rows.select(
            f.col("topic"),
            f.col("timer_id"),
            f.lit(version).cast("long").alias("version"),
            f.col("due_us").cast("long"),
            f.col("expires_us").cast("long"),
            f.col("envelope").cast("binary"),
        )
        # A sweep reads those parts of a file that are due, also before the table is clustered.
        ordered = table.hint("rebalance").sortWithinPartitions("due_us")
        # No transaction id: no second append ever has this one's version, and Delta would remember each.
        writer = ordered.write.format("delta").mode("append").option("userMetadata", f"write {version}")
        with configured(self._spark, FILES):
            writer.save(self.path)

    def _create(self) -> None:
        from delta.tables import DeltaTable

        builder = DeltaTable.createIfNotExists(self._spark).location(self.path.replace("`", "``"))
        for name, kind in COLUMNS.items():
            builder = builder.addColumn(name, kind)
        builder = builder.clusterBy(*CLUSTERED)
        for name, value in {**PROPERTIES, **FILES}.items():
            builder = builder.property(name, value)
        try:
            builder.execute()
        except FAILURES:
            if self.version() == NO_TABLE:  # else somebody else has just made it
                raise

    def delete(self, condition: Column | str) -> int:
        """Delete rows; return how many."""
        before = self.version()
        if before == NO_TABLE:
            return 0
        with configured(self._spark, FILES):
            self._table().delete(condition)
        return self._deleted(before, "numDeletedRows")

    def delete_all(self, rows: DataFrame) -> int:
        """Delete rows, given as `topic, timer_id, version, due_us`."""
        same = " and ".join(f"r.{name} <=> d.{name}" for name in ("topic", "timer_id", "version", "due_us"))
        merge = self._table().alias("r").merge(rows.distinct().alias("d"), same)
        before = self.version()
        with configured(self._spark, FILES):
            merge.whenMatchedDelete().execute()
        return self._deleted(before, "numTargetRowsDeleted")

    def _deleted(self, before: int, name: str) -> int:
        """Return a count of the last commit that has one. Where nothing was to be deleted there is none."""
        told = self._table().history().where(f.col("version") > before).select("operationMetrics").collect()
        return max((int(metrics[0].get(name) or 0) for metrics in told), default=0)

    def size(self) -> tuple[int, int]:
        """Return the number of files, and their bytes."""
        if self.version() == NO_TABLE:
            return 0, 0
        found = self._table().detail().select("numFiles", "sizeInBytes").first()
        assert found is not None  # the details have one row
        return int(found[0]), int(found[1])

    def optimize(self) -> bool:
        """Merge small files and cluster their rows. Returns whether that was done: a deletion beside it
        wins."""
        with configured(self._spark, {**_OPTIMIZING, **FILES}):
            try:
                self._table().optimize().executeCompaction()
            except FAILURES as failure:
                if not raced(failure):
                    raise
                return False
        return True

    def vacuum(self, every: float) -> None:
        """Remove files that no version of the last 7 days has, unless that was done in the last `every`
        seconds."""
        log = f"{FOLDER}/_delta_log"
        if VACUUMED in self._files.names(log) and self._files.age(f"{log}/{VACUUMED}", time.time()) < every:
            return
        self._table().vacuum()

    def _table(self) -> DeltaTable:
        from delta.tables import DeltaTable

        return DeltaTable.forPath(self._spark, self.path)


def raced(failure: Exception) -> bool:
    """Whether a commit failed because another was first."""
    return any(word in str(failure)[:1000] for word in _RACED)


def is_gone(failure: Exception) -> bool:
    """Whether a read failed because files, or the version, are there no more."""
    return any(word in str(failure) for word in _GONE)


def one_of(column: str, values: Iterable[Any]) -> str:
    """Return a condition in SQL for numbers."""
    listed = ",".join(map(str, sorted(values)))
    return f"{column} in ({listed})" if listed else "false"
