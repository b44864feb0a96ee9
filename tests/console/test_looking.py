"""What pages look at is bounded, whatever a topic holds, and however many look."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

from relay.api.access import Access
from relay.api.looking.searching import MOST_LOOKED_AT, TimerSearch, TimerSearches
from relay.api.topics import TopicCalls
from relay.console.live import Live, quantile
from relay.console.requests import Desk, PageCall
from relay.console.views import topics
from relay.console.views.overview import concerns
from relay.core.errors import Denied
from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.core.recurring.forecast import Forecast, Window
from relay.core.timers import NewTimer, NewTimers, TimerState, TopicStats
from relay.core.trust.access import AccessPolicy, AccessRule
from relay.core.trust.globs import Glob
from relay.core.trust.verbs import AccessVerb
from relay.engine.engine import Engine
from relay.engine.recurring.forecasting import LONGEST
from relay.store.memory import MemoryStore
from relay.telemetry.metrics.catalogue import LATENESS
from relay.telemetry.metrics.provider import Metrics
from relay.v1.topic_service_pb2 import (
    ForecastRequest,
    ForecastResponse,
    GetTopicRequest,
    GetTopicResponse,
    Topic,
)
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.served import Served, on_server, put
from tests.worlds.waiting import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
async def relay(valkey: RunningServer) -> AsyncIterator[Served]:
    async with on_server(valkey.url) as relay:
        yield relay


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    keyspace.allow("timers_*")
    return keyspace()


async def test_a_search_looks_at_so_many_timers_and_goes_on(
    relay: Served, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops at its bound although there are more, and its cursor leads to the end, past nothing and twice
    to nothing."""
    monkeypatch.setattr("relay.api.looking.searching.PATIENCE", 60.0)
    names = [f"a-{number:05}" for number in range(MOST_LOOKED_AT + 700)]
    for start in range(0, len(names), 5_000):
        await put(relay, *names[start : start + 5_000], topic=topic, delay=timedelta(seconds=3600))
    await put(relay, "z-1", "z-2", topic=topic, delay=timedelta(seconds=7200))
    searches = TimerSearches(relay.engine)
    first = await searches.find(TimerSearch(topic, prefix="z-"), limit=50)
    assert (first.timers, first.looked_at) == ([], MOST_LOOKED_AT)
    rest = await searches.find(TimerSearch(topic, prefix="z-"), limit=50, cursor=first.cursor)
    assert [timer.timer_id for timer in rest.timers] == ["z-1", "z-2"]
    assert (rest.looked_at, rest.cursor) == (702, "")
    few = await searches.find(TimerSearch(topic), limit=50)
    assert (len(few.timers), few.looked_at) == (50, 50)  # where all fit, no more is read than is shown


async def test_a_search_by_time_begins_where_its_window_does(relay: Served, topic: str) -> None:
    """It reads nothing of what is due before, however much that is."""
    await put(relay, *(f"early-{number}" for number in range(700)), topic=topic, delay=timedelta(seconds=60))
    await put(relay, "mine", topic=topic, delay=timedelta(seconds=7200))
    await put(relay, "late", topic=topic, delay=timedelta(seconds=9000))
    now = time.time_ns() // 1000
    search = TimerSearch(topic, since=now + 3600 * SECOND, before=now + 8000 * SECOND)
    found = await TimerSearches(relay.engine).find(search, limit=50)
    assert ([timer.timer_id for timer in found.timers], found.looked_at, found.cursor) == (["mine"], 1, "")
    leased = await TimerSearches(relay.engine).find(TimerSearch(topic, state=TimerState.LEASED), limit=50)
    assert leased.timers == []


async def test_a_search_gives_up_its_turn_in_time(
    relay: Served, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relay.api.looking.searching.PATIENCE", 0.0)
    await put(relay, *(f"a-{number}" for number in range(1_200)), topic=topic, delay=timedelta(seconds=60))
    found = await TimerSearches(relay.engine).find(TimerSearch(topic, prefix="z"), limit=50)
    assert (found.looked_at, bool(found.cursor)) == (500, True)


async def test_a_cursor_at_an_instant_begins_with_the_timer_that_is_due_then(
    relay: Served, topic: str
) -> None:
    """Also where several are due at that instant; the same in memory."""
    due = 4_000_000_000 * SECOND + 1
    timers = [
        NewTimer(name, b"", due=instant)
        for name, instant in (("before", due - 1), ("b", due), ("a", due), ("after", due + 1))
    ]
    for store in (relay.engine._store, MemoryStore(lambda: 0)):
        await store.schedule(topic, NewTimers.of(timers))
        page = await store.list(Layout(topic), state=None, limit=10, cursor=store.cursor_at(due))
        assert [timer.timer_id for timer in page.timers] == ["a", "b", "after"]


async def test_many_who_look_are_one_reader(relay: Served, topic: str) -> None:
    """Fifty pages that look at the same moment cost Redis one read, and none while nobody looks."""
    await put(relay, "one", topic=topic, delay=timedelta(seconds=60))
    metrics = Metrics()
    live = Live(relay.engine, metrics.instruments)
    before = live.looks
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(live.look)
    assert live.looks == before + 1
    metrics.close()


async def test_a_page_reads_no_partition_of_many_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a topic with 1,024 it shows what is read for all pages; of one with few, it reads each."""
    read: list[str] = []

    async def get(request: GetTopicRequest) -> GetTopicResponse:
        read.append(request.topic)
        return GetTopicResponse(topic=Topic(topic=request.topic, partitions=4))

    async def parts(topic: str, *, first: int, most: int) -> Sequence[TopicStats]:
        read.append(f"{first} {most}")
        return ()

    async def look() -> SimpleNamespace:
        stats = {
            name: TopicStats(name, 0, 0, 0, None, 0, None, None, partitions=n) for name, n in NUMBERS.items()
        }
        return SimpleNamespace(topics={name: SimpleNamespace(stats=each) for name, each in stats.items()})

    async def forecast(*_: object) -> dict[str, object]:
        read.append("forecast")
        return {}

    monkeypatch.setattr(topics, "_forecast", forecast)
    monkeypatch.setattr(topics, "_trend", lambda *_: {})
    monkeypatch.setattr(topics, "of_topic", lambda *_: {})
    told = SimpleNamespace(get=get, told=lambda stats: Topic(topic=stats.topic, partitions=stats.partitions))
    desk = cast(
        "Desk",
        SimpleNamespace(
            topics=told,
            live=SimpleNamespace(look=look),
            partitions=SimpleNamespace(parts=parts),
            settings_of=lambda _: [],
        ),
    )
    for given, reads in (
        ({"topic": "wide"}, []),
        ({"topic": "wide", "parts": "64"}, ["64 64"]),
        ({"topic": "wide", "ahead": "day"}, ["forecast"]),
        ({"topic": "narrow"}, ["narrow", "0 64", "forecast"]),
    ):
        read.clear()
        await topics.topic(desk, PageCall(given, "anonymous"))
        assert read == reads


async def test_a_page_counts_occurrences_for_a_while() -> None:
    """The page says up to which instant it has counted. The API counts for longer."""
    asked: list[float] = []

    async def of(_: str, window: Window, *, within: float) -> Forecast:
        asked.append(within)
        none = (0,) * window.intervals
        return Forecast(0, 0, 0, none, 0, occurrences=none, until=SECOND)

    engine = SimpleNamespace(admit=lambda _, topic: topic, topics=None, forecasts=SimpleNamespace(of=of))
    calls = TopicCalls(cast("Engine", engine))
    told = await topics._forecast(cast("Desk", SimpleNamespace(topics=calls)), "t", "hour")
    await calls.forecast(ForecastRequest(topic="t"))
    assert asked == [topics.COUNTED, LONGEST]
    assert cast("ForecastResponse", told["forecast"]).occurrences_until.seconds == 1


NUMBERS = {"wide": 1024, "narrow": 4}
"""Topics, and how many partitions each has."""


async def test_what_is_missing_is_said(relay: Served, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Redis that is slow to answer, and topics beyond the bound, are no empty and healthy overview; and
    what was seen of topics before is not forgotten."""
    monkeypatch.setattr("relay.engine.topic_watch.FRESH", 0.0)
    monkeypatch.setattr("relay.console.live.EVERY", 0.0)
    await put(relay, "one", topic=topic, delay=timedelta(seconds=60))
    metrics = Metrics()
    live = Live(relay.engine, metrics.instruments)
    monkeypatch.setattr("relay.engine.topic_watch.PATIENCE", PATIENCE)
    await live.look()
    look = await live.look()
    assert (len(look.topics[topic].waiting), concerns(look, []), look.is_cut) == (2, [], False)
    gate, read = anyio.Event(), relay.engine._topic_watch._topics.overview

    async def slow(topics: Sequence[str]) -> Sequence[TopicStats]:
        await gate.wait()
        return await read(topics)

    with monkeypatch.context() as stalled:
        stalled.setattr(relay.engine._topic_watch._topics, "overview", slow)
        stalled.setattr("relay.engine.topic_watch.PATIENCE", 0.05)
        look = await live.look()
        assert (look.topics, [each.said for each in concerns(look, [])]) == (
            {},
            ["has not answered in time: its topics are missing here"],
        )
        gate.set()
    look = await live.look()
    assert (concerns(look, []), len(look.topics[topic].waiting)) == ([], 3)
    monkeypatch.setattr("relay.engine.topic_watch.MOST", 0)
    assert (await live.look()).is_cut
    metrics.close()


def test_a_quantile_is_the_end_of_its_bucket() -> None:
    bounds = LATENESS.bounds
    empty = [0] * (len(bounds) + 1)
    assert quantile(empty, 0.5) is None
    assert quantile([99, *empty[1:-1], 1], 0.5) == bounds[0]
    assert quantile([99, *empty[1:-1], 1], 0.995) == bounds[-1]


async def test_a_search_by_header(relay: Served, topic: str) -> None:
    """By a name, or a name and its value; it wants the verb for what timers carry."""
    await put(relay, "north", topic=topic, delay=timedelta(seconds=60), headers={"tenant": "north"})
    await put(relay, "south", topic=topic, delay=timedelta(seconds=61), headers={"tenant": "south=1"})
    await put(relay, "none", topic=topic, delay=timedelta(seconds=62))
    searches = TimerSearches(relay.engine)
    for header, names in (
        ("tenant", ["north", "south"]),
        ("tenant=north", ["north"]),
        ("tenant=south=1", ["south"]),
        ("tenant=", []),
        ("Tenant", []),
    ):
        found = await searches.find(TimerSearch(topic, header=header), limit=50)
        assert ([timer.timer_id for timer in found.timers], found.looked_at) == (names, 3), header
    rules = [AccessRule("it", [Glob("*")], [Glob("*")], frozenset([AccessVerb.READ]))]
    access = Access()
    access.use(AccessPolicy(rules))
    with pytest.raises(Denied):
        await TimerSearches(relay.engine, access).find(TimerSearch(topic, header="tenant"), limit=50)
