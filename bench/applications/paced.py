"""A producer and a consumer in one process, by relay.client. It schedules `rate` timers a second until it is
told to end.

Argument: `target`, `topic`, `rate` (timers a second), `payload` (bytes). It schedules a batch each tenth of a
second; the timers are due `LEAD` seconds later. It says `{"ready": true}` when it has handled the first one.
At a line on its stdin it says how many timers it has handled a second since then, and ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import Any

from bench.applications.tally import say
from relay.client import Delivery, NewTimer, RelayClient

EVERY, LEAD = 0.1, 1.0
"""Seconds."""


async def produce(client: RelayClient, topic: str, rate: int, payload: int) -> None:
    """Schedule until cancelled. Behind a batch that took long the next comes at once, so the rate stays."""
    content, began = b"p" * payload, time.perf_counter()
    size = round(rate * EVERY)
    for number in itertools.count():
        await asyncio.sleep(began + number * EVERY - time.perf_counter())
        new = [
            NewTimer(
                topic=topic, payload=content, delay=LEAD + each * EVERY / size, timer_id=f"{number}-{each}"
            )
            for each in range(size)
        ]
        results = await client.schedule_batch(new)
        assert all(result.error is None for result in results)


async def main(target: str, topic: str, rate: int, payload: int = 200) -> None:
    """Until a line comes."""
    handled = 0
    first = asyncio.Event()
    client = RelayClient(target, timeout=60)

    async def count(_: Delivery) -> None:
        nonlocal handled
        handled += 1
        first.set()

    client.on(topic)(count)
    async with client:
        await client.wait_ready(60)
        producer = asyncio.create_task(produce(client, topic, rate, payload))
        await first.wait()
        say(ready=True)
        before, began = handled, time.perf_counter()
        await asyncio.to_thread(sys.stdin.readline)
        seconds = time.perf_counter() - began
        producer.cancel()
        say(rate=(handled - before) / seconds)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
