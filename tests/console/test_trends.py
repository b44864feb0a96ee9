"""The last hour of topics: what a sample holds, and what is kept of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from relay.console import trends
from relay.console.trends import SERIES, Trend, Trends
from relay.core.timers import TopicStats
from relay.engine.engine import Engine
from relay.telemetry.metrics.catalogue import SCHEDULED
from relay.telemetry.metrics.gauges import RelayState
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.metrics.provider import Metrics
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.served import Served, on_server, put

pytestmark = pytest.mark.anyio


@pytest.fixture
async def relay(valkey: RunningServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    monkeypatch.setattr("relay.engine.topic_watch.FRESH", 0.0)
    monkeypatch.setattr("relay.engine.topic_watch.NAMES_FRESH", 0.0)
    monkeypatch.setattr("relay.engine.topic_watch.PATIENCE", 60.0)
    async with on_server(valkey.url) as relay:
        yield relay


async def test_a_sample_holds_how_a_topic_stands_and_what_has_happened(
    relay: Served, keyspace: Keyspace
) -> None:
    """Numbers of Redis; rates and lateness of this relay since the sample before; the newest last."""
    topic, metrics = keyspace(), Metrics()
    count: Instruments = metrics.instruments
    kept = Trends(relay.engine, count)
    await put(relay, "one", topic=topic, delay=timedelta(seconds=3600))
    await kept.sample()
    first = dict(zip(("at", *SERIES), kept.of(topic).latest(), strict=True))
    assert (first["timers"], first["due"], first["in"], first["p99"]) == (1, 0, None, None)
    await put(relay, "two", topic=topic, delay=timedelta(seconds=3600))
    count.count(SCHEDULED, topic, n=7)
    count.lateness(topic, [0.004] * 98 + [7.0] * 2)
    await kept.sample()
    at, timers, due, dead, come, gone, p50, p99 = kept.of(topic).columns()
    assert (timers, due, dead) == ([1, 2], [0, 0], [0, 0])
    assert (at[0] or 0) <= (at[1] or 0)
    assert ((come[1] or 0) > 0, gone[1], p50, p99) == (True, 0, [None, 0.005], [None, 10.0])
    assert kept.of(topic).misses(3600) == 0.02
    await kept.sample()
    assert kept.of(topic).misses(trends.EVERY) == 0.0
    metrics.close()


async def test_topics_that_are_counted_together_have_no_rates() -> None:
    """Beyond the first 100 topics a relay counts all as one, and that lateness alerts nobody."""
    metrics = Metrics()
    count = metrics.instruments
    count.topic._limit = 1

    async def standing() -> tuple[RelayState, list[TopicStats]]:
        return RelayState(), [TopicStats(name, 0, 0, 0, None, 0, None, None) for name in ("own", "more")]

    kept = Trends(cast("Engine", SimpleNamespace(standing=standing)), count)
    for _ in range(2):
        for name in ("own", "more", "others"):
            count.count(SCHEDULED, name, n=7)
            count.lateness(name, [7.0])
        await kept.sample()
    own, more = (kept.of(name).latest()[1 + SERIES.index("in") :] for name in ("own", "more"))
    assert ((own[0] or 0) > 0, own[1:]) == (True, [0.0, 10.0, 10.0])
    assert (more, kept.of("more").misses(3600)) == ([None] * 4, 0.0)
    metrics.close()


async def test_an_outage_takes_nothing_from_the_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """While Redis is away no topic is seen. Earlier samples stay for an hour, up to the bound of topics."""
    metrics, now, seen = Metrics(), 1_000.0, ["a", "b"]
    monkeypatch.setattr(trends, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: now))

    async def standing() -> tuple[RelayState, list[TopicStats]]:
        return RelayState(), [TopicStats(name, 0, 0, 0, None, 0, None, None) for name in seen]

    kept = Trends(cast("Engine", SimpleNamespace(standing=standing)), metrics.instruments)

    async def sampled(at: float, *names: str) -> dict[str, int]:
        nonlocal now, seen
        now, seen = at, list(names)
        await kept.sample()
        return {name: len(kept.of(name).columns()[0]) for name in ("a", "b", "c")}

    assert await sampled(1_000.0, "a", "b") == {"a": 1, "b": 1, "c": 0}
    assert await sampled(1_015.0) == {"a": 1, "b": 1, "c": 0}
    assert await sampled(1_030.0, "a") == {"a": 2, "b": 1, "c": 0}
    assert await sampled(4_600.0) == {"a": 2, "b": 0, "c": 0}
    monkeypatch.setattr(trends, "MOST", 1)
    assert await sampled(4_601.0, "c") == {"a": 0, "b": 0, "c": 1}
    metrics.close()


def test_an_hour_is_kept() -> None:
    kept = Trend()
    for number in range(trends.KEPT + 5):
        kept.add((number, *(0.0 for _ in SERIES), 1.0, float(number < trends.KEPT)))
    assert (kept.columns()[0][0], len(kept.columns()[0])) == (5, trends.KEPT)
    assert kept.misses(5 * trends.EVERY) == 0.0
    assert kept.misses(10 * trends.EVERY) == 0.5
