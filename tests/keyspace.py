"""Fresh topic names, and the check that a test leaves no keys behind but those of its own topics."""

from __future__ import annotations

import secrets
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast

from relay.store.keys import KeyNames

if TYPE_CHECKING:
    from redis import Redis

    from tests.servers import RunningServer, ServerPool


class Keyspace:
    """Names topics and knows which keys may remain on the shared servers at a test's end.

    A key is accounted for if it names one of the topics given out here (`timers_timeline:orders-5f0c`,
    `timers_dead:orders-5f0c:records`) or fits a pattern given to `allow`. So is one of a topic's partition.
    """

    def __init__(self, pool: ServerPool) -> None:
        self._pool = pool
        self._topics: list[str] = []
        self._allowed: list[str] = []
        self._before = {server.port: keys_of(server) for server in pool.running}

    def topic(self, name: str = "topic") -> str:
        """A topic name that nobody has used before; keys that carry it may remain."""
        self._topics.append(f"{name}-{secrets.token_hex(4)}")
        return self._topics[-1]

    __call__ = topic

    def adopt(self, topic: str) -> str:
        """Register a topic whose name the test chose by itself."""
        self._topics.append(topic)
        return topic

    def allow(self, pattern: str) -> None:
        """Keys that fit this glob may remain."""
        self._allowed.append(pattern)

    def keys(self) -> list[str]:
        """Every key that was written on the shared servers since the test began."""
        fresh: set[str] = set()
        for server in self._pool.running:
            fresh |= keys_of(server) - self._before.get(server.port, set())
        return sorted(fresh)

    def leaks(self) -> list[str]:
        return [key for key in self.keys() if not self._accounted(key)]

    def flush(self) -> None:
        for server in self._pool.running:
            server.control.flushall()

    def _accounted(self, key: str) -> bool:
        # One set of names for all, and one stream of relays: whoever served a topic leaves them there.
        if key in (KeyNames().topics, KeyNames().alive):
            return True
        named = any(f":{topic}{end}" in f"{key}:" for topic in self._topics for end in ":#")
        return named or any(fnmatchcase(key, pattern) for pattern in self._allowed)


def left(client: Redis, topic: str) -> tuple[int, int, int]:
    """How many entries the timeline, the payloads and the leases of a topic have."""
    timeline, payloads, leases = KeyNames().of(topic)[:3]
    return client.zcard(timeline), client.hlen(payloads), client.hlen(leases)


def keys_of(server: RunningServer) -> set[str]:
    """All keys of all a server's databases that hold any, written `3/key` outside database 0."""
    found: set[str] = set()
    for name in cast("dict[str, object]", server.control.info("keyspace")):
        database = int(name[2:])
        if database == 0:
            keys = cast("list[bytes]", server.control.keys("*"))
        else:
            with server.client(db=database) as client:
                keys = cast("list[bytes]", client.keys("*"))
        prefix = f"{database}/" if database else ""
        found |= {prefix + key.decode("utf-8", "backslashreplace") for key in keys}
    return found
