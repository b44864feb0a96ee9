"""Whether a server is fit to hold Relay's promises."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis.exceptions import BusyLoadingError

from relay.core.durability import Durability
from relay.core.errors import StoreRefused, StoreUnavailable, UnfitServer
from relay.store.server.probing.commands import BASE, Feature, Lack, lack_of
from relay.store.server.server import Server

log = logging.getLogger(__name__)

NEEDS_CLUSTER = (
    "a node of a Cluster, whose nodes share the topics: name it in redis.url with redis+cluster:// "
    "in the place of redis://"
)


def spares_timers(policy: str) -> bool:
    """Whether a `maxmemory-policy` evicts, but only keys with a time to live."""
    return policy.startswith("volatile-")


async def check_server(server: Server, *, allow_eviction: bool) -> str:
    """Check the server, in a Cluster each node that answers; return its name and version, and log if it may
    evict keys that hold no timers, or lacks a command that not every timer needs. Raises `UnfitServer` if it
    lacks one that does, may evict timers, or is a Cluster, or none, against what the URL says."""
    try:
        told = list((await server.info()).values())
    except StoreRefused as refusal:
        if lack := lack_of(str(refusal)):
            raise UnfitServer(str(lack)) from refusal
        raise
    names = dict.fromkeys([_checked(info, allow_eviction=allow_eviction) for info in told])
    if await is_one_of_several(server, told):
        raise UnfitServer(f"the server is {NEEDS_CLUSTER}")
    try:
        lacks = await lacking(server, BASE)
    except StoreUnavailable as failure:
        if not isinstance(failure.__cause__, BusyLoadingError):
            raise
        lacks = []  # it tells what it is, and will run scripts once it has read its data
        log.warning("Redis is loading its data, and was not asked which commands it has")
    for lack in lacks:
        if lack.is_vital:
            raise UnfitServer(str(lack))
        log.warning("Redis lacks a command", extra={"command": lack.command, "problem": str(lack)})
    return ", ".join(names)


async def lacking(server: Server, features: Iterable[Feature]) -> list[Lack]:
    """Which of the commands for these features the server does not give, in a Cluster any node that answers;
    one script that leaves nothing behind. Raises `StoreUnavailable`, and other `StoreError`s where something
    else is wrong."""
    try:
        return list(dict.fromkeys(await server.lacking(features, f"doctor:{secrets.token_hex(8)}")))
    except StoreRefused as refusal:
        if lack := lack_of(str(refusal), "EVAL"):
            return [lack]
        raise


async def check_durability(server: Server, wanted: Mapping[str, Durability]) -> None:
    """Check that the server, in a Cluster each node that answers, can give these durabilities; each comes
    with the setting that asks for it. Raises `UnfitServer`, which names the setting and says what to set."""
    for setting, level in wanted.items():
        for place, lack in (await server.lacks(level)).items():
            if lack:
                where = f" (at {place})" if place else ""
                raise UnfitServer(f"{setting}{lack.removeprefix('durability')}{where}")


async def is_one_of_several(server: Server, told: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it is a node of a Cluster, and the URL takes it for a server that has everything; `told` is its
    INFO. A node that has all slots does have everything, by names with hash tags."""
    if server.is_cluster or not any(info.get("cluster_enabled") for info in told):
        return False
    if not server.keys.hash_tags:
        return True
    try:
        about = await server.ask("CLUSTER INFO")
    except StoreRefused:  # a right that only this question needs
        return True
    return int(about["cluster_size"]) != 1


def _checked(info: Mapping[str, Any], *, allow_eviction: bool) -> str:
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
    return name_of(info)


def name_of(info: Mapping[str, Any]) -> str:
    """What people call the server, by its INFO."""
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of an unknown version')}"
