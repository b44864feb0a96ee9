"""Wake hints over pub/sub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, cast

import anyio
import anyio.lowlevel
import pytest

from relay.core.errors import StoreRefused
from relay.core.partitions import Layout
from relay.core.timers import NewTimer
from relay.store.memory import MemoryStore
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.servers import RunningServer, start_server
from tests.store.fake import Line
from tests.worlds.waiting import until

if TYPE_CHECKING:
    from redis import Redis

    from tests.keyspace import Keyspace

LATER = 4_000_000_000_000_000


def all_heard(heard: dict[str, list[int]]) -> bool:
    """Whether every topic was woken."""
    return all(heard.values())


@pytest.fixture
async def store(redis_server: RunningServer) -> AsyncIterator[RedisStore]:
    redis = Server(redis_server.url, connections=4, timeout=60.0)
    yield RedisStore(redis)
    await redis.aclose()


async def test_an_earlier_timer_wakes(store: RedisStore, keyspace: Keyspace) -> None:
    """A watcher hears its topic's new first timer to the microsecond, through any relay; others' not."""
    topic, other = keyspace.topic(), keyspace.topic()
    heard: list[int] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch(topic, heard.append)
        await until(lambda: heard == [0])  # it is woken once as the subscription begins
        await store.schedule(other, [NewTimer("a", b"", due=1)])
        await store.schedule(topic, [NewTimer("a", b"", due=LATER)])
        await store.schedule(topic, [NewTimer("b", b"", due=LATER + 1)])
        await store.schedule(topic, [NewTimer("c", b"", due=LATER - 1)])
        await until(lambda: len(heard) == 3)
        assert heard == [0, LATER, LATER - 1]
        group.cancel_scope.cancel()


async def test_a_call_for_help(store: RedisStore, redis_server: RunningServer, keyspace: Keyspace) -> None:
    """Every watcher of the partition hears which rank is called, the caller's own as well, and no other's."""
    topic = keyspace.topic()
    third, other = Layout(topic, 1, 4).partitions[2:]
    heard: dict[str, list[int]] = {"near": [], "far": [], "other": []}
    called: dict[str, list[int]] = {"near": [], "far": [], "other": []}
    async with Server(redis_server.url, timeout=60.0) as server, anyio.create_task_group() as group:
        near, far = RedisHints(store._server), RedisHints(server)
        group.start_soon(near.run)
        group.start_soon(far.run)
        await near.watch(third, heard["near"].append, called["near"].append)
        await far.watch(third, heard["far"].append, called["far"].append)
        await far.watch(other, heard["other"].append, called["other"].append)
        await until(lambda: all_heard(heard))
        await near.call_for_help(third, 1)
        await near.call_for_help(third, 12)
        await until(lambda: called["near"] == called["far"] == [1, 12])
        assert called["other"] == []
        assert set(heard["near"] + heard["far"] + heard["other"]) == {0}
        group.cancel_scope.cancel()


async def test_a_call_for_help_that_redis_refuses(
    store: RedisStore, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody hears it; they come by themselves after a while."""
    refused: list[str] = []

    async def refuse(topic: str, text: bytes) -> None:
        refused.append(topic)
        raise StoreRefused("NOPERM")

    monkeypatch.setattr(store._server, "hint", refuse)
    topic = keyspace.topic()
    await RedisHints(store._server).call_for_help(topic, 1)
    assert refused == [topic]


async def test_watching_more_and_less(store: RedisStore, keyspace: Keyspace) -> None:
    """Topics come and go while it runs; with none left it starts over when one comes."""
    one, two = keyspace.topic(), keyspace.topic()
    heard: list[tuple[str, int]] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch(one, lambda due: heard.append(("one", due)))
        await until(lambda: ("one", 0) in heard)
        await hints.watch(two, lambda due: heard.append(("two", due)))
        await until(lambda: ("two", 0) in heard)
        await hints.unwatch(one)
        await store.schedule(one, [NewTimer("a", b"", due=LATER)])
        await store.schedule(two, [NewTimer("a", b"", due=LATER)])
        await until(lambda: ("two", LATER) in heard)
        assert ("one", LATER) not in heard
        await hints.unwatch(two)
        heard.clear()
        await hints.watch(one, lambda due: heard.append(("one", due)))
        await until(lambda: ("one", 0) in heard)
        group.cancel_scope.cancel()


async def test_topics_that_come_while_it_connects(store: RedisStore, keyspace: Keyspace) -> None:
    """One stream names three topics at once: none is deaf because the first was still being subscribed."""
    topics = [keyspace.topic() for _ in range(3)]
    for pause in (0, 1, 3, 10):  # turns of the loop between two of them
        heard: dict[str, list[int]] = {topic: [] for topic in topics}
        hints = RedisHints(store._server)
        async with anyio.create_task_group() as group:
            group.start_soon(hints.run)
            for topic in topics:
                await hints.watch(topic, heard[topic].append)
                for _ in range(pause):
                    await anyio.lowlevel.checkpoint()
            await until(partial(all_heard, heard))
            group.cancel_scope.cancel()


async def test_a_connection_that_breaks_under_a_read_is_replaced_once(
    redis_server: RunningServer, keyspace: Keyspace
) -> None:
    """redis-py would connect, subscribe and then give that connection up: what is published to it is lost,
    although the server counts a subscriber."""
    topic = keyspace.topic()
    heard: list[int] = []
    line = Line(redis_server.port)
    async with line.open() as url, anyio.create_task_group() as group:
        redis = Server(url, connections=2, timeout=60.0)
        hints = RedisHints(redis)
        group.start_soon(hints.run)
        await hints.watch(topic, heard.append)
        await until(lambda: heard == [0])
        line.reset()
        await until(lambda: heard == [0, 0])
        assert len(line._clients) == 1
        group.cancel_scope.cancel()
    await redis.aclose()


# redis-py may connect twice at once when a broken connection is written to and read; one of the two is
# left to the garbage collector, which closes it and says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_connection_that_breaks_while_topics_come_and_go(
    store: RedisStore, keyspace: Keyspace
) -> None:
    """Neither `run` nor `watch` ends by it, and what is watched in the end is heard."""
    topics = [keyspace.topic() for _ in range(4)]
    last = keyspace.topic()
    heard: list[int] = []
    settled: list[int] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        for turn in range(60):
            topic = topics[turn % 4]
            await (hints.watch(topic, heard.append) if turn % 3 else hints.unwatch(topic))
            if turn % 20 == 7:
                await store._server.ask("CLIENT KILL", "TYPE", "pubsub")
            for _ in range(turn % 5):
                await anyio.lowlevel.checkpoint()
        await hints.watch(topics[0], heard.append)
        # What was asked before is done once this one is heard. PUBSUB NUMSUB tells less: it may count a
        # connection that is about to be given up, and what is published to that is heard by nobody.
        await hints.watch(last, settled.append)
        await until(lambda: bool(settled))
        await store.schedule(topics[0], [NewTimer("a", b"", due=LATER)])
        await until(lambda: LATER in heard)
        group.cancel_scope.cancel()


async def test_what_others_publish(store: RedisStore, keyspace: Keyspace) -> None:
    """Garbage on the channel is passed over."""
    topic = keyspace.topic()
    heard: list[int] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch(topic, heard.append)
        await until(lambda: heard == [0])
        for message in (b"", b"soon", b"\xff", b"nan", b"help", b"help ", b"help me", b"5.5"):
            await store._server.ask("PUBLISH", f"timers_wake:{topic}", message)
        await until(lambda: 5_500_000 in heard)
        assert heard in ([0, 5_500_000], [0, 0, 5_500_000])
        group.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_restart(keyspace: Keyspace) -> None:
    """It subscribes anew, and wakes its watchers, for hints may have been lost meanwhile."""
    with start_server("valkey") as server:
        redis = Server(server.url, connections=2, timeout=60.0)
        heard: list[int] = []
        hints = RedisHints(redis)
        async with anyio.create_task_group() as group:
            group.start_soon(hints.run)
            await hints.watch("topic", heard.append)
            await until(lambda: heard == [0])
            await anyio.to_thread.run_sync(server.restart)
            await until(lambda: len(heard) >= 2)
            assert set(heard) == {0}
            await RedisStore(redis).schedule("topic", [NewTimer("a", b"", due=LATER)])
            await until(lambda: LATER in heard)
            group.cancel_scope.cancel()
        await redis.aclose()


async def test_hints_in_memory() -> None:
    """The store in memory gives the same hints at once."""
    store = MemoryStore(lambda: 0)
    heard: list[int] = []
    await store.watch("topic", heard.append)
    for due in (LATER, LATER + 1, LATER - 1):
        await store.schedule("topic", [NewTimer(f"t{due}", b"", due=due)])
    assert heard == [LATER, LATER - 1]
    await store.unwatch("topic")
    await store.schedule("topic", [NewTimer("a", b"", due=0)])
    assert heard == [LATER, LATER - 1]


def pings(client: Redis) -> int:
    """How many the server has had."""
    stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
    return stats.get("cmdstat_ping", {}).get("calls", 0)


@pytest.mark.slow
async def test_a_server_that_falls_silent() -> None:
    """A connection on which nothing answers any more is given up, and an idle one that is well is not."""
    with start_server("valkey") as server:
        redis = Server(server.url, connections=1, timeout=1.0)
        heard: list[int] = []
        hints = RedisHints(redis, heartbeat=0.5)
        async with anyio.create_task_group() as group:
            group.start_soon(hints.run)
            await hints.watch("topic", heard.append)
            await until(lambda: heard == [0])
            with server.client() as client, anyio.fail_after(60):
                while (
                    heard
                ):  # until a ping comes behind one that was answered in time: a busy machine may be late
                    heard.clear()
                    before = pings(client)
                    await until(lambda: pings(client) >= before + 2)  # noqa: B023
            server.freeze()
            await until(lambda: hints.is_deaf)
            server.thaw()
            await until(lambda: bool(heard))
            group.cancel_scope.cancel()
        await redis.aclose()


async def test_renew(store: RedisStore, keyspace: Keyspace) -> None:
    """It leaves its connection at once for another one."""
    topic = keyspace.topic()
    heard: list[int] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch(topic, heard.append)
        for times in (1, 2, 3):
            await until(lambda: heard == [0] * times)  # noqa: B023
            hints.renew()
        await until(lambda: heard == [0] * 4)
        group.cancel_scope.cancel()


async def test_a_message_costs_no_look_at_all_topics(
    store: RedisStore, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be hundreds of them, and thousands of messages a second."""
    topic = keyspace.topic()
    heard: list[int] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch(topic, heard.append)
        await until(lambda: heard == [0])
        looks: list[str] = []
        monkeypatch.setattr(hints, "wanted", looks.append)
        for n in range(3):
            await store.schedule(topic, [NewTimer(str(n), b"", due=LATER - n)])
        await until(lambda: len(heard) == 4)
        assert looks == []
        group.cancel_scope.cancel()


async def test_a_topic_that_is_watched_again_at_once(store: RedisStore, keyspace: Keyspace) -> None:
    """The race: the server's word that we listen no more comes when we do again."""
    topic, other = keyspace.topic(), keyspace.topic()
    heard: list[int] = []
    hints = RedisHints(store._server)
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch(other, heard.append)
        await hints.watch(topic, heard.append)
        await until(lambda: heard == [0, 0])
        await hints.unwatch(topic)
        (ear,) = hints._ears.values()
        while len(ear._asked) > 1:
            await anyio.lowlevel.checkpoint()
        await hints.watch(topic, heard.append)
        await until(lambda: heard == [0, 0, 0])
        assert ear._lost == set()
        group.cancel_scope.cancel()
