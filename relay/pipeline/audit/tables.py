"""The audit's tables, made from the workers' findings (`relay.pipeline.audit.facts.FACTS`)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relay.core.audit.lateness import PERCENTILES
from relay.core.audit.report import ON_WAY, Promise
from relay.pipeline.audit.facts import HOUR

COUNTS = {
    "accepted": "intents",
    "delivered": "deliveries",
    "committed": "committed",
    "dead": "dead",
    "cancelled": "kind:CANCELLED",
    "expired": "kind:EXPIRED",
    "retries": "retries",
    "duplicates": "duplicates",
    "lapsed": "lapsed",
    "stale": "refused",
    "found": "found",
    "moved": "moved",
    "adopted": "adopted",
    "taken": "taken",
    "began": "began",
    "ended": "ended",
}
"""The columns of a table, with the rules' names for them."""

NOT_LATE: dict[str, int | None] = {
    "lateness_count": 0,
    **{f"{name.replace('.', '_')}_us": None for name, _ in PERCENTILES},
    "max_us": None,
}
"""The percentiles where nothing was delivered."""

PER_DECADE = 3
"""Buckets of the lateness histogram in each power of ten."""


def moment(micros: Column) -> Column:
    """Turn microseconds into a timestamp."""
    return f.timestamp_micros(micros)


def late(facts: DataFrame) -> DataFrame:
    """Return first deliveries: topic, time (the due time's hour, a number), value (µs), and `n`, the number
    of equal ones."""
    return facts.where("fact = 'late'").groupBy("topic", "time", "value").agg(f.count("*").alias("n"))


def percentiles(lates: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return exact percentiles by nearest rank, as `relay.core.audit` has them. Sorted values may go to
    disk."""
    if not keys:
        return percentiles(lates.withColumn("all", f.lit(0)), ["all"]).drop("all")
    counted = lates.groupBy(*keys, "value").agg(f.sum("n").alias("n"))
    inside = Window.partitionBy(*keys)
    ordered = inside.orderBy("value").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = counted.withColumns({"upto": f.sum("n").over(ordered), "total": f.sum("n").over(inside)})
    picks = [f.max("total").alias("lateness_count")]
    for name, share in PERCENTILES:
        rank = f.floor((f.col("total") * share.numerator + share.denominator - 1) / share.denominator)
        picks.append(f.min(f.when(f.col("upto") >= rank, f.col("value"))).alias(column(name)))
    return ranked.groupBy(*keys).agg(*picks, f.max("value").alias("max_us"))


def column(percentile: str) -> str:
    """Name the column of a percentile: `p99.9` is `p99_9_us`."""
    return f"{percentile.replace('.', '_')}_us"


def hours(facts: DataFrame, lates: DataFrame) -> DataFrame:
    """Return a row for each topic and hour in which something happened or was due."""
    counted = facts.where("fact = 'hour'").groupBy("topic", "time").agg(*_sums())
    breaks = f.col("fact").eqNullSafe("finding") & (f.col("name") == "")
    found = (
        facts.where(breaks & f.col("time").isNotNull())
        .groupBy("topic", "time")
        .agg(
            f.count("*").alias("breaks"),
            f.count_if(f.col("promise") == int(Promise.NEVER_EARLY)).alias("early"),
        )
    )
    keys = ["topic", "time"]
    joined = counted.join(found, keys, "full").join(percentiles(lates, keys), keys, "full")
    numbers = [*COUNTS, "breaks", "early", "lateness_count"]
    joined = joined.fillna(0, numbers)
    so_far = (
        Window.partitionBy("topic").orderBy("time").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    joined = joined.withColumn("open", f.sum(f.col("began") - f.col("ended")).over(so_far))
    return joined.withColumn("hour", moment(f.col("time") * HOUR)).drop("time", "began", "ended")


def _sums() -> list[Column]:
    return [
        f.coalesce(f.sum(f.when(f.col("name") == name, f.col("count"))), f.lit(0)).alias(title)
        for title, name in COUNTS.items()
    ]


def totals(facts: DataFrame, lates: DataFrame) -> DataFrame:
    """Return a row for each topic: the same numbers over all hours."""
    counted = facts.where("fact = 'hour'").groupBy("topic").agg(*_sums())
    return counted.join(percentiles(lates, ["topic"]), "topic", "full").fillna(0, [*COUNTS, "lateness_count"])


def kinds(facts: DataFrame) -> DataFrame:
    """Count the records of each kind of a topic, without those that belong to no timer."""
    named = facts.where("fact = 'hour' and name like 'kind:%'")
    return named.groupBy("topic", f.substring("name", 6, 100).alias("kind")).agg(
        f.sum("count").alias("records")
    )


def histogram(lates: DataFrame) -> DataFrame:
    """Return lateness by topic, hour of the due time, and bucket. There are `PER_DECADE` buckets for each
    power of ten of microseconds; a negative bucket is early."""
    bucket = f.floor(f.log10(f.greatest(f.col("value"), f.lit(1))) * PER_DECADE + 1e-9).cast("int")
    bucket = f.when(f.col("value") < 0, -1).otherwise(bucket)
    return (
        lates.groupBy("topic", f.col("time").alias("hour_number"), bucket.alias("bucket"))
        .agg(f.sum("n").alias("deliveries"))
        .withColumn("hour", moment(f.col("hour_number") * HOUR))
        .drop("hour_number")
    )


def backlog(facts: DataFrame, step: int) -> DataFrame:
    """Return how many timers of a topic were open and how many overdue, at the end of each step in which that
    changed."""
    steps = facts.where("fact = 'step'").groupBy("topic", "time")
    changed = steps.agg(
        *(f.sum(f.when(f.col("name") == name, f.col("count"))).alias(name) for name in ("open", "overdue"))
    )
    so_far = (
        Window.partitionBy("topic").orderBy("time").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return changed.select(
        "topic",
        moment(f.col("time") * step).alias("at"),
        f.coalesce(f.sum("open").over(so_far), f.lit(0)).alias("open"),
        f.coalesce(f.sum("overdue").over(so_far), f.lit(0)).alias("overdue"),
    )


def findings(facts: DataFrame) -> DataFrame:
    """Return what breaks a promise (`reason` is empty) or makes it doubtful, with timer and entries."""
    return facts.where("fact = 'finding'").select(
        "topic",
        "promise",
        f.col("name").alias("reason"),
        "timer_id",
        "raw_id",
        "occurrence",
        "what",
        moment(f.col("at")).alias("at"),
        f.col("before").alias("earlier_entry"),
        "entry",
    )


def living(judged: DataFrame) -> DataFrame:
    """Return timers that have not ended, as the journal knows them, with the answer of Redis about them."""
    state = f.when(f.col("missed"), "gone").when(f.col("target").isNotNull(), ON_WAY)
    state = state.when(f.col("leased"), "leased").otherwise("pending")
    return judged.select(
        "topic",
        "timer_id",
        "raw_id",
        moment(f.col("due")).alias("due_time"),
        state.alias("state"),
        moment(f.col("at")).alias("last_heard"),
        "entry",
        "missed",
        "remembered",
        "recorded",
        "cold",
    )
