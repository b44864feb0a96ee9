"""Connections to Redis, and whether the server there is fit to hold Relay's promises."""

from __future__ import annotations

import re
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from relay.core.errors import UnfitServer
from relay.store.redis import translated_errors

OLDEST = (6, 2)

Connection = Redis
"""What `connect` answers; only the store speaks through it."""


def connect(url: str, *, connections: int, timeout: float) -> Redis:
    """A client with at most `connections` connections; further calls wait for a free one.

    It never retries by itself: a claim that is sent again needs a fresh nonce, and what may have
    happened already is for the caller to judge. Names that are not UTF-8 come and go unharmed.
    """
    options: dict[str, Any] = {
        "max_connections": connections,
        "timeout": timeout,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "socket_keepalive": True,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "encoding_errors": "surrogateescape",
    }
    if url.startswith("unix:"):
        del options["socket_connect_timeout"], options["socket_keepalive"]
    return Redis.from_pool(
        BlockingConnectionPool.from_url(url, **options)
    )  # so that its aclose closes the pool


async def check_server(redis: Redis, *, allow_eviction: bool) -> str:
    """Raise `UnfitServer` if the server is too old or may evict timers; answers its name and version."""
    async with translated_errors():
        server = await redis.info("server")
        memory = await redis.info("memory")
    version = str(server.get("redis_version", "0"))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise UnfitServer(f"Redis {version} is too old: Relay needs 6.2 or newer")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and not allow_eviction:
        raise UnfitServer(
            f"Redis has maxmemory-policy {policy}, which may drop timers: set it to noeviction, "
            "or allow it with redis.allow_eviction"
        )
    if "valkey_version" in server:
        return f"Valkey {server['valkey_version']}"
    return f"Redis {version}"
