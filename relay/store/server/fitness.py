"""Whether a server is fit to hold Relay's promises."""

from __future__ import annotations

import logging
import re

from relay.core.errors import UnfitServer
from relay.store.server.server import Server

log = logging.getLogger(__name__)

OLDEST = (6, 2)


def spares_timers(policy: str) -> bool:
    """Whether a `maxmemory-policy` evicts, but only keys with a time to live."""
    return policy.startswith("volatile-")


async def check_server(server: Server, *, allow_eviction: bool, hash_tags: bool = False) -> str:
    """Check the server; return its name and version, and log if it may evict keys that hold no timers. Raises
    `UnfitServer` if it is too old, may evict timers, or is a cluster's node and keys have no hash tags."""
    info = await server.info()
    version = str(info.get("redis_version", "0"))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST:
        raise UnfitServer(f"Redis {version} is too old: Relay needs 6.2 or newer")
    policy = info.get("maxmemory_policy", "noeviction")
    if spares_timers(policy):
        log.warning(
            "Redis may evict keys with a time to live; no key that holds timers has one, and "
            "docs/how-to/redis.md says what the loss of the others costs; noeviction is better",
            extra={"maxmemory_policy": policy},
        )
    elif policy != "noeviction" and not allow_eviction:
        raise UnfitServer(
            f"Redis has maxmemory-policy {policy}, which may drop timers: set it to noeviction, "
            "or allow it with redis.allow_eviction"
        )
    if info.get("cluster_enabled") and not hash_tags:
        raise UnfitServer(
            "Redis runs in cluster mode, where all keys of a topic must share a slot: "
            "set redis.hash_tags to true"
        )
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {version}"
