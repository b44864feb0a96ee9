"""A topic gets another number of partitions in a Cluster of three nodes, whose slots move meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count

import anyio
import pytest

from relay.core.partitions import place_of
from relay.core.timers import Change
from relay.store.server.server import Server
from tests.store.moving import IDS, Relay, assert_at_home
from tests.worlds.cluster.cluster import Cluster


@pytest.fixture
async def fleet() -> AsyncIterator[tuple[Cluster, Relay]]:
    """Three nodes, and a topic of four partitions that has timers."""
    with Cluster() as cluster:
        async with Server(cluster.url, connections=3, timeout=60.0, write_ttl=60.0) as server:
            relay = Relay(server, "orders", 4)
            await relay.layouts.ask("orders")
            await relay.put(*IDS)
            yield cluster, relay


@pytest.mark.slow
@pytest.mark.parametrize("way", [Cluster.move, Cluster.migrate], ids=["key by key", "at once"])
async def test_slots_move_while_timers_move(
    fleet: tuple[Cluster, Relay], way: Callable[[Cluster, str, object], None]
) -> None:
    """From four to eight partitions and back. With each batch the slot of another partition goes to another
    node, and calls for timers everywhere have their answers."""
    cluster, relay = fleet
    rounds = count()
    for target in (8, 4):
        layout = await relay.moves.begin("orders", target)

        async def use(_: int) -> None:
            number = next(rounds)
            partition = relay.layout.partitions[number % len(relay.layout.partitions)]
            tag = place_of(partition).removesuffix("#0")
            there = [node for node in cluster.nodes if node is not cluster.owner_of(tag)]
            await anyio.to_thread.run_sync(way, cluster, tag, there[number % 2])
            assert sorted(await relay.listed()) == sorted(IDS)
            name = IDS[number]
            assert await relay.get(name)
            assert await relay.cancel(name) is Change.CANCELLED
            assert await relay.cancel(name) is Change.GONE
            await relay.put(name)

        await relay.moves.run(layout, use)
        assert (relay.layout.count, relay.layout.towards) == (target, 0)
        await anyio.to_thread.run_sync(cluster.until_agreed)
        assert_at_home(relay, cluster.nodes, IDS)
    assert (await relay.topics.stats("orders")).timers == len(IDS)
