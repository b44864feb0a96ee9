"""What tracing costs a relay: `python -m bench.tracing`.

The engine on the store in memory, without Redis and gRPC, so that the difference shows: timers go
from their claim through a session to their settlement, in batches. Spans go by OTLP to a process that
throws them away. Prints microseconds of CPU for each timer: of the engine's thread, and of the whole
process, in which another thread encodes and sends.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Mapping
from typing import cast

import anyio
from opentelemetry.sdk.metrics import MeterProvider

from bench.harness.processes import application, running
from relay.core.outcomes import ACKED
from relay.core.policy import Policies, TopicPolicy
from relay.core.ports import Stores, TopicStore
from relay.core.timers import NewTimer
from relay.engine.delivery.session import Session
from relay.engine.engine import Engine
from relay.store.memory import MemoryStore
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.export import Exporting
from relay.telemetry.traces.tracing import Tracing

TOPIC = "bench"
TIMERS = 20_000
ROUNDS = 5
BATCH = 500

Headers = Mapping[str, str]


class NoHints:
    """Nobody else schedules here."""

    async def watch(self, topic: str, woken: object, called: object = None) -> None:
        """Nothing to hear."""

    async def unwatch(self, topic: str) -> None:
        """Nothing was heard."""

    async def call_for_help(self, topic: str, rank: int) -> None:
        """There is no other relay."""


class NoTopics:
    """Nobody looks after topics here."""

    async def register(self, topic: str) -> None:
        """Nobody asks."""

    async def lock(self, name: str, topic: str = "", *, ttl: int) -> bool:
        """No janitor."""
        return False


def headers(number: int, percent: int | None) -> Headers:
    """A context that is sampled in so many percent of all timers; None: no context."""
    if percent is None:
        return {}
    sampled = number % 100 < percent
    return {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-0{int(sampled)}"}


async def drain(
    tracing: Tracing, percent: int | None, instruments: Instruments | None = None
) -> tuple[float, float]:
    """CPU seconds of this thread to drain all timers, and of the process when it began."""
    store = MemoryStore(lambda: time.time_ns() // 1000)
    policy = TopicPolicy()
    engine = Engine(
        Stores(store, cast("TopicStore", NoTopics()), NoHints(), store.places),
        Policies(policy),
        instruments or Instruments(MeterProvider()),
        tracing=tracing,
    )
    for start in range(0, TIMERS, BATCH):
        numbers = range(start, start + BATCH)
        await store.schedule(
            TOPIC, [NewTimer(str(n), b"x" * 200, delay=0, headers=headers(n, percent)) for n in numbers]
        )
    async with anyio.create_task_group() as tasks:
        await tasks.start(engine.run)
        session = engine.open([TOPIC], BATCH)
        whole, began = time.process_time(), time.thread_time()
        engine.attach(session)
        await take_all(engine, session)
        spent = time.thread_time() - began
        tasks.cancel_scope.cancel()
    return spent, whole


async def take_all(engine: Engine, session: Session) -> None:
    """Acknowledge everything as it comes."""
    left = TIMERS
    while left:
        outgoing = await session.next()
        for lease in outgoing.leases if outgoing else ():
            engine.end(session, [lease.token], ACKED)
            left -= 1
    await engine.flush(session)


async def measure(name: str, percent: int | None, *, on: bool) -> None:
    """One line."""
    threads, processes = [], []
    for _ in range(ROUNDS):
        exporting = Exporting(["otlp"]) if on else None
        spent, began = await drain(exporting.tracing if exporting else Tracing(), percent)
        if exporting:
            await exporting.close(timeout=60)
        threads.append(spent)
        processes.append(time.process_time() - began)
    thread, process = (statistics.median(values) / TIMERS * 1e6 for values in (threads, processes))
    print(f"{name:<28} thread {thread:6.2f}   process {process:6.2f}")


async def main() -> None:
    """Measure, and print."""
    async with running("collector", application("sink")) as collector:
        port = (await collector.hear())["port"]
        os.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
            "OTEL_BSP_MAX_QUEUE_SIZE": "1000000",  # nothing is dropped: all is paid for
        }
        await measure("off, no context", None, on=False)
        await measure("on, no context", None, on=True)
        await measure("off, contexts not sampled", 0, on=False)
        for percent in (0, 1, 10, 100):
            await measure(f"on, {percent} % sampled", percent, on=True)


if __name__ == "__main__":
    asyncio.run(main())
