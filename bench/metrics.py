"""What metrics cost a relay: `python -m bench.metrics`.

First the calls alone that a batch of timers makes to the instruments, from claim to settlement. Then the
engine on the store in memory, without Redis and gRPC: timers go from their claim through a session to
their settlement, in batches; once with all instruments, once with methods that do nothing in their place,
in turns. Prints microseconds of CPU for each timer, and what a scrape takes.
"""

from __future__ import annotations

import asyncio
import inspect
import statistics
import time
import timeit

from bench.tracing import TIMERS, drain
from relay.core.timers import TopicStats
from relay.engine.clock import SystemClock
from relay.telemetry.metrics.catalogue import CLAIMED, DELIVERED, RETRIED, SCHEDULED, SETTLED
from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.instruments import MAX_TOPICS, Instruments
from relay.telemetry.metrics.provider import Metrics
from relay.telemetry.traces.tracing import Tracing

ROUNDS = 15
BATCH = 300


def silent() -> Instruments:
    """Instruments whose methods do nothing."""
    names = [name for name, _ in inspect.getmembers(Instruments, inspect.isfunction) if name[0] != "_"]
    made: Instruments = type("Silent", (Instruments,), {name: lambda *_, **__: None for name in names})(
        Metrics().provider
    )
    return made


def calls() -> float:
    """Microseconds a timer of the calls alone, and of what is gathered for them."""
    count, clock = Metrics().instruments, SystemClock()
    dues, attempts, traces = [float(n) for n in range(BATCH)], [1] * BATCH, [None] * BATCH

    def once() -> None:
        now = clock.now()
        count.count(CLAIMED, "t", n=BATCH)
        count.count(DELIVERED, "t", n=BATCH)
        count.count(RETRIED, "t", n=BATCH - attempts.count(1))
        count.lateness("t", [now - due for due, attempt in zip(dues, attempts, strict=True) if attempt == 1])
        assert not any(traces)
        count.handled("t", clock.now() - now, BATCH)
        count.count(SETTLED, "t", "ack", n=BATCH)
        count.round_trip("claim", 0.001)
        count.round_trip("settle", 0.001)

    best = min(timeit.repeat(once, number=50, repeat=50, timer=time.process_time))
    return best / 50 / BATCH * 1e6


async def main() -> None:
    """Measure, and print."""
    print(f"the calls alone: {calls():.2f} µs a timer, {BATCH} a batch")
    spent: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(ROUNDS):
        for name, instruments in (("off", silent()), ("on", Metrics().instruments)):
            seconds, _ = await drain(Tracing(), None, instruments)
            spent[name].append(seconds / TIMERS * 1e6)
    for name, values in spent.items():
        print(f"{name:<4} {statistics.median(values):6.2f} µs a timer   (least {min(values):.2f})")
    scrape()


def scrape() -> None:
    """What one takes where as many topics as are told apart have something of everything."""
    metrics = Metrics()
    count = metrics.instruments
    topics = [f"topic-{number}" for number in range(MAX_TOPICS)]
    for topic in topics:
        count.count(SCHEDULED, topic)
        count.count(CLAIMED, topic)
        count.count(DELIVERED, topic)
        count.count(SETTLED, topic, "ack")
        count.lateness(topic, [0.1])
        count.handled(topic, 0.1, 1)
        count.schedule_took(topic, 0.1)
    stats = [TopicStats(topic, 2, 1, 1, 1, 0, None, None) for topic in topics]
    metrics.gauges.show(RelayState(), stats)
    began = time.thread_time()
    content, _ = metrics.render()
    lines = content.count(b"\n")
    print(f"a scrape of {len(topics)} topics, {lines} lines: {(time.thread_time() - began) * 1e3:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main())
