"""A cold store of any size, made by Spark itself: loads of `LOAD` timers, each due within a year."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.pipeline.world import FIRST
from relay.core.instants import SECOND
from relay.pipeline.cold.store import COMMITS, ColdStore, name_of
from relay.store.codec import envelope

LOAD = 5_000_000
TOPICS = 10
YEAR = 365 * 86_400
WRITTEN = 1_767_225_600 * SECOND
"""When the first load was written."""


def timer(spark: SparkSession, number: int) -> tuple[str, str]:
    """Return topic and id of a timer. The id has nothing to do with its due time, as a UUID has not."""
    (row,) = rows(spark, number, number + 1).select("topic", "timer_id").collect()
    return str(row[0]), str(row[1])


def made(spark: SparkSession, place: Path, timers: int) -> ColdStore:
    """Return a store with so many timers. One that is there gets what it lacks, load by load."""
    cold = ColdStore(spark, str(place))
    there = cold.table.rows().count()
    for first in range(there, timers, LOAD):
        _load(cold, first, min(first + LOAD, timers))
    return cold


def rows(spark: SparkSession, first: int, last: int) -> DataFrame:
    """Columns as `ColdStore.write` takes them, of the timers `first` to `last`."""
    front = envelope.encode(b"", {}, "").hex()
    name = "lower(hex(xxhash64(id)))"
    return spark.range(first, last, 1, 2).selectExpr(
        f"concat('topic-', id % {TOPICS}) as topic",
        f"{name} as timer_id",
        f"{FIRST * SECOND}L + pmod(xxhash64(id, 1), {YEAR * SECOND}L) as due_us",
        "cast(null as long) as expires_us",
        f"unhex('{front}') || binary('order ' || {name}) as envelope",
    )


def _load(cold: ColdStore, first: int, last: int) -> None:
    """Write and settle one load, as one that replaces nothing in Redis. Its manifest is known beforehand: to
    count 100 million rows again, load by load, takes as long as to write them."""
    version = cold.version(WRITTEN + first)
    cold.table.append(rows(cold.spark, first, last), version)
    topics = {f"topic-{n}": (last - first) // TOPICS for n in range(TOPICS)}
    manifest = {"topics": topics, "single": True, "settled": True}
    cold.files.publish(f"{COMMITS}/{name_of(version)}", json.dumps(manifest))
