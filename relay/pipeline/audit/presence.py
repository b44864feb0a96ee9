"""Checks whether timers that live according to the journal exist: it asks Redis by name, or a snapshot.

The end of a timer and its record are one step. So a timer that was gone when it was asked for, and has no
later record, is gone without one. A timer with a later record is not judged: it changed after the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.pipeline.audit.facts import FACTS
from relay.pipeline.cold import intents
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.lake.journal_lake import milliseconds
from relay.pipeline.lake.journal_rows import id_of
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.lookup import present_now

ASKED = f"{FACTS}, missed boolean, remembered boolean"
KEY = ("topic", "timer_id", "raw_id")


def nobody(living: DataFrame) -> DataFrame:
    """Asks nobody."""
    unknown = f.lit(None).cast("boolean")
    return living.withColumns({"missed": unknown, "remembered": unknown})


def in_redis(living: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Asks Redis: each worker asks for its own timers, in calls of 500."""
    target = Target.from_options(options)

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with target.server() as server:
            for batch in batches:
                rows = batch.to_pylist()
                missed: list[bool] = []
                remembered: list[bool] = []
                for topic, same in groupby(rows, key=lambda row: row["topic"]):
                    ids = [id_of(row["timer_id"], row["raw_id"]) for row in same]
                    for there, record in present_now(server, server.layout_now(topic), ids):
                        missed.append(not there)
                        remembered.append(record)
                columns = [*batch.columns, pa.array(missed, pa.bool_()), pa.array(remembered, pa.bool_())]
                yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, "missed", "remembered"])

    return living.mapInArrow(ask, ASKED)


def void(asked: DataFrame, heard: DataFrame) -> DataFrame:
    """Remove the answers about timers with a later record, given as rows of `KEY`, each once."""
    marked = heard.select(*(f.col(name).alias(f"{name}_") for name in KEY), f.lit(True).alias("moved"))
    joined = asked.join(marked, _same(), "left").drop(*(f"{name}_" for name in KEY))
    stands = f.col("moved").isNull()
    answers = {name: f.when(stands, f.col(name)) for name in ("missed", "remembered")}
    return joined.withColumns(answers).drop("moved")


def named_in(rows: DataFrame) -> DataFrame:
    """Return the timers that occur in rows of the journal."""
    return rows.where("timer_id is not null").select(*KEY).distinct()


def _same() -> Column:
    pairs = (f.col(name).eqNullSafe(f.col(f"{name}_")) for name in KEY)
    return reduce(lambda one, two: one & two, pairs)


def unknown(there: DataFrame, living: DataFrame, heard: DataFrame) -> DataFrame:
    """Return timers in Redis or a snapshot that don't live according to the journal, and have no later
    record."""
    keys = ["topic", "timer_id"]
    known = living.select(*keys).unionAll(heard.select(*keys))
    return there.select("topic", "timer_id", "due_time", "state").join(known, keys, "left_anti")


def in_snapshot(
    living: DataFrame, there: DataFrame, began: int, ended: int, reach: Mapping[str, int]
) -> DataFrame:
    """Answer from a snapshot that was taken between two instants (microseconds, by the clock of Redis).

    It answers for timers whose last record is older than its beginning, in topics whose journal we have to
    beyond its end (`reach`): in other topics a later record may be missing.
    """
    keys = ["topic", "timer_id"]
    far = f.col("topic").isin(*(topic for topic, last in reach.items() if last >= ended))
    asked = far & (milliseconds() < began // 1000) & f.col("raw_id").isNull()
    ids = there.select(*keys).distinct().withColumn("there", f.lit(True))
    missed = f.when(asked, f.col("there").isNull())
    return (
        living.join(ids, keys, "left")
        .withColumns({"missed": missed, "remembered": f.lit(False)})
        .drop("there")
    )


def cold(asked: DataFrame, resting: DataFrame | None) -> DataFrame:
    """Mark timers that rest in the cold store, given as rows of topic and timer_id: they are not lost."""
    if resting is None:
        return asked.withColumn("cold", f.lit(False))
    keys = ["topic", "timer_id"]
    known = resting.select(*keys).distinct().withColumn("rests", f.lit(True))
    rests = f.col("rests").isNotNull()
    joined = asked.join(known, keys, "left").withColumn("missed", f.col("missed") & ~rests)
    return joined.withColumn("cold", rests).drop("rests")


def resting(spark: SparkSession, path: str, topics: Sequence[str]) -> DataFrame:
    """Return the timers that rest in a cold store: topic and timer_id of intents that no later row replaces
    or cancels, and that no sweep has taken. A timer that a sweep brought to Redis must be there."""
    return intents.resting(ColdStore(spark, path), topics).select("topic", "timer_id")
