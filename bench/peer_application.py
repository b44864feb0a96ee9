"""The same application on faststream-redis-timers.

Arguments: the URL of Redis, how many to wait for, max_concurrent, polling_interval. Prints what
`bench.relay_application` prints.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from faststream_redis_timers import TimersBroker
from redis.asyncio import Redis


async def main(url: str, expected: int, max_concurrent: int, polling_interval: float) -> None:
    """Handle `expected` timers and say how long it took."""
    redis = Redis.from_url(url)
    broker = TimersBroker(redis, logger=None)
    handled, began = 0, 0.0
    done = asyncio.Event()

    @broker.subscriber(
        "bench",
        max_concurrent=max_concurrent,
        polling_interval=polling_interval,
        max_polling_interval=max(polling_interval, 0.05),
    )
    async def count(body: bytes) -> None:
        nonlocal handled, began
        began = began or time.perf_counter()
        handled += 1
        if handled == expected:
            done.set()

    async with broker:
        await broker.start()
        await done.wait()
        seconds = time.perf_counter() - began
    await redis.aclose()
    print(json.dumps({"seconds": seconds, "handled": handled, "again": 0}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
