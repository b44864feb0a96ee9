"""How long a relay's claim takes beside a load, as the relay sees it; milliseconds."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.harness.rows import Row
from bench.pipeline.world import FIRST, TOPIC, World
from relay.core.outcomes import ClaimRequest
from relay.core.timers import NewTimer
from relay.pipeline.timers_source import TimersDataSource
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

OTHER = "beside"
"""The topic that is claimed from; the load writes to another one."""

EVERY = 0.005
"""Seconds between two claims."""

CLAIMED = 10
HOUR = 3_600_000_000

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
    claiming = ThreadPoolExecutor(1)
    claims = claiming.submit(asyncio.run, _claim(world, over, found))
    try:
        ends = time.monotonic() + world.plan.beside
        while time.monotonic() < ends:
            if rate == 0:
                time.sleep(world.plan.beside)
            else:
                _load(world, rate)
    finally:
        over.set()
        claiming.shutdown()
    claims.result()
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


async def _claim(world: World, over: threading.Event, found: list[float]) -> None:
    """What a relay does, by its own store: claim what is due, under a lease; ten timers each time."""
    redis = Server(world.server.url, connections=1, timeout=60)
    store = RedisStore(redis)
    try:
        number = 0
        while not over.is_set():
            ids = [f"due-{number}-{n}" for n in range(CLAIMED)]
            await store.schedule(OTHER, [NewTimer(name, bytes(100), due=1) for name in ids])
            nonce = number.to_bytes(16, "big")
            began = time.perf_counter()
            claim = await store.claim(
                OTHER, ClaimRequest(limit=CLAIMED, lease=HOUR, nonce=nonce, max_bytes=1 << 20)
            )
            found.append(1000 * (time.perf_counter() - began))
            if len(claim.timers) != CLAIMED:
                raise RuntimeError(f"a claim brought {len(claim.timers)} timers")
            number += 1
            await asyncio.sleep(EVERY)
    finally:
        await redis.aclose()
