"""A topic whose OKs mean the disk gets another number of partitions, and a node loses what is not synced."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from random import Random

import anyio
import pytest

from relay.core.durability import Durability, needing
from relay.core.errors import DurabilityMissed, OtherLayout, StoreUnavailable
from relay.core.partitions import Layout
from relay.core.timers import NewTimer
from relay.store.server import server as server_module
from relay.store.server.server import Server
from tests.servers import RunningServer
from tests.store.moving import IDS, LATER, Relay, assert_at_home, nothing
from tests.store.test_bulk_durability import load, rows
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.cluster.faults import at_once
from tests.worlds.replicated import EVERYSEC
from tests.worlds.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

FSYNC = Durability(fsync=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster("valkey", masters=2, config=EVERYSEC) as cluster:
        yield cluster


def apart(cluster: Cluster) -> tuple[str, RunningServer]:
    """A topic whose second partition lies at another node than its first, and that node."""
    for number in count():
        topic = f"orders-{number}"
        there = cluster.owner_of(f"{topic}#1")
        if there is not None and cluster.owner_of(topic) is not there:
            return topic, there
    raise AssertionError("unreachable")


def blocked(server: RunningServer) -> int:
    """How many connections wait in WAITAOF."""
    return int(server.control.info("clients")["blocked_clients"])


async def settled(relay: Relay, layout: Layout) -> None:
    """Move until that is done, as a relay does."""
    with suppress(OtherLayout):  # somebody has
        while True:
            try:
                await relay.moves.run(layout, nothing)
            except StoreUnavailable:
                await anyio.sleep(0.1)
            else:
                break


def test_a_load_whose_slot_moves(cluster: Cluster) -> None:
    """A node has taken batches for two topics, and the slot of the second one goes to another node. That one
    has it in memory, and nobody waits for its disk: the load has to be run again."""
    node, other = cluster.nodes
    topics = [cluster.topic_at(node) for _ in range(2)]

    def moved() -> None:
        with load(cluster.url, FSYNC) as store:
            for topic in topics:
                store.replace(topic, rows("x"))
            store.flush()
            at_once(cluster, topics[1], other, Random())

    with pytest.raises(DurabilityMissed, match="run the load again"):
        moved()
    with load(cluster.url, FSYNC) as store:
        for topic in topics:
            store.replace(topic, rows("x"))


async def test_the_new_place_loses_what_it_had_not_synced(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power fails while it has a batch in memory. The old place has not forgotten that, since its timers
    have to be on a disk; so it is carried again."""
    monkeypatch.setattr(server_module, "DURABLE_TTL", PATIENCE)
    topic, there = apart(cluster)
    async with Server(cluster.url, connections=3, timeout=60.0, write_ttl=60.0) as server:
        relay = Relay(server, topic, durability=FSYNC)
        await relay.layouts.ask(topic)
        await relay.put(*IDS)
        with needing(FSYNC):  # a connection that is there before the disk stands still
            await relay.timers.schedule(cluster.topic_at(there), [NewTimer("other", b"", LATER)])
        there.control.config_set("appendfsync", "no")
        shutil.copytree(there.directory / "appendonlydir", there.directory / "synced")
        layout = await relay.moves.begin(topic, 2)
        moving = asyncio.create_task(relay.moves.run(layout, nothing))
        await until(lambda: blocked(there) or moving.done(), "it waits for the disk")
        there.kill()
        shutil.rmtree(there.directory / "appendonlydir")
        (there.directory / "synced").rename(there.directory / "appendonlydir")
        there.start()
        await anyio.to_thread.run_sync(cluster.until_agreed)
        await asyncio.gather(moving, return_exceptions=True)
        with anyio.fail_after(PATIENCE):
            await settled(relay, layout)
        await relay.layouts.look()
        assert_at_home(relay, [each for each in cluster.nodes if each is not there] + [there], IDS)
