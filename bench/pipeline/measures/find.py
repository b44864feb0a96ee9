"""Cold stores of many rows: one timer's row found by its id, and what is due within two hours planned."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import md5
from typing import Any

import psutil
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import functions as f

from bench.harness.rows import Row
from bench.pipeline.measures.sweep import opened, staged
from bench.pipeline.world import FIRST, TOPIC, World, millions
from relay.core.instants import SECOND
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import HOUR, now
from relay.store.codec import envelope

SPAN = 30 * 24 * HOUR
"""Microseconds over which the rows of a store fall due."""
BEGIN = FIRST * SECOND // HOUR * HOUR
"""The hour at which the first one does."""
WRITE = 10_000_000
"""The most rows of one write."""
LOOKS = 7
"""Look-ups of a run, each of another id."""
SPARK, RUST = "Spark", "deltalake"


def looked_up(reader: str, count: int) -> str:
    """The name of the time that one look-up by id takes."""
    return f"{reader}: a row by its id, of {millions(count)}"


def planned(count: int) -> str:
    """The name of the time that a plan for two hours takes."""
    return f"two hours planned and staged, of {millions(count)}"


def measure(world: World) -> Iterator[Row]:
    """Each store is made once, of ids that are random hexadecimal digits; each run looks other ids up."""
    for count in world.plan.cold_rows:
        cold = ColdStore(world.spark, str(world.folder / f"cold-{count}"))
        if cold.table.version() < 0:
            began = time.perf_counter()
            _fill(world, cold, count)
            rate = count / (time.perf_counter() - began)
            yield Row("find", f"written into the cold store, {millions(count)}", rate, "rows/s", "rate")
        for reader, look in ((RUST, _by_rust), (SPARK, _by_spark)):
            yield from _looked_up(world, cold, count, reader, look)
        seconds, rows = _planned(world, cold)
        yield Row("find", planned(count), seconds, "s", "seconds", note=f"{rows:,} rows were due")


def _fill(world: World, cold: ColdStore, count: int) -> None:
    """Write rows that fall due evenly from `BEGIN` on."""
    head = envelope.encode(b"remind me", {}, "").hex()
    for start in range(0, count, WRITE):
        rows = world.spark.range(start, min(start + WRITE, count), 1, 8).selectExpr(
            f"'{TOPIC}' as topic",
            "md5(string(id)) as timer_id",
            f"{BEGIN} + id * {SPAN // count} as due_us",
            "cast(null as long) as expires_us",
            f"unhex('{head}') as envelope",
        )
        write = cold.write(rows, cold.version(now(world.target)))
        assert write is not None
        cold.settle(write)


def _looked_up(
    world: World, cold: ColdStore, count: int, reader: str, look: Callable[[ColdStore, str], int]
) -> Iterator[Row]:
    """Look up `LOOKS` rows. A look-up before these is not counted: in it Spark compiles its plan."""
    took, cpu = [], []
    for nth in range(LOOKS + 1):
        wanted = (nth * 7_368_787 + time.monotonic_ns()) % count
        began, used = time.perf_counter(), _cpu(world)
        found = look(cold, md5(str(wanted).encode()).hexdigest())
        if nth:
            took.append(time.perf_counter() - began)
            cpu.append(_cpu(world) - used)
        if found != 1:
            raise RuntimeError(f"{reader} found {found} rows of the id of {wanted}")
    name = looked_up(reader, count)
    yield Row("find", name, statistics.median(took), "s", "seconds")
    yield Row("find", name, max(took), "s", "slowest")
    yield Row("find", name, statistics.median(cpu), "s", "CPU")


def _by_rust(cold: ColdStore, timer_id: str) -> int:
    query = QueryBuilder().register("cold", DeltaTable(cold.table.path.removeprefix("file:")))
    found: Any = query.execute(f"SELECT * FROM cold WHERE topic = '{TOPIC}' AND timer_id = '{timer_id}'")
    return sum(batch.num_rows for batch in found)


def _by_spark(cold: ColdStore, timer_id: str) -> int:
    rows = cold.table.rows().where((f.col("topic") == TOPIC) & (f.col("timer_id") == timer_id))
    return len(rows.collect())


def _planned(world: World, cold: ColdStore) -> tuple[float, int]:
    """Return how many seconds a plan of the first two hours took, and how many rows it staged. It is given
    up."""
    world.clear()
    number = cold.plans.following()
    marks = {TOPIC: opened(world, number)}
    until = BEGIN + 2 * HOUR - 1 - now(world.target)  # a sweep goes on to the full hour
    began = time.perf_counter()
    plan, _ = staged(world, cold, number, marks, until)
    took = time.perf_counter() - began
    cold.plans.abandon(number)
    return took, plan.rows


def _cpu(world: World) -> float:
    """Seconds of CPU that driver, JVM and workers have used. The harness's `cpu_seconds` leaves out threads
    that have ended, and a JVM's come and go."""
    used = 0.0
    for each in world.processes():
        with suppress(psutil.Error):  # a worker that has just ended
            times = each.cpu_times()
            used += times.user + times.system
    return used
