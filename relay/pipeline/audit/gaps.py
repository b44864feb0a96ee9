"""Finds where records are missing in a journal of rows, and what the timers of a topic share: `Around`.

A batch begins with the number after the last one's of its stream: that of the topic, or of one of its
partitions. So it is enough to compare each batch's first row with the batch before it: within an hour by a
window, and between hours by the first and last batch of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relay.core.audit.report import MISSING, NOT_WHOLE, TRIMMED, WENT_BACK
from relay.pipeline.audit.replay import Around
from relay.pipeline.lake.journal_lake import milliseconds, partition, sequence
from relay.pipeline.lake.journal_rows import EMPTY, GAP

MOST_GAPS = 10_000
"""The most gaps of a topic that are kept. Behind these no record is compared with another."""


@dataclass(slots=True)
class Topic:
    """What is known of a topic before its timers are replayed. Times are in microseconds."""

    name: str
    batches: int = 0
    records: int = 0
    gaps: int = 0
    missing: int = 0
    first_entry: str = ""
    last_entry: str = ""
    first_time: int = 0
    last_time: int = 0
    places: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Where the gaps of each partition are."""
    odd: bool = False
    """Whether some batches may lack records that their numbers promise."""

    def around(self) -> Around:
        places = {number: tuple(places) for number, places in self.places.items()}
        return Around(places, self.last_entry, self.last_time, self.gaps <= MOST_GAPS)


def placed(rows: DataFrame) -> DataFrame:
    """Select changes and empty entries, with their place in the stream as two numbers. `place` is the number
    of their partition, which stands in `entry`, too, if the topic has several."""
    named = f.when(f.col("partition").isNull(), f.col("entry"))
    named = named.otherwise(f.concat_ws("#", "entry", "partition"))
    changes = rows.where(f.col("kind") != GAP)
    changes = changes.withColumns({"ms": milliseconds(), "seq": sequence(), "place": partition()})
    return changes.withColumn("entry", named)


def topics(rows: DataFrame) -> dict[str, Topic]:
    """Return each topic of placed rows, without its gaps.

    A second query finds the first and the last entry, among the rows of the first and the last millisecond:
    with `min_by` of a text over all rows Spark sorts them all, in memory that grows with the lake.
    """
    number, first, last = f.col("number"), f.col("batch_first"), f.col("batch_last")
    empty = f.col("kind") == EMPTY
    counted = (
        rows.groupBy(f.col("topic").alias("name"))
        .agg(
            f.count_if((number == first) | empty).alias("batches"),
            f.count("number").alias("records"),
            (
                (f.count_if(number == first) != f.count_if(number == last))
                | f.bool_or((number > last) | empty)
            ).alias("odd"),
            f.min("ms").alias("begin"),
            f.max("ms").alias("end"),
        )
        .collect()  # a row for each topic
    )
    if not counted:
        return {}
    ends = rows.sparkSession.createDataFrame(
        [(row.name, ms) for row in counted for ms in {row.begin, row.end}], "name string, at_end bigint"
    )
    same = (f.col("topic") == f.col("name")) & (f.col("ms") == f.col("at_end"))
    place = f.struct("ms", "seq", "place")
    found = (
        rows.join(f.broadcast(ends), same)
        .groupBy("name")
        .agg(
            f.min_by("entry", place).alias("first_entry"),
            f.max_by("entry", place).alias("last_entry"),
            f.unix_micros(f.min_by("at", place)).alias("first_time"),
            f.unix_micros(f.max_by("at", place)).alias("last_time"),
        )
        .collect()
    )
    known = {row.name: Topic(row.name, row.batches, row.records, odd=row.odd) for row in counted}
    for row in found:
        each = known[row.name]
        each.first_entry, each.last_entry = row.first_entry, row.last_entry
        each.first_time, each.last_time = row.first_time, row.last_time
    return known


def gaps(rows: DataFrame, known: Mapping[str, Topic]) -> DataFrame:
    """Return a row for each gap of placed rows: topic, place, entry, ms, seq, missing, why."""
    heads = rows.where((f.col("number") == f.col("batch_first")) | (f.col("kind") == EMPTY))
    place = f.struct("ms", "seq")
    hour = Window.partitionBy("topic", "place", "hour").orderBy("ms", "seq")
    inside = heads.withColumn("before", f.lag("batch_last").over(hour)).where("before is not null")
    hours = heads.groupBy("topic", "place", "hour").agg(
        f.min_by(f.struct("ms", "seq", "entry", "batch_first"), place).alias("head"),
        f.max_by("batch_last", place).alias("tail"),
    )
    stream = Window.partitionBy("topic", "place").orderBy("hour")
    before, nth = f.lag("tail").over(stream).alias("before"), f.row_number().over(stream).alias("nth")
    between = hours.select("topic", "place", "head.*", before, nth)
    found = [_numbered(inside, f.lit(2)), _numbered(between, f.col("nth"))]
    if odd := [name for name, each in known.items() if each.odd]:
        found.append(_broken(rows.where(f.col("topic").isin(*odd))))
    return reduce(DataFrame.unionByName, found)


def _numbered(batches: DataFrame, nth: Column) -> DataFrame:
    lost = f.col("batch_first") - f.coalesce(f.col("before"), f.lit(0)) - 1
    why = f.when(lost < 0, WENT_BACK).when(nth == 1, TRIMMED).otherwise(MISSING)
    return batches.where(lost != 0).select(
        "topic", "place", "entry", "ms", "seq", f.greatest(lost, f.lit(0)).alias("missing"), why.alias("why")
    )


def _broken(rows: DataFrame) -> DataFrame:
    """Find batches that lack records that their numbers promise."""
    batch = rows.groupBy("topic", "place", "entry", "ms", "seq", "batch_first", "batch_last")
    lost = f.col("batch_last") - f.col("batch_first") + 1 - f.col("held")
    return (
        batch.agg(f.count("number").alias("held"))
        .where(lost != 0)
        .select(
            "topic",
            "place",
            "entry",
            "ms",
            "seq",
            f.greatest(lost, f.lit(0)).alias("missing"),
            f.lit(NOT_WHOLE).alias("why"),
        )
    )


def note(known: Mapping[str, Topic], found: DataFrame) -> None:
    """Add to each topic the number of its gaps, and the first `MOST_GAPS` of them."""
    counted = found.groupBy("topic").agg(f.count("*").alias("gaps"), f.sum("missing").alias("missing"))
    for row in counted.collect():
        known[row.topic].gaps, known[row.topic].missing = row.gaps, row.missing
    nth = f.row_number().over(Window.partitionBy("topic").orderBy("ms", "seq", "place"))
    first = found.withColumn("nth", nth).where(f.col("nth") <= MOST_GAPS)
    for row in first.orderBy("topic", "nth").collect():
        known[row.topic].places.setdefault(row.place, []).append((row.ms, row.seq))
