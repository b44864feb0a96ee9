"""bulk/cold, and what forecasts and metrics make of it: what rests in cold stores, counted by sweeps."""

from __future__ import annotations

import pytest

from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.core.recurring.cold_counts import DAY, HOUR, ColdCounts
from relay.core.recurring.forecast import Cold, Window
from relay.store.bulk.cold_counts import TellsColdCounts
from relay.store.codec.cold_counts import DAYS
from relay.store.keys import KeyNames
from relay.store.partitions.forecasts import RedisForecasts
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import score

THIS_HOUR = NOW // HOUR
WINDOW = Window(horizon=4 * HOUR, resolution=HOUR)


def telling(bench: Bench, store: str = "s") -> TellsColdCounts:
    return TellsColdCounts(bench.blocking, store)


def hours(bench: Bench, *counts: int) -> ColdCounts:
    """Timers of this hour and those that follow."""
    return ColdCounts.of_hours({THIS_HOUR + n: count for n, count in enumerate(counts)}, bench.now)


async def cold(bench: Bench, window: Window = WINDOW) -> Cold | None:
    return (await RedisForecasts(bench.redis).read(Layout(bench.topic), window)).cold


async def total(bench: Bench) -> int:
    found = await cold(bench)
    return 0 if found is None else found.overdue + sum(found.timers) + found.later


async def test_what_a_sweep_says_is_in_the_forecast(bench: Bench) -> None:
    """Apart from the timers that wait, which it says nothing of."""
    assert await cold(bench) is None
    bench.now = THIS_HOUR * HOUR
    bench.put("a", score(bench.now + HOUR))
    telling(bench).tell(1, "w", {bench.topic: hours(bench, 0, 5, 0, 7, 11)})
    found = await RedisForecasts(bench.redis).read(Layout(bench.topic), WINDOW)
    assert found.cold == Cold(bench.now, 0, (0, 5, 0, 7), 11)
    assert (list(found.timers), found.later) == ([0, 1, 0, 0], 0)
    stats = await bench.topics.stats(bench.topic)
    assert (stats.cold, stats.coming) == ((0, 0, 23), (0, 1, 1))


async def test_what_a_plan_takes_is_not_resting(bench: Bench) -> None:
    """From before its first batch until somebody has counted behind it, however often it says so."""
    bench.now = THIS_HOUR * HOUR
    telling(bench).tell(6, "w", {bench.topic: hours(bench, 3, 5, 7)})
    for _ in range(2):
        telling(bench).take(7, [bench.topic], bench.now + 2 * HOUR)
        assert await total(bench) == 7
    telling(bench).tell(7, "w", {bench.topic: hours(bench, 0, 1, 7)})
    assert await total(bench) == 8


async def test_a_sweep_that_comes_to_itself_says_nothing(bench: Bench) -> None:
    """What later plans have said stands."""
    bench.now = THIS_HOUR * HOUR
    telling(bench).tell(7, "w", {bench.topic: hours(bench, 0, 0, 7)})
    telling(bench).tell(6, "w", {bench.topic: hours(bench, 3, 5, 7)})
    assert await total(bench) == 7
    telling(bench).take(8, [bench.topic], bench.now + 3 * HOUR)
    telling(bench).take(7, [bench.topic], bench.now + 2 * HOUR)
    assert await total(bench) == 0


async def test_a_store_that_nobody_has_counted_leaves_nothing(bench: Bench) -> None:
    """A restore is a sweep, too."""
    telling(bench).take(1, [bench.topic], NOW)
    assert not bench.raw.exists(KeyNames().key("cold", bench.topic))


async def test_two_stores_add_up(bench: Bench) -> None:
    """What the one takes is nothing to the other."""
    bench.now = THIS_HOUR * HOUR
    telling(bench, "a").tell(1, "w", {bench.topic: hours(bench, 0, 5)})
    telling(bench, "b").tell(4, "w", {bench.topic: hours(bench, 0, 7)})
    assert await total(bench) == 12
    telling(bench, "b").take(5, [bench.topic], bench.now + 2 * HOUR)
    assert await total(bench) == 5


async def test_counts_of_a_store_that_nobody_sweeps_any_more(bench: Bench) -> None:
    """They go with their key, and count no more where another store's keep it."""
    telling(bench, "a").tell(1, "w", {bench.topic: hours(bench, 0, 0, 0, 0, 0, 5)})
    key = KeyNames().key("cold", bench.topic)
    assert (DAYS * 86_400 - 100) < bench.raw.ttl(key) <= DAYS * 86_400
    bench.now = NOW + DAYS * DAY + SECOND
    telling(bench, "b").tell(1, "w", {bench.topic: ColdCounts.of_hours({bench.now // HOUR: 7}, bench.now)})
    assert await total(bench) == 7


async def test_a_window_far_ahead_has_what_rests_there(bench: Bench) -> None:
    """Counts are as old as they are now, not as they will be by then."""
    bench.now = THIS_HOUR * HOUR
    start = bench.now + 30 * 24 * HOUR
    counts = ColdCounts.of_hours({start // HOUR: 24}, bench.now)
    telling(bench).tell(1, "w", {bench.topic: counts})
    old = ColdCounts.of_hours({start // HOUR: 5}, bench.now - DAYS * DAY - 1)
    telling(bench, "no longer swept").tell(1, "w", {bench.topic: old})
    found = await RedisForecasts(bench.redis).read(Layout(bench.topic), WINDOW, start)
    assert found.cold is not None
    assert (found.cold.counted, found.cold.overdue + sum(found.cold.timers) + found.cold.later) == (
        bench.now,
        24,
    )


@pytest.mark.parametrize("text", ["", "1", "1 {}", "x {}", '1 {"at":0,"writes":"w","spans":[[1]]}', "\xff"])
async def test_what_another_version_has_said(bench: Bench, text: str) -> None:
    """It is left out, and the rest of the forecast is good."""
    bench.raw.hset(KeyNames().key("cold", bench.topic), "counts:s", text)
    assert await cold(bench) is None


async def test_what_another_version_takes(bench: Bench) -> None:
    """It is left out, too."""
    bench.now = THIS_HOUR * HOUR
    telling(bench).tell(1, "w", {bench.topic: hours(bench, 3, 5)})
    bench.raw.hset(KeyNames().key("cold", bench.topic), "takes:s", "x 1")
    assert await total(bench) == 8
