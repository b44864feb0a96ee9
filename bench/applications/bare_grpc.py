"""Bare grpc.aio, to compare with: a server that only answers, and a caller that only calls.

Argument: `role`. `server` listens on `port` with relay's two unary methods and says `{"ready": true}`.
`caller` makes `calls` calls of `method` (`deliver` or `schedule`) to `target`, `concurrency` at a time, and
says how long they took. Messages are those that relay would send.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from bench.applications.tally import say
from relay.v1 import (
    delivery_service_pb2,
    timer_handler_pb2,
    timer_handler_pb2_grpc,
    timer_pb2,
    timer_service_pb2,
    timer_service_pb2_grpc,
)


class Handler(timer_handler_pb2_grpc.TimerHandlerServicer):
    """Answers OK."""

    async def Deliver(self, request: Any, context: Any) -> timer_handler_pb2.TimerHandlerDeliverResponse:
        """An ACK."""
        return timer_handler_pb2.TimerHandlerDeliverResponse()


class Timers(timer_service_pb2_grpc.TimerServiceServicer):
    """Answers as if it had stored the timer."""

    async def Schedule(self, request: Any, context: Any) -> timer_service_pb2.ScheduleResponse:
        """The timer's names and due time."""
        response = timer_service_pb2.ScheduleResponse()
        response.timer.topic = request.timer.topic
        response.timer.timer_id = request.timer.timer_id
        response.timer.due_time.CopyFrom(Timestamp(seconds=1_800_000_000))
        return response


async def serve(port: int) -> None:
    """Until somebody ends this process."""
    server = grpc.aio.server()
    timer_handler_pb2_grpc.add_TimerHandlerServicer_to_server(Handler(), server)
    timer_service_pb2_grpc.add_TimerServiceServicer_to_server(Timers(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    say(ready=True)
    await server.wait_for_termination()


def delivery(number: int, payload: bytes) -> timer_handler_pb2.TimerHandlerDeliverRequest:
    """As relay makes it."""
    return timer_handler_pb2.TimerHandlerDeliverRequest(
        delivery=delivery_service_pb2.Delivery(
            topic="bench",
            timer_id=f"timer-{number}",
            payload=payload,
            due_time=Timestamp(seconds=1_800_000_000, nanos=123_456_000),
            attempt=1,
            lease_deadline=Timestamp(seconds=1_800_000_030, nanos=123_456_000),
            occurrence_id=f"timer-{number}/{'0' * 32}",
            token=b"t" * 18,
        )
    )


def request(number: int, payload: bytes) -> timer_service_pb2.ScheduleRequest:
    """As relay's client makes it."""
    timer = timer_pb2.TimerSpec(topic="bench", timer_id=f"timer-{number}", payload=payload)
    timer.delay.seconds = 3600
    return timer_service_pb2.ScheduleRequest(timer=timer)


async def call(target: str, method: str, calls: int, concurrency: int, payload: int) -> None:
    """Make the calls, and say how long they took."""
    content = b"p" * payload
    async with grpc.aio.insecure_channel(target) as channel:
        await channel.channel_ready()
        if method == "deliver":
            deliver = timer_handler_pb2_grpc.TimerHandlerStub(channel).Deliver

            async def one(number: int) -> None:
                await deliver(delivery(number, content), timeout=60)
        else:
            schedule = timer_service_pb2_grpc.TimerServiceStub(channel).Schedule

            async def one(number: int) -> None:
                await schedule(request(number, content), timeout=60)

        began, cpu = time.perf_counter(), time.process_time()
        await at_a_time(one, calls, concurrency)
        say(calls=calls, seconds=time.perf_counter() - began, cpu=time.process_time() - cpu)


async def at_a_time(one: Callable[[int], Awaitable[None]], calls: int, concurrency: int) -> None:
    """Await `one(number)` for each number below `calls`, so many at a time."""
    numbers = iter(range(calls))

    async def worker() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(worker() for _ in range(concurrency)))


async def main(
    role: str,
    *,
    port: int = 0,
    target: str = "",
    method: str = "",
    calls: int = 0,
    concurrency: int = 1,
    payload: int = 200,
) -> None:
    """Play the role."""
    if role == "server":
        await serve(port)
    else:
        await call(target, method, calls, concurrency, payload)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
