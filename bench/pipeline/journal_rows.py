"""A journal of any length, made by Spark itself: rows as the lake has them.

Timers come in blocks of `BLOCK`, each block stored, claimed, received and acknowledged by a call each; every
tenth block is answered NACK once. So a block is a handful of entries, and only these are put in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from relay.pipeline.lake.journal_rows import COLUMNS

BLOCK = 100
START_MS = 1_767_225_600_000
KINDS = ("SCHEDULED", "CLAIMED", "RECEIVED", "NACKED", "CLAIMED", "RECEIVED", "ACKED")
"""A block's calls; the middle three are of those that are answered NACK."""


@dataclass(frozen=True, slots=True)
class Made:
    """How much: about so many `records` in `topics` over `hours`. `lost`: the last blocks never end."""

    records: int
    topics: int = 12
    hours: int = 72
    lost: int = 0


def rows(spark: SparkSession, made: Made) -> DataFrame:
    """Columns of `timers_journal`."""
    blocks = int(made.records / (4.3 * BLOCK))
    block, n = f.col("block"), f.col("nth")
    entries = (
        spark.range(blocks)
        .withColumnRenamed("id", "block")
        .withColumn("topic", f.format_string("topic-%02d", _skewed(made.topics)))
        .withColumn("due", _due(made, blocks))
        .withColumn("late", _late())
        .withColumn("again", block % 10 == 3)
        .withColumn("ends", block < blocks - made.lost)
        .select("*", f.posexplode(f.array(*map(f.lit, KINDS))).alias("nth", "kind"))
        .where((f.col("again") | ~n.between(3, 5)) & (f.col("ends") | (n < 1)))
        .withColumn("at_us", _at(n))
    )
    order = Window.partitionBy("topic").orderBy("at_us", "block", "nth")
    placed = (
        entries.withColumn("seq", f.row_number().over(order))
        .withColumn("batch_first", (f.col("seq") - 1) * BLOCK + 1)
        .withColumn(
            "entry",
            f.concat_ws("-", f.floor(f.col("at_us") / 1000).cast("string"), f.col("seq").cast("string")),
        )
    )
    return _changes(placed)


def _skewed(topics: int) -> Column:
    """The first topics have most blocks."""
    return (f.pow(f.rand(1), 2) * topics).cast("int")


def _due(made: Made, blocks: int) -> Column:
    """When a block is due: by day more than at night (microseconds)."""
    span = made.hours * 3600 * 1_000_000
    place = f.col("block") / blocks
    wave = f.sin(place * made.hours / 24 * 2 * 3.14159) * 12 / made.hours / 6.3
    return (START_MS * 1000 + 3_600_000_000 + (place + wave) * span).cast("bigint")


def _late() -> Column:
    """How late it is claimed: some milliseconds, seconds now and then, and for an hour in a topic minutes."""
    usual = f.exp(f.randn(2) * 0.6 + 8.0)
    seldom = f.when(f.rand(3) < 0.01, f.exp(f.randn(4) + 14)).otherwise(usual)
    away = (f.col("topic") == "topic-03") & ((f.col("block") % 997) < 40)
    return f.when(away, f.rand(5) * 9e8).otherwise(seldom).cast("bigint")


def _at(n: Column) -> Column:
    """When each of a block's calls is made (microseconds)."""
    claimed = f.col("due") + f.col("late")
    offsets = (0, 0, 900, 60_000, 5_060_000, 5_061_000, 5_200_000)
    later = f.element_at(f.array(*map(f.lit, offsets)), n + 1)
    acked = f.when(~f.col("again") & (n == 6), claimed + 45_000).otherwise(claimed + later)
    return f.when(n == 0, f.col("due") - 3_000_000 - f.col("block") % 50 * 60_000_000).otherwise(acked)


def _changes(placed: DataFrame) -> DataFrame:
    n, kind = f.col("nth"), f.col("kind")
    first, second = _nonce(f.lit("1")), _nonce(f.lit("2"))
    nonce = f.when(n.isin(1, 2, 3), first).when(n.isin(4, 5), second)
    nonce = f.when(n == 6, f.when(f.col("again"), second).otherwise(first)).otherwise(nonce)
    again = (n >= 4) & (n < 6)
    claimed, counted = kind == "CLAIMED", kind.isin("CLAIMED", "NACKED")
    place = f.col("place")
    own_due = f.timestamp_micros(f.col("due") - place * 37)
    until = f.timestamp_micros(f.col("at_us") + 30_000_000)
    made = {
        "topic": f.col("topic"),
        "entry": f.col("entry"),
        "number": f.col("batch_first") + place,
        "batch_first": f.col("batch_first"),
        "batch_last": f.col("batch_first") + BLOCK - 1,
        "at": f.timestamp_micros("at_us"),
        "kind": kind,
        "timer_id": f.concat_ws("-", f.lit("timer"), f.hex("block"), place.cast("string")),
        "due": f.when(counted | (kind == "SCHEDULED"), own_due),
        "score": f.when(claimed | kind.isin("RECEIVED", "NACKED"), until),
        "nonce": nonce,
        "occurrence": f.when(claimed, first),
        "attempts": f.when(counted, f.when(again | (kind == "NACKED"), 1).otherwise(0)).otherwise(0),
        "claims": f.when(counted, f.when(again, 2).otherwise(1)).otherwise(0),
        **dict.fromkeys(("received", "suspect", "approximate"), f.lit(False)),
    }
    nothing = f.lit(None)
    columns = [made.get(name, nothing).cast(of).alias(name) for name, of in COLUMNS.items()]
    return placed.select("*", f.explode(f.sequence(f.lit(0), f.lit(BLOCK - 1))).alias("place")).select(
        *columns
    )


def _nonce(of: Column) -> Column:
    """16 bytes, of a block's first or second claim."""
    return f.unhex(f.concat(f.lit("72656c61792d3031"), of, f.lpad(f.hex("block"), 15, "0")))
