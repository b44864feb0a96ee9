"""The job `snapshot`: it writes whole topics as Parquet, with what a restore and an audit need, and reads
them back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from relay.core.errors import InvalidField
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.timers_source import TimersDataSource
from relay.store.bulk.layouts import still_moves
from relay.store.bulk.store import BulkStore

MANIFEST = "_relay_snapshot.json"
"""The manifest beside the Parquet files. It is written last, so a snapshot without it is not whole. Readers
skip names with `_`."""

ROWS = "rows"
_DIGESTED = ("topic", "timer_id", "due_us", "score", "record", "envelope")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What to do. No topics means all that Redis knows. `out` is a folder that does not exist yet."""

    target: Target
    out: str
    topics: tuple[str, ...] = ()
    partitions: int = 8
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar, job: Snapshot) -> Summary:
    """Write, read back, compare, and write the manifest. Raises `InvalidField`, and Spark's errors.

    A topic in use changes while it is read: docs/how-to/pipeline.md says what that means.
    """
    spark.dataSource.register(TimersDataSource)
    summary = Summary("snapshot", job.dry_run)
    with job.target.open() as store:
        topics = [job.target.admit(topic) for topic in job.topics] or store.topics()
        began = min(_clocks(store, topics))
        summary.counts["size_before"] = sum(store.count(topic) for topic in topics)
    summary.counts["topics"] = len(topics)
    if job.dry_run:
        return summary
    files = Files(spark, job.out)
    if files.names(""):
        raise InvalidField("out", f"{job.out} is there already; name another folder")
    bar.step("reading the timers")
    seen = _write(_timers(spark, job, topics), files.at(ROWS))
    with job.target.open() as store:
        ended = max(_clocks(store, topics))
        summary.counts["size_after"] = sum(store.count(topic) for topic in topics)
    bar.step("comparing")
    found = digest_of(spark.read.parquet(files.at(ROWS)))
    summary.counts.update({name: found[name] for name in ("timers", "without_payload", "unreadable")})
    summary.counts["read_twice"] = found["timers"] - found["distinct"]
    summary.facts["digest"] = found["digest"]
    if (found["timers"], found["digest"]) != (seen["timers"], seen["digest"]):
        summary.problems.append(f"the snapshot in {job.out} reads back differently: it can't be used")
        return summary
    about = {"topics": topics, "began_us": began, "ended_us": ended, **found}
    files.publish(MANIFEST, json.dumps(about, sort_keys=True))
    return summary


def _clocks(store: BulkStore, topics: list[str]) -> list[int]:
    """What the clocks of all partitions' nodes show. Raises `InvalidField` for a topic that moves."""
    layouts = [store.layouts.look_up(topic) for topic in topics]
    for layout in layouts:
        if layout.towards:
            raise still_moves(layout)
    return [store.now(name) for layout in layouts for name in layout.partitions] or [store.now()]


def _timers(spark: SparkSession, job: Snapshot, topics: list[str]) -> DataFrame:
    options = {**job.target.options(), "topic": json.dumps(topics), "partitions": str(job.partitions)}
    return spark.read.format("timers").options(**options, raw="true").load()


def _write(timers: DataFrame, path: str) -> dict[str, Any]:
    """Make one pass over Redis; return what was observed."""
    seen = Observation("snapshot")
    timers.observe(seen, *_counted()).write.parquet(path)
    return _document(seen.get)


def digest_of(rows: DataFrame) -> dict[str, Any]:
    """Return counts of a snapshot's rows, and a digest that does not depend on their order."""
    counted = rows.agg(*_counted(), sf.count_distinct("topic", "timer_id").alias("distinct")).first()
    return _document(counted.asDict() if counted else {})


def _counted() -> list[Column]:
    # These are two sums of hashes with different seeds: rows may come in any order, and any number of times.
    hashed = [
        sf.sum(sf.xxhash64(sf.lit(seed), *_DIGESTED).cast("decimal(38,0)")).alias(f"digest_{seed}")
        for seed in (1, 2)
    ]
    return [
        sf.count(sf.lit(1)).alias("timers"),
        sf.count_if(sf.col("envelope").isNull()).alias("without_payload"),
        sf.count_if(sf.col("state") == "unreadable").alias("unreadable"),
        *hashed,
    ]


def _document(found: dict[str, Any]) -> dict[str, Any]:
    parts = [int(found.pop(f"digest_{seed}", 0) or 0) % 2**64 for seed in (1, 2)]
    return {**found, "digest": "".join(f"{part:016x}" for part in parts)}


def read(spark: SparkSession, path: str) -> tuple[DataFrame, dict[str, Any]]:
    """Return a snapshot's rows and its manifest. Raises `InvalidField` if the snapshot is not whole."""
    files = Files(spark, path)
    text = files.read(MANIFEST)
    if text is None:
        raise InvalidField("snapshot", f"{path} holds none, or one that was not finished")
    about: dict[str, Any] = json.loads(text)
    return spark.read.parquet(files.at(ROWS)), about
