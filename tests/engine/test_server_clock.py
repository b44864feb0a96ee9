"""A relay compares the clock of Redis with its own monotonic one, and ends what that gave before a step."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import StoreUnavailable
from relay.core.instants import SECOND
from relay.core.outcomes import Limits
from relay.core.policy import Policies, TopicPolicy
from relay.engine.claiming.clock_watch import LOOK, SHOWN, ClockWatch, Offset
from relay.engine.claiming.recaller import SPARE, Recaller
from relay.engine.redis_health import RedisHealth
from relay.store.one_place import OnePlace
from tests.worlds.engine.doubles import Counts
from tests.worlds.engine.fake_clock import FakeClock, settle

AHEAD = 1_767_225_600 * SECOND
TRIPS = st.tuples(st.floats(0, 2), st.floats(0, 2))
TTL = 10.0


def exchanged(offset: Offset, asked: float, there: float, back: float, ahead: int = AHEAD) -> int:
    """One question: it travels `there` seconds, its answer `back`."""
    return offset.heard(math.floor((asked + there) * SECOND) + ahead, asked, asked + there + back)


@given(trips=st.lists(TRIPS, min_size=1, max_size=20), slew=st.floats(-5e-4, 5e-4))
def test_no_travel_looks_like_a_step(trips: list[tuple[float, float]], slew: float) -> None:
    """Nor does a clock that is slewed."""
    offset, now = Offset(), 10.0
    for there, back in trips:
        assert exchanged(offset, now, there, back, AHEAD + int(now * slew * SECOND)) == 0
        now += there + back + 1.0


@given(before=TRIPS, after=TRIPS, step=st.integers(-7_200, 7_200))
def test_a_step_is_told(before: tuple[float, float], after: tuple[float, float], step: int) -> None:
    """Which way it went, never by more than it did, and all of it but for the travels; and once."""
    offset = Offset()
    exchanged(offset, 10.0, *before)
    told = exchanged(offset, 20.0, *after, AHEAD + step * SECOND)
    assert 0 <= math.copysign(1, step) * told <= abs(step) * SECOND
    assert abs(step * SECOND - told) <= (sum(before) + sum(after) + 0.1) * SECOND
    assert exchanged(offset, 30.0, *after, AHEAD + step * SECOND) == 0 or abs(step) <= 9


class Clocks:
    """`ServerClocks` of one topic. `scores` are those of leases that can't be cut."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.scores: dict[str, float] = {}
        self.asked: list[int] = []
        self.away = False
        self.forgot = 0
        self.behind: dict[str, int] = {}
        """By how many microseconds the clocks of places are behind the first one's."""

    async def time(self, place: str) -> int:
        if self.away:
            raise StoreUnavailable("away")
        return self._clock.server() - self.behind.get(place, 0)

    def stepped(self, place: str) -> None:
        self.forgot += 1

    async def leases_ahead(self, topic: str, *, lease: int) -> list[str]:
        self.asked.append(lease)
        return list(self.scores)

    async def recall(
        self, topic: str, scores: Mapping[str, float | None], *, lease: int, back: int, limits: Limits
    ) -> tuple[int, dict[str, float]]:
        for timer_id, score in scores.items():
            if score is not None and self.scores.get(timer_id) == score:
                del self.scores[timer_id]
        left = {timer_id: self.scores[timer_id] for timer_id in scores if timer_id in self.scores}
        return self._clock.server(), left

    async def begin_idle_times(self, topic: str, group: str) -> None:
        self.asked.append(-1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Seen(list[tuple[list[str], int]]):
    """The steps that were told."""

    def __call__(self, partitions: Collection[str], by: int) -> None:
        self.append((sorted(partitions), by))


class Nodes(OnePlace):
    """Places of a Cluster, by partition."""

    def __init__(self, at: dict[str, str]) -> None:
        async def ping() -> None: ...

        super().__init__(ping)
        self._at = at

    def of(self, topic: str) -> str:
        return self._at[topic]

    def move(self, place: str, *topics: str) -> None:
        self._at |= dict.fromkeys(topics, place)
        for changed in self.changed:
            changed()


async def test_another_place_has_another_clock(clock: FakeClock) -> None:
    """A node dies, and its replica is an hour behind: that is a step of the partitions that went there,
    however often they went on before somebody could look, and of no others."""
    clocks, seen = Clocks(clock), Seen()
    clocks.behind = {"replica": 3_600 * SECOND, "other": 3_600 * SECOND}
    nodes = Nodes({"orders": "node", "mail": "node", "news": "other"})
    watch = ClockWatch(nodes, clocks, clock, seen)
    for partition in "orders", "mail", "news":
        watch.watch(partition)
    running = asyncio.create_task(watch.run())
    await clock.advance(2 * LOOK)
    clocks.away = True
    nodes.move("replica", "orders")
    await clock.advance(2 * LOOK)
    nodes.move("other", "orders")
    await clock.advance(2 * LOOK)
    assert not seen
    clocks.away = False
    await clock.advance(LOOK)
    ((partitions, by),) = seen
    assert partitions == ["orders"]
    assert by == pytest.approx(-3_600 * SECOND, abs=SECOND // 10)
    assert watch.seconds()["other"] == pytest.approx(-3_600, abs=0.1)
    nodes.move("replica", "orders", "news")
    nodes.move("same", "mail")
    await clock.advance(2 * LOOK)
    assert len(seen) == 1
    nodes.move("node", "news")
    await clock.advance(LOOK)
    _, (partitions, by) = seen
    assert partitions == ["news"]
    assert by == pytest.approx(3_600 * SECOND, abs=SECOND // 10)
    running.cancel()


async def test_steps_are_seen_within_a_look(clock: FakeClock) -> None:
    """What connections know of the clock is forgotten, and the step is shown for a while. A server that is
    away meanwhile may have stepped, too."""
    clocks, seen = Clocks(clock), Seen()

    async def ping() -> None: ...

    watch = ClockWatch(OnePlace(ping), clocks, clock, seen)
    watch.watch("orders")
    running = asyncio.create_task(watch.run())
    await clock.advance(5 * LOOK)
    assert (seen, watch.seconds()) == ([], {"": 0.0})
    clock.skew = -3_600 * SECOND
    await clock.advance(LOOK)
    ((partitions, by),) = seen
    assert partitions == ["orders"]
    assert by == pytest.approx(-3_600 * SECOND, abs=SECOND // 10)
    assert clocks.forgot == 1
    assert watch.seconds() == {"": pytest.approx(-3_600, abs=0.1)}
    clock.skew += SECOND // 5  # somebody slews it, and does not hide what has happened
    await clock.advance(LOOK)
    assert len(seen) == 2
    assert watch.seconds() == {"": pytest.approx(-3_600, abs=0.1)}
    clocks.away = True
    clock.skew = 0
    await clock.advance(5 * LOOK)
    clocks.away = False
    await clock.advance(LOOK)
    _, _, (_, by) = seen
    assert by == pytest.approx(3_600 * SECOND, abs=SECOND // 2)
    await clock.advance(SHOWN)
    assert watch.seconds() == {"": 0.0}
    running.cancel()


def recaller(clocks: Clocks, clock: FakeClock) -> Recaller:
    async def ping() -> None: ...

    health = RedisHealth(OnePlace(ping), clock, Counts())
    return Recaller(clocks, Policies(TopicPolicy(lease_ttl=TTL)), health, clock)


async def test_a_lease_ends_that_nobody_renews(clock: FakeClock) -> None:
    """A lease after it was found, and not before; one that is renewed stays for as long as it is."""
    clocks = Clocks(clock)
    clocks.scores = {"dead": 5.0, "alive": 6.0}
    task = asyncio.create_task(recaller(clocks, clock).recall("orders", 3_600 * SECOND))
    scores = {"dead": 5.0, "alive": 6.0}
    clocks.scores = {
        each: (clock.server() + (TTL + 3_600) * SECOND) / 1e6 + n for n, each in enumerate(scores)
    }
    for _ in range(8):
        await clock.advance(1.0)
        clocks.scores["alive"] += 1e-6
    assert clocks.scores.keys() == {"dead", "alive"}
    await clock.advance(TTL - 8.0 + 1.0)
    assert clocks.scores.keys() == {"alive"}
    for _ in range(20):
        await clock.advance(1.0)
        clocks.scores["alive"] += 1e-6
    assert not task.done()
    del clocks.scores["alive"]
    await clock.advance(1.0)
    assert task.done()
    assert clocks.asked == [TTL * SECOND]


async def test_a_lease_ends_when_it_would_have_by_the_clock_before(clock: FakeClock) -> None:
    """Two seconds were left of it."""
    clocks = Clocks(clock)
    clocks.scores = {"dead": (clock.server() + 3_602 * SECOND) / 1e6}
    task = asyncio.create_task(recaller(clocks, clock).recall("orders", 3_600 * SECOND))
    await clock.advance(1.0)
    assert clocks.scores
    await clock.advance(2.0)
    assert not clocks.scores
    await clock.advance(1.0)
    assert task.done()


async def test_a_clock_that_has_stepped_to_and_fro(clock: FakeClock) -> None:
    """A lease that can't be cut keeps the score of a clock of long ago, however often it is renewed. By the
    clock before the last step it seems to have ended long since: that tells nothing, and it has all its
    time."""
    clocks = Clocks(clock)
    clocks.scores = {"alive": (clock.server() + 2_400 * SECOND) / 1e6}
    task = asyncio.create_task(recaller(clocks, clock).recall("orders", 3_600 * SECOND))
    await clock.advance(TTL - 1.0)
    assert clocks.scores
    await clock.advance(2.0)
    assert not clocks.scores
    await clock.advance(1.0)
    assert task.done()


async def test_without_a_step_other_settings_are_spared(clock: FakeClock) -> None:
    """A relay that begins looks for leases that are longer by a minute."""
    clocks = Clocks(clock)
    await recaller(clocks, clock).recall("orders")
    await settle()
    assert clocks.asked == [(TTL + SPARE) * SECOND]
