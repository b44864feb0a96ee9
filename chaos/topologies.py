"""The servers of a world: one alone, a group under Sentinels, or a Cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.sentinels import DOWN_AFTER, Group, Sentinel
from tests.servers import Kind, RunningServer, start_server
from tests.worlds.cluster.cluster import Cluster

Topology = Literal["single", "sentinel", "cluster"]

PERSISTENT = {"appendonly": "yes", "auto-aof-rewrite-percentage": "0"}
"""Every server keeps a file; how it is synced is the row's `appendfsync`."""


class Servers(Protocol):
    """What the servers of each topology have in common."""

    topology: Topology

    @property
    def url(self) -> str:
        """How relays reach them."""

    @property
    def all(self) -> list[RunningServer]:
        """Every server, whether it runs or not, and whatever its part is now. Sentinels are none."""

    @property
    def masters(self) -> list[RunningServer]:
        """Those that say of themselves that they are masters; the one alone."""

    def whole(self) -> bool:
        """Whether all run, every replica has what its master has, and all agree who is what."""

    def close(self) -> None:
        """End them."""


class Single:
    """One server without a replica."""

    topology: Topology = "single"

    def __init__(self, config: Mapping[str, str], kind: Kind = "valkey") -> None:
        self.server = start_server(kind, config={**PERSISTENT, **config})

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def all(self) -> list[RunningServer]:
        return [self.server]

    @property
    def masters(self) -> list[RunningServer]:
        return [self.server]

    def whole(self) -> bool:
        return replication(self.server) is not None

    def close(self) -> None:
        self.server.stop()


class Replicated:
    """A master, two replicas and three Sentinels."""

    topology: Topology = "sentinel"

    def __init__(self, config: Mapping[str, str], kind: Kind = "valkey") -> None:
        self.group = Group(kind, {**PERSISTENT, **config}, down_after=DOWN_AFTER)

    @property
    def url(self) -> str:
        return self.group.url

    @property
    def all(self) -> list[RunningServer]:
        return self.group.servers

    @property
    def sentinels(self) -> list[Sentinel]:
        return self.group.sentinels

    @property
    def masters(self) -> list[RunningServer]:
        return masters_of(self.all)

    def whole(self) -> bool:
        with suppress(redis.RedisError, OSError):
            master = self.group.master()
            return self.masters == [master] and in_step(master, 2)
        return False

    def close(self) -> None:
        self.group.__exit__()


class Fleet:
    """A Cluster of three masters with a replica each."""

    topology: Topology = "cluster"

    def __init__(self, config: Mapping[str, str], kind: Kind = "valkey") -> None:
        self.cluster = Cluster(kind, replicas=1, config={**PERSISTENT, **config})

    @property
    def url(self) -> str:
        return self.cluster.url

    @property
    def all(self) -> list[RunningServer]:
        return [*self.cluster.nodes, *(each for its in self.cluster.replicas for each in its)]

    @property
    def masters(self) -> list[RunningServer]:
        return masters_of(self.all)

    def whole(self) -> bool:
        with suppress(redis.RedisError, OSError):
            masters = self.masters
            if len(masters) == 3 and len(self.cluster.running) == len(self.all):
                return all(in_step(each, 1) for each in masters) and self.cluster.agree()
        return False

    def close(self) -> None:
        self.cluster.close()


MAKE: Mapping[Topology, Callable[[Mapping[str, str]], Servers]] = {
    "single": Single,
    "sentinel": Replicated,
    "cluster": Fleet,
}


def replication(server: RunningServer) -> dict[str, Any] | None:
    """What a server says of its part; None if it does not answer within a second."""
    if not server.running:
        return None
    once = Retry(NoBackoff(), 0)  # redis-py asks a server that stands still four times, for 10 s in all
    with suppress(redis.RedisError, OSError), server.client(socket_timeout=1.0, retry=once) as client:
        return cast("dict[str, Any]", client.info("replication"))
    return None


def masters_of(servers: list[RunningServer]) -> list[RunningServer]:
    """Those that answer that they are masters."""
    return [each for each in servers if (replication(each) or {}).get("role") == "master"]


def in_step(master: RunningServer, replicas: int) -> bool:
    """Whether the master has this number of replicas, and each has all that it had when it was asked."""
    about = replication(master) or {}
    found = [about[f"slave{n}"] for n in range(about.get("connected_slaves", 0))]
    return len(found) == replicas and all(
        each["state"] == "online" and about["master_repl_offset"] - each["offset"] < 100_000 for each in found
    )
