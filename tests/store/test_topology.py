"""How Relay learns where slots are: the node that it asks, the answer that counts, the callers that wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import anyio
import anyio.lowlevel
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from relay.core.endpoints.redis_url import Address
from relay.store.server.cluster.slot_map import SLOTS
from relay.store.server.cluster.topology import Topology
from tests.worlds.waiting import until

Owners = Sequence[tuple[int, int, int]]
"""First slot, last slot, and the port of the master that has them."""


class Node:
    """One that tells what it knows; `gate` holds its answers back, and without `owners` it is away."""

    def __init__(self, owners: Owners | None) -> None:
        self.owners = owners
        self.is_single = False
        self.asked = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def execute_command(self, *command: str) -> list[Any]:
        if command == ("SPUBLISH",):
            raise ResponseError("wrong number of arguments for 'spublish' command")
        self.asked += 1
        await self.gate.wait()
        if self.is_single:
            raise ResponseError("This instance has cluster support disabled")
        if self.owners is None:
            raise RedisConnectionError("gone")
        return [[first, last, [b"n", port, b"id", []]] for first, last, port in self.owners]


def nothing() -> None:
    """What nobody wants to hear."""


def topology(nodes: dict[int, Node]) -> Topology:
    """One whose seeds are all of these nodes, in this order."""

    def ask_at(address: Address) -> Redis:
        return cast("Redis", nodes[address[1]])

    return Topology([("n", port) for port in nodes], {}, ask_at, nothing)


async def looks_again(found: Topology, trouble: str, *nodes: Node) -> None:
    """Doubt a place, and wait until one of these nodes was asked."""
    asked = sum(node.asked for node in nodes)
    found.doubt(trouble)
    await until(lambda: sum(node.asked for node in nodes) > asked)


async def test_a_node_that_knows_no_slots_is_not_believed() -> None:
    """One that was reset, or has met nobody yet, may be a seed, or the one that answered last."""
    whole = [(0, SLOTS - 1, 2)]
    nodes = {1: Node([]), 2: Node(whole)}
    found = topology(nodes)
    await found.known()
    assert found.of(7) == "n:2"
    nodes[1].owners = [(0, SLOTS - 1, 1)]
    nodes[2].owners = []
    found.doubt()
    await until(lambda: found.of(7) == "n:1")


async def test_a_cluster_without_slots_is_said() -> None:
    found = topology({1: Node([])})
    with pytest.raises(RedisConnectionError, match=r"n:1: it knows no node that has slots"):
        await found.known()


async def test_a_look_that_comes_to_nothing_keeps_nobody() -> None:
    """The race: while all nodes are away calls go on to come, each of which wants the Cluster to be looked
    at. Each learns of the first look that ends."""
    node = Node(None)
    node.gate = anyio.Event()
    found = topology({1: node})
    refused: list[str] = []

    async def call() -> None:
        with pytest.raises(RedisConnectionError, match="no node tells"):
            await found.known()
        refused.append("")

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await until(lambda: node.asked == 1)
        group.start_soon(call)  # wants another look
        await anyio.lowlevel.checkpoint()
        gate, node.gate = node.gate, anyio.Event()
        gate.set()
        await until(lambda: node.asked == 2)  # which is under way
        assert len(refused) == 2
        node.gate.set()


async def test_one_that_is_behind_is_not_asked_for_ever() -> None:
    """It was cut off from the others, and goes on to say what was: they tell what is."""
    before = [(0, 99, 1), (100, 199, 2), (200, SLOTS - 1, 3)]
    nodes = {2: Node(before), 3: Node(before), 1: Node(None)}
    found = topology(nodes)
    await found.known()
    assert found.of(7) == "n:1"
    nodes[3].owners = [(0, 99, 4), *before[1:]]
    for _ in range(3):
        await looks_again(found, "n:1", nodes[2], nodes[3])
    found.doubt("n:1")
    await until(lambda: found.of(7) == "n:4")


async def test_a_single_server_at_the_address_of_a_node() -> None:
    """It says nothing of the Cluster, and keeps no other node from saying it."""
    nodes = {1: Node([(0, 99, 1), (100, SLOTS - 1, 2)]), 2: Node([(0, SLOTS - 1, 2)])}
    found = topology(nodes)
    await found.known()
    nodes[1].is_single = True
    for _ in range(2):
        await looks_again(found, "n:2", nodes[1], nodes[2])
    await until(lambda: found.of(7) == "n:2")


async def test_the_end_keeps_nobody() -> None:
    """Closing wakes a caller who waits for a look, and a later caller does not wait."""
    node = Node(None)
    node.gate = anyio.Event()
    found = topology({1: node})
    refused: list[str] = []

    async def call() -> None:
        with pytest.raises(RedisConnectionError):
            await found.known()
        refused.append("")

    async with anyio.create_task_group() as group:
        with anyio.fail_after(60):
            group.start_soon(call)
            await until(lambda: node.asked == 1)
            group.start_soon(call)
            await anyio.lowlevel.checkpoint()
            node.gate.set()
            await until(lambda: len(refused) == 2)  # the next look waits for its time
            group.start_soon(call)
            await anyio.lowlevel.checkpoint()
            await found.aclose()
            await until(lambda: len(refused) == 3)
            await call()
