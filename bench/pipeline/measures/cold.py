"""A large cold store: the row of one timer found by its id, and the few rows planned that are due soon."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import functions as f

from bench.harness.rows import Row
from bench.pipeline import cold_rows
from bench.pipeline.used import Used
from bench.pipeline.world import FIRST, World
from relay.core.instants import SECOND
from relay.pipeline.cold import staging
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import HOUR, Sweep, now
from relay.pipeline.cold.sweep_options import SweepOptions
from relay.pipeline.cold.topic_marks import Lock, TopicMarks

BY_RUST = "one timer's row by its id, by deltalake"
BY_SPARK = "one timer's row by its id, in a running Spark session"
LOOK = "what is due within two hours, counted"
STAGE = "the same, compared with later rows and staged"
MEMORY = "most memory of driver, JVM and workers while that is planned"
BYTES = "bytes of a row on disk"
LOOKED_UP = 5


def measure(world: World) -> Iterator[Row]:
    """The store is made once, load by load, and stays as loads leave it: so large ones are merged by no
    sweep."""
    timers = world.plan.resting
    cold = cold_rows.made(world.spark, world.folder / "resting", timers)
    note = f"of {timers:,} rows in {cold.table.size()[0]} files"
    yield Row("cold", BYTES, cold.table.size()[1] / timers, "bytes", note=note)
    asked = [timers * n // LOOKED_UP + 1 for n in range(LOOKED_UP)]
    names = [cold_rows.timer(world.spark, number) for number in asked]
    yield Row("cold", BY_RUST, _median(names, lambda name: _by_rust(cold, *name)), "s", note=note)
    _by_spark(cold, *names[0])  # a session that runs
    yield Row("cold", BY_SPARK, _median(names, lambda name: _by_spark(cold, *name)), "s", note=note)
    yield from _planned(world, cold)


def _median(names: list[tuple[str, str]], find: Callable[[tuple[str, str]], int]) -> float:
    seconds = []
    for name in names:
        began = time.perf_counter()
        found = find(name)
        seconds.append(time.perf_counter() - began)
        if found != 1:
            raise RuntimeError(f"{found} rows were found for {name}")
    return statistics.median(seconds)


def _by_rust(cold: ColdStore, topic: str, timer_id: str) -> int:
    """The table is opened anew, as by somebody who asks once."""
    table = DeltaTable(f"{cold.files.root}/timers")
    wanted = f"select * from timers where topic = '{topic}' and timer_id = '{timer_id}'"
    return int(QueryBuilder().register("timers", table).execute(wanted).read_all().num_rows)


def _by_spark(cold: ColdStore, topic: str, timer_id: str) -> int:
    return len(cold.table.rows().where((f.col("topic") == topic) & (f.col("timer_id") == timer_id)).collect())


def _planned(world: World, cold: ColdStore) -> Iterator[Row]:
    """The steps of a sweep before it loads. The plan is given up, and what it staged removed."""
    ahead = FIRST * SECOND + 2 * HOUR - now(world.target)
    sweep = Sweep(world.spark, cold, world.target, None, SweepOptions(horizon=ahead))
    number = cold.plans.following()
    with Used(but=world.server.pid) as used:
        began = time.perf_counter()
        look = sweep.look()
        looked = time.perf_counter()
        opened = TopicMarks(cold, world.target, Lock(0, 3600)).open(look.rows, str(number), 0.0)
        plan = sweep.planned(number, look, opened)
        assert plan is not None
        staged = staging.stage(cold, plan, world.target)
        ended = time.perf_counter()
    if not staged.rows == plan.rows > 0:
        raise RuntimeError(f"{staged.rows} rows were staged of {plan.rows}")
    cold.plans.abandon(number)
    cold.files.remove(staged.folder)
    world.clear()
    yield Row("cold", LOOK, looked - began, "s")
    yield Row("cold", STAGE, ended - looked, "s", note=f"{plan.rows:,} rows of {len(plan.topics)} topics")
    yield Row("cold", MEMORY, used.most / 2**30, "GiB")
