"""Writes lost timers as a table that `relay pipeline schedule` takes.

A journal holds no payloads. So a lost timer gets its content from where it is still known: the table from
which the timers were scheduled, or an earlier snapshot. A lost timer without content is set aside and
reported.

    LOST/timers     topic, timer_id, due_time, expire_time, payload, headers and content type
    LOST/bare       topic, timer_id, due_time: lost, with unknown content
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.rows import envelopes
from relay.pipeline.rows.columns import CONTENT, ddl

_DECODED = {"topic": "string", "timer_id": "string", **CONTENT}


def lost(living: DataFrame) -> DataFrame:
    """Select timers that live according to the journal, and are neither in Redis nor in the cold store. An id
    that is not UTF-8 can't be scheduled through Relay, and is left out."""
    gone = living.where("missed and not cold and raw_id is null")
    return gone.select("topic", "timer_id", f.timestamp_micros("due").alias("due_time"))


def with_content(timers: DataFrame, contents: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Split into timers with content and timers without. `contents` has at most one row for a timer."""
    if contents is None:
        empty = timers.sparkSession.createDataFrame([], ddl(_DECODED))
        return timers.join(empty, ["topic", "timer_id"]), timers
    known = contents.dropDuplicates(["topic", "timer_id"])
    keys = ["topic", "timer_id"]
    return timers.join(known, keys), timers.join(known, keys, "left_anti")


def contents(spark: SparkSession, path: str) -> DataFrame:
    """Read topic, timer_id and content from Parquet: a snapshot, with envelopes, or a table with payloads.

    Raises `InvalidField("payloads", …)` for a table that has neither.
    """
    table = spark.read.parquet(path)
    names = set(table.columns)
    for name in ("topic", "timer_id"):
        if name not in names:
            raise InvalidField("payloads", f"{path} has no column {name}")
    if "envelope" in names:
        return table.select("topic", "timer_id", "envelope").mapInArrow(_decoded, ddl(_DECODED))
    if "payload" not in names:
        raise InvalidField("payloads", f"{path} has neither payload nor envelope")
    absent = {name: f.lit(None).cast(kind) for name, kind in CONTENT.items() if name not in names}
    return table.withColumns({"payload": f.col("payload").cast("binary"), **absent}).select(*_DECODED)


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        known = batch.filter(batch.column("envelope").is_valid())
        found = {name: known.column(name) for name in ("topic", "timer_id")}
        columns = found | envelopes.decode(known.column("envelope"))
        yield pa.RecordBatch.from_arrays([columns[name] for name in _DECODED], names=[*_DECODED])
