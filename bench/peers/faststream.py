"""faststream-redis-timers: the package whose contract in Redis relays share.

Its defaults are max_concurrent 5, polling_interval 0.05 s, max_polling_interval 5 s.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from faststream_redis_timers import TimersBroker
from redis.asyncio import Redis

from bench.applications.tally import Tally
from bench.harness.timers import TOPIC, load_due
from bench.peers.idle import PAUSE, one_by_one

START_TIMEOUT = 60.0
"""Seconds that its start may take on a machine with neighbours. What is measured begins afterwards."""

LONGEST = 0.05
"""max_polling_interval (seconds) of the tunings"""


async def main(work: str, url: str, timers: int, payload: int, **tuning: Any) -> None:
    """Drain, or wait for single timers."""
    if work == "drain":
        await load_due(url, timers, payload)  # the very timers that relays drain
    redis = Redis.from_url(url)
    broker = TimersBroker(redis, logger=None, start_timeout=START_TIMEOUT)
    tally = Tally(timers)
    if "polling_interval" in tuning:
        tuning["max_polling_interval"] = max(tuning["polling_interval"], LONGEST)

    @broker.subscriber(TOPIC, **tuning)
    async def count(body: bytes) -> None:
        if work == "idle":
            tally.late(float(body))
        tally.count(f"{time.perf_counter_ns()}")

    async def store(_: int) -> None:
        due = datetime.now(UTC) + timedelta(seconds=PAUSE)
        await broker.publish(f"{due.timestamp()}", topic=TOPIC, activate_at=due)

    async with broker:
        await broker.start()
        if work == "idle":
            await one_by_one(tally, timers, store)
        await tally.done.wait()
    await redis.aclose()
    tally.report(tally.seconds)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
