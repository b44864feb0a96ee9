"""The nodes of a Cluster: which of them a call goes to, and what is done when it is sent elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast

import anyio
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.core.endpoints.redis_url import Address, RedisLocation
from relay.core.errors import GivenUp, OpenOutcome, StoreError, StoreUnavailable
from relay.store.keys import KeyNames
from relay.store.server.cluster.redirects import REFUSALS, Way
from relay.store.server.cluster.slot_map import slot_of
from relay.store.server.cluster.topology import Topology
from relay.store.server.errors import translated_errors
from relay.store.server.pool import Client, MasterPool
from relay.store.server.scripts import Argument

R = TypeVar("R")


@contextmanager
def told_of(place: str) -> Iterator[None]:
    """Turn redis-py's errors into Relay's within the block, and have them name the place. Raises
    `StoreError`."""
    try:
        with translated_errors():
            yield
    except StoreUnavailable as failure:
        failure.place = failure.place or place
        raise


class AskingPool:
    """Another pool's connections. Each one that is handed out has said ASKING, so that the node takes the
    next command though the slot is still coming to it."""

    def __init__(self, pool: MasterPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def get_connection(self, *_: Any, **__: Any) -> AbstractConnection:
        """As in redis-py."""
        connection = await self._pool.get_connection()
        try:
            await self._pool.clock(connection)  # or TIME would come between ASKING and the command
            await connection.send_command("ASKING", check_health=False)
            await connection.read_response()
        except BaseException:
            await self._pool.release(connection)
            raise
        return connection


class Node:
    """The connections to one node: for commands, for commands behind ASKING, and one for wake hints."""

    def __init__(self, client: Client, hints: Client) -> None:
        self.client = client
        self.hints = hints
        pool = AskingPool(cast("MasterPool", client.connection_pool))
        self.asking = Client(connection_pool=cast("ConnectionPool", pool))
        # While a slot is on its way, no node takes what changes something, ASKING or not (see 0081).
        self.asking.durable = client.durable

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or somebody listens."""
        return self.client.is_busy or self.hints.is_busy

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.close_all()
        await self.hints.aclose()


class Cluster:  # see 0081
    """The nodes that have been needed so far, each with its connections; and the `Places` of the Cluster.

    `ask_at` opens a client for a question to any node, `open_at` the connections to one with slots.
    """

    def __init__(
        self,
        where: RedisLocation,
        keys: KeyNames,
        ask_at: Callable[[Address], Redis],
        open_at: Callable[[Address], Node],
    ) -> None:
        self.topology = Topology(where.hosts, where.addresses, ask_at, self._tell_changed)
        self.changed: list[Callable[[], None]] = []
        """See `Places`."""
        self._keys = keys
        self._open_at = open_at
        self._nodes: dict[str, Node] = {}
        self._closing: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------ places

    def of(self, topic: str) -> str:
        """See `Places.of`; empty while the Cluster was not asked, and for a slot that no node has."""
        return self.topology.of(self._slot(topic))

    def lane(self, topic: str) -> str:
        """See `Places.lane`; a slot that is on its way is a part of its own."""
        slot = self._slot(topic)
        place = self.topology.of(slot)
        return f"{place} {slot}" if self.topology.is_held_up(slot) else place

    def _slot(self, topic: str) -> int:
        return slot_of(self._keys.channel(topic) if topic else self._keys.topics)

    async def ping(self, place: str) -> None:
        """See `Places.ping`. One that fails has the Cluster looked at: the node may have been replaced, and
        may never answer."""
        with translated_errors():
            await self.topology.known()
            if place and place not in self.topology.places:
                return
            place = place or self.topology.anywhere
            try:
                await self.node(place).client.ping()
            except (RedisError, OSError):
                self.topology.doubt(place)
                raise

    def _tell_changed(self) -> None:
        self._close_gone()
        for changed in self.changed:
            changed()

    # ------------------------------------------------------------------- nodes

    def node(self, place: str) -> Node:
        """The node at a place, which may be one that no slot is known to be at."""
        node = self._nodes.get(place)
        if node is None:
            node = self._nodes[place] = self._open_at(self.topology.reachable(place))
        return node

    def _close_gone(self) -> None:
        """Close what is left of nodes that have no slots any more, unless a call is under way there."""
        for place in self._nodes.keys() - set(self.topology.places):
            if not self._nodes[place].is_busy:
                task = asyncio.create_task(self._nodes.pop(place).aclose())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Close all connections."""
        await self.topology.aclose()
        for node in self._nodes.values():
            await node.aclose()
        await asyncio.gather(*self._closing)

    async def each_node(self, ask: Callable[[Client], Awaitable[R]]) -> dict[str, R]:
        """What each node with slots answers that can be reached, by its place. Raises what went wrong if none
        can."""
        await self.topology.known()
        places = list(self.topology.places)
        told: list[R | StoreError] = [StoreUnavailable()] * len(places)

        async def one(number: int, place: str) -> None:
            try:
                with translated_errors():
                    told[number] = await ask(self.node(place).client)
            except StoreError as failure:
                self.topology.doubt(place)
                told[number] = failure

        async with anyio.create_task_group() as group:
            for number, place in enumerate(places):
                group.start_soon(one, number, place)
        answers = {
            place: each for place, each in zip(places, told, strict=True) if not isinstance(each, StoreError)
        }
        if not answers:
            raise next(each for each in told if isinstance(each, StoreError))
        return answers

    # ------------------------------------------------------------------- calls

    async def lead(
        self, keys: Sequence[Argument], attempt: Callable[[Client], Awaitable[R]], deadline: float
    ) -> R:
        """Let `attempt` talk to the node that has the keys, which share a slot; without keys, to any.

        What a node refuses because it has not, or not yet, what is asked for, or because it has become a
        replica, did nothing: it is tried again where the node says, or after a while, until `deadline`
        (monotonic seconds). Raises `GivenUp` then if the node is well and the slot on its way, otherwise
        `StoreUnavailable`, as for a node that can't be reached; it names the node. All else is raised as it
        comes: a lost reply never leads to a second try.
        """
        await self.topology.known()
        way = Way(self.topology, keys)
        while True:
            place = way.place
            node = self.node(place)
            try:
                return await attempt(node.asking if way.asking else node.client)
            except REFUSALS as refusal:
                if way.sends_on(refusal):
                    continue
            except (RedisConnectionError, RedisTimeoutError, OSError, OpenOutcome):
                self.topology.doubt(place)
                with told_of(place):
                    raise
            except GivenUp:
                if way.refusal is None:
                    raise
            with told_of(place):
                wait = way.wait(deadline)
            await asyncio.sleep(wait)
            way.look_again()

    async def spread(
        self,
        keys: Sequence[Sequence[Argument]],
        attempt: Callable[[Client, Sequence[int]], Awaitable[list[Any]]],
        deadline: float,
    ) -> list[Any]:
        """The same for many reading calls at once, of which each is about its own keys: `attempt` makes those
        of these numbers at one node, and refusals are exceptions among its replies.

        A node that can't be reached is a `StoreError` in the place of its calls. Raises it if that is so of
        all.
        """
        await self.topology.known()
        groups: dict[str, list[int]] = {}
        for number, each in enumerate(keys):
            groups.setdefault(self.topology.where(slot_of(each[0]) if each else None), []).append(number)
        replies: list[Any] = [None] * len(keys)

        async def alone(number: int, client: Client) -> Any:
            (reply,) = await attempt(client, [number])
            if isinstance(reply, REFUSALS):
                raise reply
            return reply

        async def together(place: str, numbers: list[int]) -> None:
            told = await self._told(place, attempt, numbers)
            for number, reply in zip(numbers, told, strict=True):
                replies[number] = reply
                if isinstance(reply, REFUSALS):
                    replies[number] = await self._led(keys[number], partial(alone, number), deadline)

        async with anyio.create_task_group() as group:
            for place, numbers in groups.items():
                group.start_soon(together, place, numbers)
        if all(isinstance(reply, StoreError) for reply in replies):
            raise replies[0]
        return replies

    async def _led(
        self, keys: Sequence[Argument], attempt: Callable[[Client], Awaitable[Any]], deadline: float
    ) -> Any:
        """As `lead`; a `StoreError` is returned."""
        try:
            with translated_errors():
                return await self.lead(keys, attempt, deadline)
        except StoreError as failure:
            return failure

    async def _told(
        self, place: str, attempt: Callable[[Client, Sequence[int]], Awaitable[list[Any]]], numbers: list[int]
    ) -> list[Any]:
        """The replies of one node; one that can't be reached is its error in the place of each."""
        try:
            with told_of(place):
                return await attempt(self.node(place).client, numbers)
        except StoreError as failure:
            self.topology.doubt(place)
            refusal = failure.__cause__
            return [refusal if isinstance(refusal, REFUSALS) else failure] * len(numbers)
