"""The scripts as they are shipped, on the server's own clock; short leases, and waits for conditions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import pytest

from relay.core.outcomes import Verb, Verdict, nonces
from relay.core.timers import Claim, NewTimer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.worlds.scripts.asking import Scheduling

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

MILLISECOND = 1000
fresh = nonces()


@pytest.fixture
async def timers(redis_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Scheduling]:
    async with Server(redis_server.url, connections=2, timeout=60.0) as redis:
        yield Scheduling(RedisStore(redis), keyspace.topic())


async def first_claim(timers: Scheduling, nonce: bytes, *, lease: int, earliest: int) -> Claim:
    """Claim until something is taken; whatever is answered before `earliest` must be empty."""
    with anyio.fail_after(60):
        while True:
            found = await timers.claim(nonce, lease=lease)
            if found.timers:
                assert found.now >= earliest, "claimed too early"
                return found


async def test_the_servers_clock(timers: Scheduling) -> None:
    """Now is the machine's time, in microseconds."""
    before = time.time_ns() // 1000
    now = (await timers.claim(fresh())).now
    assert before <= now <= time.time_ns() // 1000


async def test_due_lapsed_and_acknowledged(timers: Scheduling) -> None:
    """Not before its delay is over; again only after the lease; gone after the ACK."""
    (scheduled,) = await timers.store.schedule(timers.topic, [NewTimer("a", b"x", delay=50 * MILLISECOND)])
    assert scheduled.due is not None
    n1, n2 = fresh(), fresh()
    lease = 50 * MILLISECOND
    first = await first_claim(timers, n1, lease=lease, earliest=scheduled.due)
    assert first.deadline == first.now + lease
    second = await first_claim(timers, n2, lease=lease, earliest=first.deadline)
    assert second.timers[0].due == scheduled.due
    assert await timers.settle("a", n1, Verb.ACK) is Verdict.STALE
    assert await timers.settle("a", n2, Verb.ACK) is Verdict.OK
    assert await timers.store.get(timers.topic, "a") is None


async def test_a_back_off(timers: Scheduling) -> None:
    """A NACK's delay is served out in real time."""
    await timers.schedule("a", 0)
    n1 = fresh()
    now = (await timers.claim(n1)).now
    assert await timers.settle("a", n1, Verb.NACK, retry_after=50 * MILLISECOND) is Verdict.OK
    again = await first_claim(timers, fresh(), lease=1, earliest=now + 50 * MILLISECOND)
    assert again.timers[0].attempt == 2


async def test_a_renewed_lease(timers: Scheduling) -> None:
    """Renewals keep others out, for longer than the first lease would have."""
    await timers.schedule("a", 0)
    n1 = fresh()
    lease = 100 * MILLISECOND
    deadline = (await timers.claim(n1, lease=lease)).deadline
    assert await timers.extend("a", n1, lease=60_000 * MILLISECOND) is Verdict.OK
    with anyio.fail_after(60):
        while (found := await timers.claim(fresh())).now <= deadline:
            assert list(found.timers) == []
    assert list(found.timers) == []
    assert await timers.settle("a", n1, Verb.RELEASE) is Verdict.OK
    assert (await timers.claim(fresh())).timers[0].attempt == 1
