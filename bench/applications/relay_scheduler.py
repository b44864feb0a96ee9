"""A producer by relay.client, at its defaults.

Argument: `target`, `timers`, and `concurrency` for unary calls (0: `schedule_batch`); `columns` false for
`ScheduleBatch` by a bare stub, in calls like those of the client. The timers are due after `delay`
seconds, an hour if nothing is said. Each call asks for `durability`. Says how long it took, and of unary
calls the quantiles of each one's time, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import grpc.aio

from bench.applications.bare_grpc import at_a_time
from bench.applications.tally import say
from bench.harness.quantiles import milliseconds
from bench.harness.timers import TOPIC
from relay.client import NewTimer, RelayClient
from relay.client.calls.batches import AT_ONCE, MAX_TIMERS
from relay.v1.timer_service_pb2 import ScheduleBatchRequest
from relay.v1.timer_service_pb2_grpc import TimerServiceStub


async def batches(target: str, new: Sequence[NewTimer]) -> None:
    """Schedule them by `ScheduleBatch`."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub = TimerServiceStub(channel)

        async def one(number: int) -> None:
            some = new[number * MAX_TIMERS : (number + 1) * MAX_TIMERS]
            request = ScheduleBatchRequest(timers=[timer.to_proto() for timer in some])
            response = await stub.ScheduleBatch(request, timeout=120)
            assert not any(result.HasField("error") for result in response.results)

        await at_a_time(one, -(-len(new) // MAX_TIMERS), AT_ONCE)


async def main(
    target: str,
    timers: int,
    concurrency: int = 0,
    payload: int = 200,
    delay: float = 3600,
    durability: str = "",
    *,
    columns: bool = True,
) -> None:
    """Schedule so many, and say how long it took."""
    content = b"p" * payload
    async with RelayClient(target, timeout=120) as client:
        took: list[float] = []

        async def one(number: int) -> None:
            began = time.perf_counter()
            await client.schedule(
                TOPIC, content, delay=delay, timer_id=f"timer-{number}", durability=durability
            )
            took.append(time.perf_counter() - began)

        await client.schedule(TOPIC, content, delay=delay, timer_id="timer-0")  # so that it is connected
        new = [
            NewTimer(topic=TOPIC, payload=content, delay=delay, timer_id=f"timer-{number}")
            for number in range(0 if concurrency else timers)
        ]
        began, cpu = time.perf_counter(), time.process_time()
        if concurrency:
            await at_a_time(one, timers, concurrency)
        elif not columns:
            await batches(target, new)
        else:
            results = await client.schedule_batch(new, durability=durability)
            assert all(result.error is None for result in results)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        say(calls=timers, seconds=seconds, cpu=cpu, took=milliseconds(took) if took else {})


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
