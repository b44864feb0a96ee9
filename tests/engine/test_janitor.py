"""The janitor on a real server: what has no timer goes, after a grace period, and nothing else does."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from relay.core.policy import DeadLetterPolicy, Policies, TopicPolicy
from relay.core.timers import NewTimer
from relay.engine.upkeep import janitor as module
from relay.engine.upkeep.janitor import Janitor
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.worlds.engine.doubles import Counts
from tests.worlds.engine.fake_clock import FakeClock


class Grace(FakeClock):
    """A clock on which sleeping is doing what the test wants done meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()


class House:
    """One topic on a server, and janitors for it."""

    def __init__(self, server: Server, topic: str) -> None:
        self.server = server
        self.topic = topic
        self.keys = server.keys
        self.store = RedisStore(server)
        self.topics = RedisTopics(server)
        self.counts = Counts()
        self.clock = Grace()
        self.policy = TopicPolicy()

    def janitor(self) -> Janitor:
        topics = RedisTopics(self.server)
        return Janitor(
            topics, self.server.places, Policies(self.policy), self.clock, self.counts, lambda: 0.5
        )

    async def put(self, *names: str) -> None:
        await self.store.schedule(self.topic, [NewTimer(name, b"x", delay=3_600_000_000) for name in names])

    async def stray(self, kind: int, *names: str) -> None:
        """An entry of the payloads (1) or leases (2) without a timer, as a foreign writer leaves it."""
        for name in names:
            await self.server.ask("HSET", self.keys.of(self.topic)[kind], name, "x")

    async def fields(self, kind: int) -> set[str]:
        found = await self.server.ask("HKEYS", self.keys.of(self.topic)[kind])
        return {name.decode() for name in found}


@pytest.fixture
async def house(valkey: RunningServer, keyspace: Keyspace) -> AsyncIterator[House]:
    topic = keyspace.topic()
    keys = KeyNames(topics=f"timers_topics:{topic}")  # a registry of its own: janitors look at all in it
    async with Server(valkey.url, keys, connections=2, timeout=60.0) as server:
        house = House(server, topic)
        await house.topics.register(topic)
        yield house


async def test_orphans_go_and_timers_stay(house: House, caplog: pytest.LogCaptureFixture) -> None:
    await house.put("a", "b")
    await house.stray(1, "payload", "both")
    await house.stray(2, "lease", "both")
    with caplog.at_level(logging.WARNING):
        await house.janitor().step()
    assert house.clock.slept == [module.GRACE]
    assert await house.fields(1) == {"a", "b"}
    assert await house.fields(2) == set()
    assert (house.counts.total["timers.repaired payload"], house.counts.total["timers.repaired lease"]) == (
        2,
        2,
    )
    assert "without a timer removed" in caplog.text


async def test_what_is_scheduled_in_the_grace_period_stays(house: House) -> None:
    """A publisher that writes its payload first and its timeline later: the script asks again."""
    await house.stray(1, "late", "stray")

    async def publish() -> None:
        await house.server.ask("ZADD", house.keys.of(house.topic)[0], "4000000000", "late")

    house.clock.meanwhile = publish
    await house.janitor().step()
    assert await house.fields(1) == {"late"}
    assert house.counts.total["timers.repaired payload"] == 1


async def test_a_topic_that_redis_refuses_keeps_no_other_from_its_turn(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """A key of the wrong type in the topic that comes first, and another one in the grace period."""
    first, broken = f"{house.topic}-", f"{house.topic}+"  # by name they enclose nothing but each other
    names = sorted((first, broken, house.topic))
    for name in names:
        await house.topics.register(name)
    timelines = {name: house.keys.of(name)[0] for name in names}
    await house.server.ask("SET", timelines[broken], "x")
    await house.server.ask("HSET", house.keys.of(first)[1], "stray", "x")
    await house.stray(1, "stray")

    async def meanwhile() -> None:
        await house.server.ask("SET", timelines[first], "x")

    house.clock.meanwhile = meanwhile
    await house.janitor().step()
    assert await house.fields(1) == set()
    assert caplog.text.count("the janitor left a topic alone") == 2
    await house.server.ask("DEL", *timelines.values(), house.keys.of(first)[1])


async def test_nothing_to_repair_is_no_wait(house: House) -> None:
    await house.put("a")
    await house.janitor().step()
    assert house.clock.slept == []


async def test_one_relay_at_a_time(house: House) -> None:
    """Of two that come together one makes the round; the other leaves it at that."""
    await house.stray(1, "stray")
    other = house.janitor()

    async def meanwhile() -> None:
        assert await house.fields(1) == {"stray"}, "in the middle of the round"
        house.clock.meanwhile = None
        await other.step()
        assert await house.fields(1) == {"stray"}, "the other one did nothing"

    house.clock.meanwhile = meanwhile
    await house.janitor().step()
    assert await house.fields(1) == set()
    assert house.clock.slept == [module.GRACE]


async def test_a_round_is_bounded_and_the_next_goes_on(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is larger than a round takes several; none reads it whole."""
    monkeypatch.setattr(module, "PART", 50)
    monkeypatch.setattr(module, "MAX_PARTS", 4)
    names = [f"n{number}" for number in range(2_000)]
    for start in range(0, len(names), 500):
        await house.put(*names[start : start + 500])
    await house.stray(1, *(f"stray{number}" for number in range(20)))
    janitor, rounds = house.janitor(), 0
    while len(await house.fields(1)) > len(names):
        await house.server.ask("DEL", f"{house.keys.topics}:{module.LOCK}")
        await janitor.step()
        rounds += 1
        assert rounds < 50
    assert rounds > 3
    assert await house.fields(1) == set(names)


async def test_dead_letters_beyond_what_is_kept_go_counted(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.policy = TopicPolicy(dead_letters=DeadLetterPolicy(max_count=3))
    for number in range(10):
        dead = house.keys.of(house.topic)[3]
        await house.server.ask("XADD", dead, f"{number + 1}-0", "timer_id", "x")
    with caplog.at_level(logging.WARNING):
        await house.janitor().step()
    assert await house.server.ask("XLEN", house.keys.of(house.topic)[3]) == 3
    assert house.counts.total["dead_letters.trimmed"] == 7
    assert "dead_letters.max_count" in caplog.text


async def test_a_round_that_fails_is_not_the_last(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """A key of the wrong type is said, and the loop lives."""
    await house.server.ask("SET", house.keys.of(house.topic)[1], "no hash")
    with caplog.at_level(logging.INFO):
        await house.janitor().step()
    assert "left a topic alone" in caplog.text
