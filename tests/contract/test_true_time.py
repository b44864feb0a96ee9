"""The scripts as they are shipped, on the server's own clock; short leases, and waits for conditions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import pytest

from relay.core.outcomes import ClaimRequest, Extension, Settlement, Verb, Verdict, nonces
from relay.core.timers import Claim, NewTimer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

MILLISECOND = 1000
fresh = nonces()


@pytest.fixture
async def store(redis_server: RunningServer) -> AsyncIterator[RedisStore]:
    redis = Server(redis_server.url, connections=2, timeout=60.0)
    yield RedisStore(redis)
    await redis.aclose()


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    return keyspace.topic()


async def claim(store: RedisStore, topic: str, nonce: bytes, *, lease: int = 30_000 * MILLISECOND) -> Claim:
    return await store.claim(topic, ClaimRequest(limit=10, lease=lease, nonce=nonce, max_bytes=1 << 20))


async def first_claim(store: RedisStore, topic: str, nonce: bytes, *, lease: int, earliest: int) -> Claim:
    """Claim until something is taken; whatever is answered before `earliest` must be empty."""
    with anyio.fail_after(60):
        while True:
            found = await claim(store, topic, nonce, lease=lease)
            if found.timers:
                assert found.now >= earliest, "claimed too early"
                return found


async def test_the_servers_clock(store: RedisStore, topic: str) -> None:
    """Now is the machine's time, in microseconds."""
    before = time.time_ns() // 1000
    now = (await claim(store, topic, fresh())).now
    assert before <= now <= time.time_ns() // 1000


async def test_due_lapsed_and_acknowledged(store: RedisStore, topic: str) -> None:
    """Not before its delay is over; again only after the lease; gone after the ACK."""
    (scheduled,) = await store.schedule(topic, [NewTimer("a", b"x", delay=50 * MILLISECOND)])
    assert scheduled.due is not None
    n1, n2 = fresh(), fresh()
    lease = 50 * MILLISECOND
    first = await first_claim(store, topic, n1, lease=lease, earliest=scheduled.due)
    assert first.deadline == first.now + lease
    second = await first_claim(store, topic, n2, lease=lease, earliest=first.deadline)
    assert second.timers[0].due == scheduled.due
    assert await store.settle(topic, [Settlement("a", n1, Verb.ACK)]) == [Verdict.STALE]
    assert await store.settle(topic, [Settlement("a", n2, Verb.ACK)]) == [Verdict.OK]
    assert await store.get(topic, "a") is None


async def test_a_back_off(store: RedisStore, topic: str) -> None:
    """A NACK's delay is served out in real time."""
    await store.schedule(topic, [NewTimer("a", b"x", delay=0)])
    n1 = fresh()
    now = (await claim(store, topic, n1)).now
    nack = Settlement("a", n1, Verb.NACK, retry_after=50 * MILLISECOND)
    assert await store.settle(topic, [nack]) == [Verdict.OK]
    again = await first_claim(store, topic, fresh(), lease=1, earliest=now + 50 * MILLISECOND)
    assert again.timers[0].attempt == 2


async def test_a_renewed_lease(store: RedisStore, topic: str) -> None:
    """Renewals keep others out, for longer than the first lease would have."""
    await store.schedule(topic, [NewTimer("a", b"x", delay=0)])
    n1 = fresh()
    lease = 100 * MILLISECOND
    deadline = (await claim(store, topic, n1, lease=lease)).deadline
    assert await store.extend(topic, [Extension("a", n1)], lease=60_000 * MILLISECOND) == [Verdict.OK]
    with anyio.fail_after(60):
        while (found := await claim(store, topic, fresh())).now <= deadline:
            assert list(found.timers) == []
    assert list(found.timers) == []
    assert await store.settle(topic, [Settlement("a", n1, Verb.RELEASE)]) == [Verdict.OK]
    assert (await claim(store, topic, fresh())).timers[0].attempt == 1
