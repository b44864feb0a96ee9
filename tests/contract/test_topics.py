"""What people do to topics, as `TopicStore` states it, on each real server with its own clock; as relays do
it, which know of partitions, to topics that have one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.core.outcomes import ClaimRequest, Limits, Verb, Verdict, nonces
from relay.core.partitions import Layout
from relay.core.timers import Change, DeadLetter, NewTimer, TopicStats
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.topics import PartitionedTopics
from relay.store.server.connect import open_client
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.settlements import end_of
from tests.worlds.scripts.asking import Scheduling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redis.asyncio import Redis

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

MILLISECOND = 1000
HOUR = 3600 * SECOND
LEASE = 30 * SECOND
KEEP = Limits(keep=True)
REGISTRY = "timers_topics"
fresh = nonces()


class Operated(Scheduling):
    """A topic, its timers, and the calls of those who look after it."""

    def __init__(self, server: Server, redis: Redis, topic: str) -> None:
        super().__init__(RedisStore(server), topic)
        self.server, self.redis = server, redis
        self.topics = PartitionedTopics(RedisTopics(server), RedisLayouts(server), Carrier(server))

    async def put(self, *timer_ids: str, payload: bytes = b"x", delay: int = 0) -> None:
        timers = [NewTimer(timer_id, payload, delay=delay) for timer_id in timer_ids]
        await self.store.schedule(self.topic, timers)

    async def kill(self, *timer_ids: str, payload: bytes = b"x", error: str = "no") -> None:
        """Schedule, deliver and reject them, one after the other."""
        for timer_id in timer_ids:
            nonce = fresh()
            await self.schedule(timer_id, 1, payload, headers={"h": "ü"}, content_type="text/plain")
            await self.claim(nonce, limit=500, max_bytes=1 << 24)
            await self.settle(timer_id, nonce, Verb.REJECT, error=error, limits=KEEP)

    async def letters(self, limit: int = 100) -> list[DeadLetter]:
        """All pages."""
        found: list[DeadLetter] = []
        cursor = ""
        while True:
            page = await self.topics.dead_page(self.topic, limit=limit, cursor=cursor)
            found += page.letters
            if not page.cursor:
                return found
            cursor = page.cursor

    async def keys(self) -> set[bytes | str]:
        return set(await self.redis.keys(f"*{self.topic}*"))


@pytest.fixture
async def operated(redis_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Operated]:
    keyspace.allow(f"{REGISTRY}*")
    async with (
        Server(redis_server.url, connections=4, timeout=60.0) as server,
        open_client(redis_server.url, connections=1, timeout=60.0) as redis,
    ):
        yield Operated(server, redis, keyspace.topic())


# ------------------------------------------------------------------------------ registry


async def test_the_registry(operated: Operated) -> None:
    """Each topic once, in the order of names."""
    topics = operated.topics
    assert await topics.topics() == []
    for name in ("b", "a", "ключ 🔑", "b"):
        await topics.register(name)
    assert await topics.topics() == ["a", "b", "ключ 🔑"]


async def test_many_topics(operated: Operated) -> None:
    """More than a reply brings at once."""
    names = [f"t{n:04}" for n in range(2500)]
    async with operated.redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.sadd(REGISTRY, name)
        await pipe.execute()
    assert await operated.topics.topics() == names


async def test_the_lock(operated: Operated) -> None:
    """One holds it, whichever relay asks, and it falls free by itself; locks of other names are others."""
    assert await operated.topics.lock("a", ttl=50 * MILLISECOND)
    assert await operated.topics.lock("b", ttl=HOUR)
    assert not await RedisTopics(operated.server).lock("b", ttl=1)
    with anyio.fail_after(60):
        while not await operated.topics.lock("a", ttl=HOUR):  # noqa: ASYNC110
            await anyio.sleep(0.005)
    assert not await operated.topics.lock("a", ttl=HOUR)
    assert await operated.topics.lock("short", ttl=1), "less than a millisecond is one"


async def test_overview(operated: Operated, keyspace: Keyspace) -> None:
    """The same as `stats` of each, in one pipelined read; a broken topic is left out and hides no other;
    a server that knows the script no more gets it."""
    other, broken = keyspace.topic(), keyspace.topic()
    await operated.put("a", "b", delay=HOUR)
    await operated.kill("c")
    await operated.redis.set(f"timers_timeline:{broken}", "x")
    for _ in range(2):
        found = await operated.topics.overview([broken, operated.topic, other])
        assert [replace(stats, now=0) for stats in found] == [
            replace(await operated.topics.stats(topic), now=0) for topic in (operated.topic, other)
        ]
        assert (found[0].timers, found[0].dead) == (2, 1)
        await operated.redis.script_flush()
    assert await operated.topics.overview([]) == []


# ---------------------------------------------------------------------- stats and pause


async def test_stats(operated: Operated) -> None:
    """How a topic stands, by the server's clock; one that nobody has used stands empty."""
    before = time.time_ns() // 1000
    stats = await operated.topics.stats(operated.topic)
    assert before <= stats.now <= time.time_ns() // 1000
    assert replace(stats, now=0) == TopicStats(operated.topic, 0, 0, 0, None, 0, None, None)
    await operated.kill("dead")
    await operated.put("due")
    await operated.put("later", delay=HOUR)
    await operated.topics.pause(operated.topic)
    stats = await operated.topics.stats(operated.topic)
    assert (stats.timers, stats.due, stats.dead, stats.paused_until) == (2, 1, 1, LATEST)
    assert stats.first is not None
    assert stats.oldest_death is not None
    assert before - MILLISECOND <= stats.oldest_death <= stats.now
    assert before <= stats.first <= stats.now


async def test_a_pause(operated: Operated) -> None:
    """Nothing is claimed while it lasts; it ends by itself, and leaves nothing in Redis."""
    await operated.put("a")
    until = await operated.topics.pause(operated.topic, duration=80 * MILLISECOND)
    assert until is not None
    with anyio.fail_after(60):
        while not (found := await operated.claimed(fresh())):
            assert (await operated.topics.stats(operated.topic)).paused_until in (until, None)
    assert found == ["a"]
    assert (await operated.topics.stats(operated.topic)).now >= until
    with anyio.fail_after(60):
        while f"timers_pause:{operated.topic}".encode() in await operated.keys():  # noqa: ASYNC110
            await anyio.sleep(0.005)


async def test_resume(operated: Operated) -> None:
    """It ends a pause that has no end, and is no error where there is none."""
    await operated.put("a")
    await operated.topics.resume(operated.topic)
    assert await operated.topics.pause(operated.topic) == LATEST
    assert await operated.claimed(fresh()) == []
    await operated.topics.resume(operated.topic)
    assert await operated.claimed(fresh()) == ["a"]


async def test_a_pause_until_an_instant(operated: Operated) -> None:
    """As it was given, to the microsecond; one that is past is none, and leaves the other as it is."""
    until = time.time_ns() // 1000 + HOUR
    assert await operated.topics.pause(operated.topic, until=until) == until
    assert (await operated.topics.stats(operated.topic)).paused_until == until
    assert await operated.topics.pause(operated.topic, until=1) is None
    assert await operated.topics.pause(operated.topic, until=0) is None
    assert (await operated.topics.stats(operated.topic)).paused_until == until


# -------------------------------------------------------------------------- dead letters


async def test_a_dead_letter(operated: Operated) -> None:
    """Everything that there was of the timer, in the listing all but its content."""
    before = time.time_ns() // 1000
    await operated.kill("ключ", payload=b"\0;\xff", error="warum;🔑")
    (listed,) = await operated.letters()
    letter = await operated.topics.dead_letter(operated.topic, listed.dead_id)
    assert letter is not None
    assert listed == replace(letter, payload=b"", headers={}, content_type="")
    assert (letter.timer_id, letter.reason, letter.attempts, letter.due) == ("ключ", "rejected", 1, 1)
    assert (letter.error, letter.payload) == ("warum;🔑", b"\0;\xff")
    assert (letter.headers, letter.content_type) == ({"h": "ü"}, "text/plain")
    assert before <= letter.died <= time.time_ns() // 1000
    assert letter.occurrence_id.startswith("ключ/")


async def test_pages(operated: Operated) -> None:
    """The oldest death first, each letter once, while others are purged and added."""
    await operated.kill(*(f"t{n:02}" for n in range(10)))
    for limit in (1, 3, 9, 10, 11):
        found = await operated.letters(limit)
        assert [letter.timer_id for letter in found] == [f"t{n:02}" for n in range(10)]
        assert len({letter.dead_id for letter in found}) == 10
    page = await operated.topics.dead_page(operated.topic, limit=4, cursor="")
    await operated.topics.purge(operated.topic, [letter.dead_id for letter in page.letters[1:]])
    await operated.kill("new")
    following = await operated.topics.dead_page(operated.topic, limit=10, cursor=page.cursor)
    assert [letter.timer_id for letter in following.letters] == [*(f"t{n:02}" for n in range(4, 10)), "new"]
    assert following.cursor == ""


async def test_no_dead_letters(operated: Operated) -> None:
    """One empty page, no letter, nothing to purge or redrive."""
    assert await operated.letters() == []
    assert await operated.topics.dead_letter(operated.topic, "1-0") is None
    assert await operated.topics.purge(operated.topic, ["1-0"]) == 0
    assert await operated.topics.redrive(operated.topic, ["1-0"]) == [Change.GONE]
    assert await operated.topics.trim(operated.topic, max_count=1, max_age=1) == 0


BAD_NAMES = ["", "x", "1", "1-", "-1", "(1-0", "+", "1-0\n", "١-٠", "99999999999999999999-0", "1-0 "]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_names_that_no_listing_gave(operated: Operated, name: str) -> None:
    """They are refused by the field's name, and nothing happens to the others in the call."""
    await operated.kill("a")
    (letter,) = await operated.letters()
    with pytest.raises(InvalidField, match=r"^dead_id: "):
        await operated.topics.dead_letter(operated.topic, name)
    with pytest.raises(InvalidField, match=r"^dead_id: "):
        await operated.topics.redrive(operated.topic, [letter.dead_id, name])
    with pytest.raises(InvalidField, match=r"^dead_id: "):
        await operated.topics.purge(operated.topic, [letter.dead_id, name])
    if name:
        with pytest.raises(InvalidField, match=r"^page_token: "):
            await operated.topics.dead_page(operated.topic, limit=5, cursor=name)
    assert await operated.letters() == [letter]


async def test_redrive(operated: Operated) -> None:
    """It is due now with all its attempts, and it is what it was; the letter is gone."""
    await operated.kill("a", payload=b"p")
    (letter,) = await operated.letters()
    assert await operated.topics.redrive(operated.topic, [letter.dead_id]) == [Change.RUN]
    assert await operated.letters() == []
    nonce = fresh()
    with anyio.fail_after(60):
        while not (
            claim := await operated.store.claim(
                operated.topic, ClaimRequest(limit=5, lease=LEASE, nonce=nonce, max_bytes=1 << 20)
            )
        ).timers:
            pass
    (timer,) = claim.timers
    assert (timer.payload, timer.headers, timer.content_type) == (b"p", {"h": "ü"}, "text/plain")
    assert (timer.attempt, timer.occurrence_id, timer.approximate) == (1, letter.occurrence_id, False)
    assert letter.died <= timer.due <= claim.now
    assert await operated.store.settle(operated.topic, [end_of("a", nonce, Verb.ACK)]) == [Verdict.OK]
    assert await operated.keys() == set(), "nothing is left of it"


async def test_a_redrive_in_conflict(operated: Operated) -> None:
    """A timer of the id lives again: it stays, and so does the letter; of two deaths one can live."""
    await operated.kill("a", payload=b"first")
    await operated.kill("a", payload=b"second")
    await operated.kill("b")
    await operated.put("b", payload=b"newer", delay=HOUR)
    names = [letter.dead_id for letter in await operated.letters()]
    answers = await operated.topics.redrive(operated.topic, names)
    assert answers == [Change.RUN, Change.UNCHANGED, Change.UNCHANGED]
    assert [letter.dead_id for letter in await operated.letters()] == names[1:]
    for timer_id, payload in (("a", b"first"), ("b", b"newer")):
        timer = await operated.store.get(operated.topic, timer_id)
        assert timer is not None
        assert timer.payload == payload
    await operated.store.cancel(operated.topic, ["a", "b"])
    assert await operated.topics.redrive(operated.topic, names) == [Change.GONE, Change.RUN, Change.RUN]


async def test_purge_and_trim(operated: Operated) -> None:
    """What goes is counted; the last one takes the key with it."""
    await operated.kill(*"abcde")
    names = [letter.dead_id for letter in await operated.letters()]
    assert await operated.topics.purge(operated.topic, [names[1], "1-1"]) == 1
    assert await operated.topics.trim(operated.topic, max_count=3, max_age=HOUR) == 1
    assert [letter.timer_id for letter in await operated.letters()] == ["c", "d", "e"]
    trimmed = 0
    with anyio.fail_after(60):
        while await operated.letters():
            trimmed += await operated.topics.trim(operated.topic, max_count=0, max_age=MILLISECOND)
    assert trimmed == 3
    assert await operated.keys() == set()


# -------------------------------------------------------------------------------- repair


async def test_orphans(operated: Operated) -> None:
    """Found part by part, and removed only if they are orphans still."""
    await operated.put("whole")
    await operated.redis.hset(f"timers_payloads:{operated.topic}", "orphan", b"x")
    await operated.redis.hset(f"timers_payloads:{operated.topic}", "late", b"x")
    await operated.redis.hset(f"timers_leases:{operated.topic}", b"\xff", b"x")
    found: set[str] = set()
    done = False
    while not done:
        names, done = await operated.topics.orphans(operated.topic, limit=10)
        found |= set(names)
    assert found == {"orphan", "late", "\udcff"}
    await operated.put("late")
    assert await operated.topics.repair(operated.topic, sorted(found)) == (1, 1)
    assert await operated.topics.orphans(operated.topic, limit=10) == ([], False)
    assert await operated.topics.orphans(operated.topic, limit=10) == ([], True)
    page = await operated.store.list(Layout(operated.topic), state=None, limit=10, cursor="")
    assert {timer.timer_id for timer in page.timers} == {"whole", "late"}
