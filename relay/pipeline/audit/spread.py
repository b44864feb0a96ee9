"""Spreads an audit's work over Spark's workers: one worker gets all records of a timer, in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relay.core.instants import SECOND
from relay.pipeline.audit.facts import FACTS
from relay.pipeline.audit.gaps import Topic
from relay.pipeline.audit.replay import Judging, Replay
from relay.pipeline.lake.journal_rows import EMPTY

PER_TASK = 400_000
"""The approximate number of changes that one task sorts and replays."""

MOST_STEPS = 240
STEPS = tuple(
    seconds * SECOND
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
)
"""The possible widths of a step of the backlog; the narrowest with at most `MOST_STEPS` steps is taken."""


def replayed(rows: DataFrame, topics: Mapping[str, Topic], exclusive: bool, width: int) -> DataFrame:
    """Return the findings in all timers' records (`FACTS`). `width` is that of a step of the backlog."""
    records = sum(topic.records for topic in topics.values())
    tasks = max(math.ceil(records / PER_TASK), rows.sparkSession.sparkContext.defaultParallelism)
    changes = _marked(rows.where((f.col("kind") != EMPTY) & f.col("timer_id").isNotNull()))
    key = ("topic", "timer_id", "raw_id")
    ordered = changes.repartition(tasks, *key).sortWithinPartitions(*key, "ms", "seq", "place", "number")
    around = {name: topic.around() for name, topic in topics.items()}
    return ordered.mapInArrow(_workers(Replay(around, exclusive, width)), FACTS)


def judged(living: DataFrame, topics: Mapping[str, Topic], exclusive: bool, at_rest: bool) -> DataFrame:
    """Return the findings about timers that live (`FACTS`), after somebody was asked for them."""
    around = {name: topic.around() for name, topic in topics.items()}
    return living.mapInArrow(_workers(Judging(around, exclusive, at_rest)), FACTS)


def _marked(changes: DataFrame) -> DataFrame:
    """Add `used`: whether the nonce of a claim was used in an earlier entry. That is very rare, and is found
    without comparing all entries."""
    claims = changes.where("kind = 'CLAIMED'")
    bounds = [
        f.min("ms").alias("ms_0"),
        f.max("ms").alias("ms_1"),
        f.min("seq").alias("seq_0"),
        f.max("seq").alias("seq_1"),
        f.min("place").alias("place_0"),
        f.max("place").alias("place_1"),
    ]
    differ = "ms_0 != ms_1 or seq_0 != seq_1 or place_0 != place_1"
    again = claims.groupBy("topic", "nonce").agg(*bounds).where(differ)
    keys = ["topic", "nonce"]
    first = (
        claims.join(again.select(*keys), keys, "left_semi")
        .groupBy(*keys)
        .agg(f.min(f.struct("ms", "seq", "place")).alias("first"))
        .cache()
    )
    if first.isEmpty():
        return changes.withColumn("used", f.lit(False))
    later = (f.col("kind") == "CLAIMED") & (f.col("first") < f.struct("ms", "seq", "place"))
    return changes.join(first, keys, "left").withColumn("used", f.coalesce(later, f.lit(False))).drop("first")


def step_width(topics: Iterable[Topic]) -> int:
    """Return the width of a step of the backlog in microseconds."""
    times = [(topic.first_time, topic.last_time) for topic in topics if topic.batches]
    span = max((last for _, last in times), default=0) - min((first for first, _ in times), default=0)
    return next((step for step in STEPS if span / step <= MOST_STEPS), STEPS[-1])


Worker = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _workers(work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Worker:
    """Return a function, as Spark wants it."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(batches)

    return each
