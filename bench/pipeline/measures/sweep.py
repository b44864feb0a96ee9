"""The same timers by way of the cold store: staged, loaded behind the guard, loaded once more."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator

from bench.harness.rows import Row
from bench.pipeline import raw
from bench.pipeline.world import TOPIC, World
from relay.core.partitions import Layout
from relay.pipeline.cold import guarded_load, staging
from relay.pipeline.cold.plans import Plan, Staged
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import Sweep, now
from relay.pipeline.cold.sweep_options import SweepOptions
from relay.pipeline.cold.topic_marks import Opened
from relay.store.bulk.sweeping import Loading, Marks
from relay.store.codec import envelope

RAW = "ceiling: raw variadic pipelines"
GUARDED = "raw: lua/bulk/guarded_load.lua out of memory"
PUT = "into the cold store, with what it retires"
STAGE = "plan and stage"
LOAD = "guarded load"
AGAIN = "guarded load, once more"
WHOLE = "whole sweep"


def measure(world: World) -> Iterator[Row]:
    """The raw client first and last: what the machine gave meanwhile is in both."""
    cold = ColdStore(world.spark, str(world.folder / "cold"))
    shutil.rmtree(world.folder / "cold", ignore_errors=True)
    held = raw.rows(world.table())
    rates = {PUT: _rate(world, lambda: _put(world, cold))}
    ceilings = [_raw(world, held)]
    rates[GUARDED] = _guarded(world, held)
    rates |= _steps(world, cold)
    world.clear()
    rates[WHOLE] = _rate(world, lambda: _sweep(world, cold))
    assert world.count() == world.plan.timers
    ceilings.append(_raw(world, held))
    yield Row("sweep", RAW, sum(ceilings) / 2, "timers/s")
    for name in (GUARDED, PUT, STAGE, LOAD, AGAIN, WHOLE):
        yield Row("sweep", name, rates[name], "timers/s")
    world.clear()


def _put(world: World, cold: ColdStore) -> None:
    front = envelope.encode(b"", {}, "").hex()
    rows = world.timers().selectExpr(
        "topic",
        "timer_id",
        "unix_micros(due_time) as due_us",
        "cast(null as long) as expires_us",
        f"unhex('{front}') || payload as envelope",
    )
    write = cold.write(rows, cold.version(now(world.target)))
    assert write is not None
    retire(cold, world.target, write)


def _steps(world: World, cold: ColdStore) -> dict[str, float]:
    """Each step alone; the plan is given up in the end, so that a whole sweep finds the rows again."""
    world.clear()
    number = cold.plans.following()
    marks = {TOPIC: opened(world, number)}
    found: list[Staged] = []
    rates = {STAGE: _rate(world, lambda: found.append(staged(world, cold, number, marks, None)[1]))}

    def load() -> None:
        guarded_load.load(world.spark, cold.files, world.target, marks, found[0], again=bool(rates.get(LOAD)))

    rates[LOAD] = _rate(world, load)
    assert world.count() == world.plan.timers
    rates[AGAIN] = _rate(world, load)
    cold.plans.abandon(number)
    return rates


def _sweep(world: World, cold: ColdStore) -> None:
    Sweep(world.spark, cold, world.target, [TOPIC], SweepOptions(horizon=None)).run()


def staged(
    world: World, cold: ColdStore, number: int, marks: dict[str, Marks], horizon: int | None
) -> tuple[Plan, Staged]:
    """Plan and stage what is due within a horizon (microseconds; None: everything)."""
    sweep = Sweep(world.spark, cold, world.target, [TOPIC], SweepOptions(horizon=horizon))
    plan = sweep.planned(number, sweep.look(), Opened(marks))
    assert plan is not None
    return plan, staging.stage(cold, plan, world.target)


def opened(world: World, number: int) -> Marks:
    """The marks of a plan."""
    with world.target.open() as store:
        epoch = Loading(store.server).open(
            TOPIC, str(number), "bench", lock=0, ttl=3600, epoch="bench", store="bench"
        )
    assert isinstance(epoch, str)
    return Marks(Layout(TOPIC), epoch, str(number))


def _guarded(world: World, held: raw.Rows) -> float:
    world.clear()
    rate = raw.guarded(world.target, opened(world, 0), held)
    assert world.count() == len(held.ids)
    return rate


def _raw(world: World, held: raw.Rows) -> float:
    world.clear()
    rate = raw.pipelines(world.server.url, TOPIC, held)
    assert world.count() == len(held.ids)
    return rate


def _rate(world: World, work: Callable[[], object]) -> float:
    """Timers a second, the start of Spark's tasks included."""
    began = time.perf_counter()
    work()
    return world.plan.timers / (time.perf_counter() - began)
