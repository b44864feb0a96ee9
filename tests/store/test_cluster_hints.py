"""Wake hints in a Cluster: heard at the node with the topic, and there again when it has moved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from relay.core.timers import NewTimer
from relay.store.server.hints import RedisHints, deafness
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.servers import RunningServer
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.waiting import until

LATER = 4_000_000_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters."""
    with Cluster() as cluster:
        yield cluster


class Heard(dict[str, list[int]]):
    """What was heard of each topic."""

    def __init__(self, store: RedisStore, hints: RedisHints) -> None:
        super().__init__()
        self.store = store
        self.hints = hints
        self.called: dict[str, list[int]] = {}
        """Which ranks were called for each topic."""
        self._due = LATER

    async def watch(self, *topics: str) -> None:
        """Watch them, and wait until each is woken by its subscription."""
        for topic in topics:
            self[topic], self.called[topic] = [], []
            await self.hints.watch(topic, self[topic].append, self.called[topic].append)
        for topic in topics:
            await until(partial(self.get, topic), f"{topic} is watched")
            self[topic].clear()

    async def publish(self, topic: str) -> None:
        """Give the topic an earlier first timer, and wait until that is heard."""
        self._due -= 1
        await self.store.schedule(topic, [NewTimer(str(self._due), b"", due=self._due)])
        await until(lambda: self._due in self[topic], f"a hint of {topic} is heard")


@asynccontextmanager
async def hearing(cluster: Cluster) -> AsyncIterator[Heard]:
    async with Server(cluster.url, timeout=20.0) as server:
        hints = RedisHints(server)
        async with anyio.create_task_group() as group:
            group.start_soon(hints.run)
            yield Heard(RedisStore(server), hints)
            group.cancel_scope.cancel()


def listens(cluster: Cluster, node: RunningServer) -> set[bytes]:
    """The channels that somebody has subscribed to at a node."""
    return set(cluster.tell(node, "PUBSUB", "SHARDCHANNELS"))


async def test_topics_of_all_nodes_are_heard(cluster: Cluster) -> None:
    """Each at its node only, where two topics of two slots are too; and not any more once they are not
    watched."""
    async with hearing(cluster) as heard:
        topics = [cluster.topic_at(node) for node in (*cluster.nodes, *cluster.nodes)]
        await heard.watch(*topics)
        for topic in topics:
            await heard.publish(topic)
        keys = heard.store._server.keys
        for number, node in enumerate(cluster.nodes):
            there = {keys.channel(topic).encode() for topic in (topics[number], topics[number + 3])}
            assert listens(cluster, node) == there
        for topic in topics:
            await heard.hints.call_for_help(topic, 1)
        await until(lambda: all(heard.called[topic] == [1] for topic in topics))
        for topic in topics:
            await heard.hints.unwatch(topic)
        await until(lambda: not any(listens(cluster, node) for node in cluster.nodes))
        await heard.watch(topics[0])
        await heard.publish(topics[0])
    for node in cluster.nodes:
        cluster.tell(node, "FLUSHALL")


@pytest.mark.parametrize("way", ["move", "migrate"])
async def test_a_topic_moves(cluster: Cluster, way: str) -> None:
    """It is heard at its new node, though nobody calls it: the old one says that it has gone. The topics
    that stay are not woken by that."""
    async with hearing(cluster) as heard:
        topic, stays = cluster.topic_at(cluster.nodes[0]), cluster.topic_at(cluster.nodes[0])
        await heard.watch(topic, stays)
        await heard.publish(topic)
        heard[topic].clear()
        await anyio.to_thread.run_sync(getattr(cluster, way), topic, cluster.nodes[1])
        await until(lambda: heard[topic], "it is woken as it is heard again")
        assert heard[topic] == [0]
        assert listens(cluster, cluster.nodes[1]) == {heard.store._server.keys.channel(topic).encode()}
        await heard.publish(topic)
        await heard.publish(stays)
        assert 0 not in heard[stays]
    for node in cluster.nodes:
        cluster.tell(node, "FLUSHALL")


@pytest.mark.slow
async def test_a_node_is_away() -> None:
    """The topics of the others are heard meanwhile, and its own once it is back."""
    with Cluster() as cluster:
        async with hearing(cluster) as heard:
            away, there = (cluster.topic_at(node) for node in cluster.nodes[:2])
            await heard.watch(away, there)
            await anyio.to_thread.run_sync(cluster.nodes[0].kill)
            await until(lambda: heard.hints.is_deaf)
            await heard.publish(there)
            assert 0 not in heard[there]
            await anyio.to_thread.run_sync(cluster.nodes[0].start)
            await until(lambda: heard[away] and not heard.hints.is_deaf)
            await heard.publish(away)


@pytest.mark.slow
async def test_a_replica_takes_over() -> None:
    """Hints are heard from the new master on."""
    with Cluster(replicas=1) as cluster:
        async with hearing(cluster) as heard:
            topic, (replica,) = cluster.topic_at(cluster.nodes[0]), cluster.replicas[0]
            await heard.watch(topic)
            await anyio.to_thread.run_sync(cluster.fail_over, replica)
            await heard.store.schedule(topic, [NewTimer("a", b"", due=LATER)])
            channel = heard.store._server.keys.channel(topic).encode()
            await until(lambda: channel in listens(cluster, replica))
            await heard.publish(topic)


@pytest.mark.slow
async def test_an_older_cluster() -> None:
    """Before Redis 7 its nodes pass messages on to each other."""
    with Cluster("redis-6") as cluster:
        async with hearing(cluster) as heard:
            topics = [cluster.topic_at(node) for node in cluster.nodes]
            await heard.watch(*topics)
            for topic in topics:
                await heard.publish(topic)
            assert not heard.store._server.hints_are_sharded


async def test_whether_hints_are_heard_is_tried(cluster: Cluster) -> None:
    """As the doctor does it."""
    async with Server(cluster.url, timeout=20.0) as server:
        await server.ping()
        for _ in range(6):
            assert await deafness(server) == []
