"""How long a relay's claim takes beside a load, as the relay sees it; milliseconds."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator

from bench.harness.rows import Row
from bench.pipeline.world import FIRST, TOPIC, World
from relay.pipeline.timers_source import TimersDataSource
from relay.store.blocking import Line
from relay.store.keys import KeyNames
from relay.store.scripts import Script

OTHER = "beside"
"""The topic that is claimed from; the load writes to another one."""

EVERY = 0.005
"""Seconds between two claims."""

QUIET = "claim of 10 timers, nothing beside it"
LOADED = "claim of 10 timers, beside a load"
PACED = "claim of 10 timers, beside a load with max_rate 50,000"


def measure(world: World) -> Iterator[Row]:
    """The same claims three times."""
    world.spark.dataSource.register(TimersDataSource)
    for name, rate in ((QUIET, 0), (LOADED, None), (PACED, 50_000)):
        found = _claims(world, rate)
        for stat, value in zip(("p50", "p99", "max"), _quantiles(found), strict=True):
            yield Row("beside", name, value, "ms", stat)
    world.clear()


def _quantiles(found: list[float]) -> tuple[float, float, float]:
    cuts = statistics.quantiles(found, n=100)
    return cuts[49], cuts[98], max(found)


def _claims(world: World, rate: int | None) -> list[float]:
    """Milliseconds of each claim while a load runs; a rate of 0: none does."""
    world.clear()
    over = threading.Event()
    found: list[float] = []
    claiming = threading.Thread(target=_claim, args=(world, over, found))
    claiming.start()
    try:
        ends = time.monotonic() + world.plan.beside
        while time.monotonic() < ends:
            if rate == 0:
                time.sleep(world.plan.beside)
            else:
                _load(world, rate)
    finally:
        over.set()
        claiming.join()
    return found


def _load(world: World, rate: int | None) -> None:
    options = {**world.target.options(), "topic": TOPIC}
    rows = world.timers()
    if rate is not None:
        options["max_rate"] = str(rate)
        rows = rows.where(
            f"due_time < timestamp_micros({FIRST}000000 + {int(rate * world.plan.beside)} * 1000)"
        )
    rows.write.format("timers").options(**options).mode("append").save()


def _claim(world: World, over: threading.Event, found: list[float]) -> None:
    """What a relay does: claim what is due, under a lease; ten timers each time."""
    script, keys = Script("claim"), KeyNames().of(OTHER)
    with Line(world.server.url, timeout=60) as line:
        number = 0
        while not over.is_set():
            ids = [f"due-{number}-{n}" for n in range(10)]
            line.ask("ZADD", keys[0], *(part for name in ids for part in (1.0, name)))
            line.ask("HSET", keys[1], *(part for name in ids for part in (name, bytes(100))))
            nonce = number.to_bytes(16, "big")
            args = (10, 3_600_000_000, nonce, 1 << 20, 60_000_000, 0, 0, 0, "", "")
            began = time.perf_counter()
            line.send(("EVALSHA", script.sha, script.keys, *keys[: script.keys], *args))
            (reply,) = line.receive(1)
            took = time.perf_counter() - began
            if isinstance(reply, Exception):
                line.ask("SCRIPT", "LOAD", script.text)
            else:
                found.append(1000 * took)
            number += 1
            time.sleep(EVERY)
