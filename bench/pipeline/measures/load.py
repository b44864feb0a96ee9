"""Timers of 100 bytes, sorted by due time, from Parquet into an empty Redis and back; timers a second."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial

from bench.harness.rows import Row
from bench.pipeline import raw
from bench.pipeline.world import TOPIC, World
from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs import snapshot as snapshot_job
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.jobs.snapshot import Snapshot
from relay.pipeline.timers_source import TimersDataSource

RAW = "ceiling: raw variadic pipelines"
WRITE = "Spark, unguarded: write.format('timers'), the topic an option"
BY_COLUMN = "Spark, unguarded: write.format('timers'), the topic a column"
JOB = "Spark, unguarded: relay pipeline schedule --replace"
ONCE = "Spark, each timer once a run: relay pipeline schedule"
READ = "Spark: read.format('timers'), with content"
SNAPSHOT = "relay pipeline snapshot, read back and compared"


def measure(world: World) -> Iterator[Row]:
    """The raw client first and last: what the machine gave meanwhile is in both."""
    spark, count = world.spark, world.plan.timers
    spark.dataSource.register(TimersDataSource)
    held = raw.rows(world.table())
    options = {**world.target.options(), "topic": TOPIC}
    # The table's schema is read here, by a job of Spark's; its rows are read by each write.
    timers = world.timers()

    def write() -> None:
        """What the raw client writes: names, times and payloads for one topic."""
        timers.drop("topic").write.format("timers").options(**options).mode("append").save()

    def write_by_column() -> None:
        timers.write.format("timers").options(**world.target.options()).mode("append").save()

    def schedule(*, replace: bool) -> None:
        asked = Schedule(world.target, Source(str(world.table()), "parquet"), replace=replace)
        summary = job.run("schedule", lambda s, bar: schedule_job.run(s, bar, asked), job.Running(bar=False))
        assert summary.counts["written"] == count, summary

    def read() -> None:
        frame = spark.read.format("timers").options(**options, partitions="2").load()
        frame.write.format("noop").mode("overwrite").save()

    def snapshot() -> None:
        out = world.folder / "snapshot"
        shutil.rmtree(out, ignore_errors=True)
        asked = Snapshot(world.target, str(out), (TOPIC,), partitions=2)
        summary = job.run("snapshot", lambda s, bar: snapshot_job.run(s, bar, asked), job.Running(bar=False))
        assert (summary.counts["timers"], summary.problems) == (count, []), summary

    timers.limit(10_000).write.format("timers").options(**options).mode("append").save()  # warm up
    ceilings = [_raw(world, held)]
    writes = {WRITE: write, BY_COLUMN: write_by_column}
    writes |= {JOB: partial(schedule, replace=True), ONCE: partial(schedule, replace=False)}
    rates = {name: _rate(world, work, clear=True) for name, work in writes.items()}
    ceilings.append(_raw(world, held))
    yield Row("load", RAW, sum(ceilings) / 2, "timers/s")
    rates |= {READ: _rate(world, read, clear=False), SNAPSHOT: _rate(world, snapshot, clear=False)}
    for name, rate in rates.items():
        yield Row("load", name, rate, "timers/s")
    world.clear()


def _raw(world: World, held: raw.Rows) -> float:
    world.clear()
    rate = raw.pipelines(world.server.url, TOPIC, held)
    assert world.count() == len(held.ids)
    return rate


def _rate(world: World, work: Callable[[], None], *, clear: bool) -> float:
    """Timers a second, the start of Spark's tasks included."""
    if clear:
        world.clear()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    assert world.count() == world.plan.timers
    return world.plan.timers / seconds
