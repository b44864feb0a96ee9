"""A master that has no replica, and is set up to take no writes then: it gives out no timers either."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from relay.core.errors import StoreUnavailable
from relay.core.outcomes import ClaimRequest, Extension, Verb
from relay.core.timers import NewTimer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.keyspace import Keyspace
from tests.servers import KINDS, Kind, RunningServer, ServerPool, server_id
from tests.settlements import end_of

N1, N2 = b"relay-1-nonce-01", b"relay-2-nonce-02"
LEASE = 30_000_000
LIMIT = "min-replicas-to-write"
OLD: Kind = "redis-6"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "redis.md"


CLAIM = ClaimRequest(limit=1, lease=LEASE, nonce=N1, max_bytes=1 << 20)


@contextmanager
def alone(server: RunningServer) -> Iterator[None]:
    """The server takes no writes meanwhile, for it has no replica."""
    server.control.config_set(LIMIT, 1)
    try:
        yield
    finally:
        server.control.config_set(LIMIT, 0)


@pytest.mark.parametrize("kind", [each for each in KINDS if each != OLD], ids=server_id)
async def test_it_takes_no_writes_of_scripts(kind: Kind, server_pool: ServerPool, keyspace: Keyspace) -> None:
    """Old timers of a master that is back after a failover stay where they are; see 0102. It answers reads,
    and is asked again."""
    there, topic = server_pool.get(kind), keyspace.topic()
    async with Server(there.url, timeout=60.0) as server:
        store = RedisStore(server)
        await store.schedule(topic, [NewTimer("a", b"", delay=0), NewTimer("b", b"", delay=0)])
        (held,) = (await store.claim(topic, CLAIM)).timers
        before = everything(there, topic)
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: store.claim(topic, replace(CLAIM, nonce=N2)),
            lambda: store.schedule(topic, [NewTimer("c", b"", delay=0)]),
            lambda: store.cancel(topic, ["b"]),
            lambda: store.settle(topic, [end_of(held.timer_id, N1, Verb.ACK)]),
            lambda: store.extend(topic, [Extension(held.timer_id, N1)], lease=LEASE),
        ]
        with alone(there):
            for change in changes:
                with pytest.raises(StoreUnavailable, match="NOREPLICAS"):
                    await change()
            assert await store.get(topic, "b") is not None
        assert everything(there, topic) == before


async def test_redis_6_lets_scripts_write(server_pool: ServerPool, keyspace: Keyspace) -> None:
    """So there the setting does nothing for Relay, and the how-to says so."""
    old, topic = server_pool.get(OLD), keyspace.topic()
    async with Server(old.url, timeout=60.0) as server:
        store = RedisStore(server)
        await store.schedule(topic, [NewTimer("a", b"", delay=0)])
        with alone(old), old.client() as client:
            with pytest.raises(ResponseError, match="NOREPLICAS"):
                client.set(topic, "refused")
            assert (await store.claim(topic, CLAIM)).timers
    assert "Redis 6.2 refuses plain writes only" in PAGE.read_text(encoding="utf-8")


def everything(server: RunningServer, topic: str) -> dict[bytes, bytes]:
    """All keys that carry the topic's name, as bytes."""
    with server.client() as client:
        return {key: client.dump(key) for key in client.keys(f"*{topic}*")}
