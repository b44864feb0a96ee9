"""What metrics cost a relay: `python -m bench.metrics`.

The engine on the store in memory, without Redis and gRPC, so that the difference shows: timers go
from their claim through a session to their settlement, in batches; once with all instruments, once with
methods that do nothing in their place, in turns. Prints microseconds of CPU for each timer, and what a
scrape takes.
"""

from __future__ import annotations

import asyncio
import inspect
import statistics
import time

from bench.tracing import TIMERS, drain
from relay.core.timers import TopicStats
from relay.telemetry.gauges import Vitals
from relay.telemetry.instruments import MAX_TOPICS, Instruments
from relay.telemetry.provider import Metrics
from relay.telemetry.traces import Tracing

ROUNDS = 15


def silent() -> Instruments:
    """Instruments whose methods do nothing."""
    names = [name for name, _ in inspect.getmembers(Instruments, inspect.isfunction) if name[0] != "_"]
    made: Instruments = type("Silent", (Instruments,), {name: lambda *_: None for name in names})(
        Metrics().provider
    )
    return made


async def main() -> None:
    """Measure, and print."""
    spent: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(ROUNDS):
        for name, instruments in (("off", silent()), ("on", Metrics().instruments)):
            seconds, _ = await drain(Tracing(), None, instruments)
            spent[name].append(seconds / TIMERS * 1e6)
    for name, values in spent.items():
        print(f"{name:<4} {statistics.median(values):6.2f} µs a timer   (least {min(values):.2f})")
    least = min(spent["on"]) - min(spent["off"])
    print(f"the instruments take {least:.2f} µs, {least / min(spent['off']):.1%} of the engine in memory")
    scrape()


def scrape() -> None:
    """What one takes where as many topics as are told apart have something of everything."""
    metrics = Metrics()
    count = metrics.instruments
    topics = [f"topic-{number}" for number in range(MAX_TOPICS)]
    for topic in topics:
        count.scheduled(topic, 1)
        count.claimed(topic, 1)
        count.delivered(topic, 1)
        count.settled(topic, "ack", 1)
        count.lateness(topic, [0.1])
        count.handled(topic, [0.1])
        count.schedule_took(topic, 0.1)
    stats = [TopicStats(topic, 2, 1, 1, 1, 0, None, None) for topic in topics]
    metrics.gauges.show(Vitals(), stats)
    began = time.thread_time()
    content, _ = metrics.render()
    lines = content.count(b"\n")
    print(f"a scrape of {len(topics)} topics, {lines} lines: {(time.thread_time() - began) * 1e3:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main())
