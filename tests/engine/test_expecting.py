"""The load that is expected at an instant: against a queue that is served timer by timer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import TypeVar

import pytest

from relay.core.errors import StoreUnavailable
from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.core.recurring.expected_load import ExpectedLoad
from relay.core.recurring.forecast import Cold, Forecast, Window
from relay.engine.expecting import KEPT, MOST_READS, Expecting
from tests.worlds.engine.fake_clock import EPOCH, FakeClock

T = TypeVar("T")
MINUTE = 60 * SECOND
NOW = EPOCH
"""By the store's clock: a whole minute."""


class InMemory:
    """A topic's due times, read as Redis reads them; and the layout that it has."""

    def __init__(self, clock: FakeClock, dues: Sequence[int] = (), partitions: int = 1) -> None:
        self.clock, self.dues = clock, list(dues)
        self.layout = Layout("t") if partitions == 1 else Layout("t", 1, partitions)
        self.reads: list[int | None] = []
        self.cold: Cold | None = None
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def begin(self, topic: str, work: Callable[[Layout], Awaitable[T]]) -> T:
        return await work(self.layout)

    async def read(self, layout: Layout, window: Window, since: int | None = None) -> Forecast:
        self.reads.append(since)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        start = self.clock.server() if since is None else since
        counts = [0] * window.intervals
        for due in self.dues:
            if start < due < start + window.horizon:
                counts[(due - start) // window.resolution] += 1
        overdue = sum(due <= start for due in self.dues)
        later = sum(due >= start + window.horizon for due in self.dues)
        return Forecast(start, overdue, 0, counts, later, cold=self.cold)


def expecting(store: InMemory, rate: float | None = 10.0) -> Expecting:
    return Expecting(store, store, lambda topic, now: rate, store.clock)


async def told(store: InMemory, due: int, rate: float | None = 10.0) -> ExpectedLoad:
    found = await expecting(store, rate).load("t", due)
    assert found is not None
    return found


def served(dues: Sequence[int], rate: float, due: int, now: int) -> float:
    """How many seconds a timer waits that is due at an instant and comes last, if each takes its turn."""
    free = float(now)
    for each in sorted([*(each for each in dues if each <= due), due]):
        free = max(free, float(each), float(now)) + SECOND / rate
    return (free - SECOND / rate - due) / SECOND


async def test_a_burst_at_one_instant() -> None:
    """All of it has to be delivered before the last of it, now and in weeks."""
    clock = FakeClock()
    for due in (NOW + MINUTE, NOW + 30_000 * MINUTE):
        store = InMemory(clock, [due] * 600)
        found = await told(store, due)
        assert (found.lateness, found.rate, found.in_minute, found.read) == (60 * SECOND, 10.0, 600, NOW)
        assert (await told(store, due + 45 * SECOND)).lateness == 15 * SECOND
        assert (await told(store, due + 65 * SECOND)).lateness == 0


async def test_what_waits_now_is_delivered_until_then() -> None:
    """As far as there is time; also where that is long before the window."""
    clock = FakeClock()
    store = InMemory(clock, [NOW - SECOND] * 3_000)
    assert (await told(store, NOW + SECOND)).lateness == 299 * SECOND
    assert (await told(store, NOW + 4 * MINUTE)).lateness == 60 * SECOND
    assert (await told(store, NOW + 6 * MINUTE)).lateness == 0


async def test_any_load_is_expected_as_it_would_be_served() -> None:
    """To the second in which timers are due, and never too little."""
    chance = random.Random(7)
    for _ in range(40):
        clock = FakeClock()
        dues = [NOW + chance.randrange(170) * SECOND for _ in range(chance.randrange(1, 900))]
        dues += [NOW + chance.randrange(170) * SECOND] * chance.randrange(300)
        store, rate = InMemory(clock, dues), chance.choice([1.0, 4.0, 7.5])
        due = NOW + chance.randrange(1, 175) * SECOND
        lateness = (await told(store, due, rate)).lateness
        assert lateness is not None
        assert lateness / SECOND == pytest.approx(max(served(dues, rate, due, NOW), 0), abs=1 / rate + 1e-6)


async def test_without_a_rate_it_tells_what_is_due() -> None:
    clock = FakeClock()
    found = await told(InMemory(clock, [NOW + 90 * SECOND, NOW + 150 * SECOND]), NOW + 70 * SECOND, None)
    assert found == ExpectedLoad(None, None, 1, NOW)


async def test_what_rests_in_cold_stores_is_expected_too() -> None:
    clock = FakeClock()
    store = InMemory(clock)
    store.cold = Cold(NOW, 20, (*[0] * 120, 100, *[0] * 59), 0)
    found = await told(store, NOW + 100 * MINUTE)
    assert (found.lateness, found.in_minute) == (10 * SECOND, 100)


async def test_nothing_is_read_until_somebody_asks_and_seldom_then() -> None:
    """One look at now and one at each minute, for a second; together they have a bound."""
    clock = FakeClock()
    store = InMemory(clock)
    asked = expecting(store)
    assert store.reads == []
    for second in range(30):
        assert await asked.load("t", NOW + 60 * MINUTE + second * SECOND) is not None
    assert store.reads == [None, NOW + 58 * MINUTE]
    loads = [await asked.load("t", NOW + n * 60 * MINUTE) for n in range(2, 30)]
    assert len(store.reads) == MOST_READS
    assert [load is not None for load in loads] == [n < MOST_READS for n in range(2, 30)]
    await clock.advance(KEPT)
    assert await asked.load("t", NOW + 29 * 60 * MINUTE) is not None
    assert len(store.reads) == MOST_READS + 2


async def test_who_comes_meanwhile_takes_what_is_being_read() -> None:
    clock = FakeClock()
    store = InMemory(clock)
    store.gate = asyncio.Event()
    asked = expecting(store)
    loads = [asyncio.create_task(asked.load("t", NOW + MINUTE)) for _ in range(50)]
    await asyncio.sleep(0)
    store.gate.set()
    assert None not in await asyncio.gather(*loads)
    assert store.reads == [None]


async def test_many_partitions_are_read_less_often() -> None:
    """A read of them is as many script calls."""
    clock = FakeClock()
    store = InMemory(clock, partitions=64)
    asked = expecting(store)
    await asked.load("t", NOW + MINUTE)
    await clock.advance(6.0)
    await asked.load("t", NOW + MINUTE)
    assert store.reads == [None]
    await clock.advance(0.5)
    await asked.load("t", NOW + MINUTE)
    assert store.reads == [None, None]


async def test_what_cannot_be_read() -> None:
    """The timer is stored, so nothing is raised."""
    clock = FakeClock()
    store = InMemory(clock)
    store.failure = StoreUnavailable("away")
    assert await expecting(store).load("t", NOW) is None
    assert await Expecting(None, store, lambda topic, now: 1.0, clock).load("t", NOW) is None


async def test_a_caller_hears_in_time_that_the_timer_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race: the timer is stored, and the read of what falls due hangs until its caller has given up."""
    store = InMemory(FakeClock())
    store.gate = asyncio.Event()
    asked = expecting(store)
    with monkeypatch.context() as patched:
        patched.setattr("relay.engine.expecting.call_deadline", lambda: monotonic() + 0.1)
        async with asyncio.timeout(60.0):
            assert await asked.load("t", NOW + MINUTE) is None
    store.gate.set()
    assert await asked.load("t", NOW + MINUTE) is not None
