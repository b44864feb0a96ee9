"""A producer by relay.client, at its defaults.

Argument: `target`, `timers`, and `concurrency` for unary calls (0: `schedule_batch`). The timers are due in
an hour. Says how long it took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bench.applications.bare_grpc import at_a_time
from bench.applications.tally import say
from bench.harness.timers import TOPIC
from relay.client import NewTimer, RelayClient


async def main(target: str, timers: int, concurrency: int, payload: int = 200) -> None:
    """Schedule so many, and say how long it took."""
    content = b"p" * payload
    async with RelayClient(target, timeout=120) as client:

        async def one(number: int) -> None:
            await client.schedule(TOPIC, content, delay=3600, timer_id=f"timer-{number}")

        await client.schedule(TOPIC, content, delay=3600, timer_id="timer-0")  # so that it is connected
        new = [
            NewTimer(topic=TOPIC, payload=content, delay=3600, timer_id=f"timer-{number}")
            for number in range(0 if concurrency else timers)
        ]
        began, cpu = time.perf_counter(), time.process_time()
        if concurrency:
            await at_a_time(one, timers, concurrency)
        else:
            results = await client.schedule_batch(new)
            assert all(result.error is None for result in results)
        say(calls=timers, seconds=time.perf_counter() - began, cpu=time.process_time() - cpu)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
