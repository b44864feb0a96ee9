"""Through a failover with the store alone: fences hold, and connections find their way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest

from relay.core.errors import StoreUnavailable
from relay.core.outcomes import ClaimRequest, Verb, Verdict
from relay.core.timers import NewTimer
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.sentinels import MASTER, Group, Sentinel, until_answered
from tests.servers import free_port, start_server
from tests.settlements import end_of
from tests.store.fake import Line
from tests.worlds.waiting import until

N1, N2 = b"relay-1-nonce-01", b"relay-2-nonce-02"
SECOND = 1_000_000
LATER = 4_000_000_000_000_000
SLOW_READ = ("XREAD", "BLOCK", "500", "STREAMS", "nothing", "$")  # which a replica serves


@pytest.fixture
def group() -> Iterator[Group]:
    with Group() as group:
        yield group


@pytest.fixture
async def store(group: Group) -> AsyncIterator[RedisStore]:
    redis = Server(group.url, connections=2, timeout=60.0)
    yield RedisStore(redis)
    await redis.aclose()


async def again(store: RedisStore) -> None:
    """Wait for a master that answers."""
    with anyio.fail_after(150):
        while True:
            try:
                return await store.ping()
            except StoreUnavailable:
                await anyio.sleep(0.1)


async def in_thread(call: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(call, *args)


@pytest.mark.slow
async def test_a_claim_that_the_failover_lost(group: Group, store: RedisStore) -> None:
    """The new master never heard of the lease: its token is worth nothing there, and the next one is."""
    master, *replicas = group.servers
    await store.schedule("topic", [NewTimer("a", b"x", delay=0), NewTimer("b", b"x", delay=0)])
    with master.client() as client:
        assert await in_thread(group.covered, client)
    for replica in replicas:
        replica.freeze()
    with master.client() as client:  # or what is sent now waits for them in their sockets
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")
    claim = await store.claim("topic", ClaimRequest(limit=2, lease=60 * SECOND, nonce=N1, max_bytes=1 << 20))
    assert len(claim.timers) == 2
    master.kill()
    for replica in replicas:
        replica.thaw()
    await in_thread(group.new_master, master)
    await again(store)
    assert await store.settle("topic", [end_of("a", N1, Verb.ACK)]) == [Verdict.STALE]
    second = await store.claim("topic", ClaimRequest(limit=2, lease=60 * SECOND, nonce=N2, max_bytes=1 << 20))
    assert [(timer.timer_id, timer.attempt) for timer in second.timers] == [("a", 1), ("b", 1)]
    stale = [end_of("a", N1, Verb.ACK), end_of("b", N1, Verb.NACK, retry_after=0)]
    assert await store.settle("topic", stale) == [Verdict.STALE] * 2
    mine = [end_of("a", N2, Verb.ACK), end_of("b", N2, Verb.ACK)]
    assert await store.settle("topic", mine) == [Verdict.OK] * 2


@pytest.mark.slow
async def test_a_lease_and_a_newer_intent_that_were_covered(group: Group, store: RedisStore) -> None:
    """On the new master a lease holds as on the old one, and a reschedule still voids one."""
    timers = [NewTimer(name, b"x", delay=0) for name in ("held", "moved")]
    await store.schedule("topic", timers)
    await store.claim("topic", ClaimRequest(limit=2, lease=60 * SECOND, nonce=N1, max_bytes=1 << 20))
    await store.schedule("topic", [NewTimer("moved", b"new", due=LATER)])
    with group.servers[0].client() as client:
        assert await in_thread(group.covered, client)
    await in_thread(group.fail_over)
    await in_thread(group.new_master, group.servers[0])
    redis = Server(group.url, connections=1, timeout=60.0)  # the old master may still answer the other one
    moved = RedisStore(redis)
    await again(moved)
    assert not (await moved.claim("topic", ClaimRequest(limit=2, lease=SECOND, nonce=N2, max_bytes=1))).timers
    acks = [end_of("held", N1, Verb.ACK), end_of("moved", N1, Verb.ACK)]
    assert await moved.settle("topic", acks) == [Verdict.OK, Verdict.STALE]
    timer = await moved.get("topic", "moved")
    assert timer is not None
    assert (timer.payload, timer.due) == (b"new", LATER)
    await redis.aclose()


@pytest.mark.slow
async def test_a_live_master_that_is_replaced(group: Group, store: RedisStore) -> None:
    """Whoever follows the Sentinels leaves it at once, though it still takes writes, which would be lost."""
    moved = anyio.Event()
    await store.schedule("topic", [NewTimer("a", b"x", due=LATER)])
    async with anyio.create_task_group() as tasks:
        store._server.places.changed.append(moved.set)
        tasks.start_soon(store._server.follow)
        await in_thread(group.fail_over)
        with anyio.fail_after(60):
            await moved.wait()
        tasks.cancel_scope.cancel()
    await again(store)
    await store.schedule("topic", [NewTimer("b", b"x", due=LATER)])
    new = await in_thread(group.new_master, group.servers[0])
    with new.client() as client:
        assert client.zrange("timers_timeline:topic", 0, -1) == [b"a", b"b"]


async def test_sentinels_that_do_not_answer(group: Group) -> None:
    """The next one is asked; if none knows the master, the error tells what each of them said."""
    sentinel = group.sentinels[0].port
    nobody = free_port()
    place = f"redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{sentinel}"
    redis = Server(f"{place}/mymaster", connections=1, timeout=60.0)
    await RedisStore(redis).ping()
    await redis.aclose()
    redis = Server(f"{place}/other", connections=1, timeout=60.0)
    with pytest.raises(StoreUnavailable, match=r"'other'.*Error 111.*knows no such master"):
        await RedisStore(redis).ping()
    await redis.aclose()


async def test_credentials_for_sentinels_and_master() -> None:
    """Each has its own: those before the @ are the master's."""
    with start_server("valkey", config={"requirepass": "m@ster/1", "masterauth": "m@ster/1"}) as master:
        sentinel = Sentinel(
            "valkey",
            master.port,
            {"requirepass": "guard:2", f"sentinel auth-pass {MASTER}": "m@ster/1"},
        )
        try:
            with sentinel.client(password="guard:2") as client:
                await in_thread(until_answered, client.ping, "it answers", 40.0)
            place = f"127.0.0.1:{sentinel.port}/{MASTER}"
            redis = Server(
                f"redis+sentinel://:m%40ster%2F1@{place}?sentinel_password=guard%3A2",
                connections=1,
                timeout=60.0,
            )
            await RedisStore(redis).ping()
            await redis.aclose()
            for url, reason in (
                (f"redis+sentinel://:m%40ster%2F1@{place}", "uthentication"),
                (f"redis+sentinel://{place}?sentinel_password=guard%3A2", "uthentication"),
                (f"redis+sentinel://:wrong@{place}?sentinel_password=guard%3A2", "invalid username-password"),
            ):
                redis = Server(url, connections=1, timeout=60.0)
                with pytest.raises(StoreUnavailable, match=reason) as caught:
                    await RedisStore(redis).ping()
                assert "guard" not in str(caught.value)
                await redis.aclose()
        finally:
            sentinel.stop()


async def test_the_least_that_a_sentinel_has_to_allow(group: Group) -> None:
    """The one question is all that is asked of it."""
    sentinel = group.sentinels[0]
    with sentinel.client() as client:
        rules = ("on", ">guard", "+sentinel|get-master-addr-by-name")
        client.execute_command("ACL", "SETUSER", "relay", *rules)
    place = f"redis+sentinel://127.0.0.1:{sentinel.port}/{MASTER}"
    redis = Server(f"{place}?sentinel_username=relay&sentinel_password=guard", connections=1, timeout=60.0)
    await RedisStore(redis).ping()
    await redis.aclose()


async def test_a_demotion_that_closes_no_connection() -> None:
    """A proxy or a DNS name moves on, and the old master keeps its connections: one refused write is
    all that is lost, for calls under way too, and hints come over."""
    with start_server("valkey") as old, start_server("valkey") as new:
        line = Line(old.port)
        async with line.open() as url:
            server = Server(url, connections=2, timeout=60.0)
            hints, store = RedisHints(server), RedisStore(server)
            heard: list[int] = []
            async with anyio.create_task_group() as group:
                group.start_soon(hints.run)
                await hints.watch("topic", heard.append)
                async with anyio.create_task_group() as both:  # both connections are made
                    both.start_soon(store.ping)
                    both.start_soon(store.ping)
                await until(lambda: bool(heard))
                heard.clear()
                with old.client() as operator:
                    operator.replicaof("127.0.0.1", new.port)
                line.port = new.port
                with anyio.fail_after(60):
                    await _one_refusal(store)
                await until(lambda: bool(heard))  # it is woken as it comes over
                with new.client() as client:
                    names = [each["name"] for each in client.client_list()]
                    assert names.count("relay") <= 3
                await store.schedule("topic", [NewTimer("c", b"", due=LATER - 9)])
                await until(lambda: LATER - 9 in heard)
                group.cancel_scope.cancel()
            await server.aclose()


async def _one_refusal(store: RedisStore) -> None:
    """One write is refused while a slow read is under way on the other connection; then all is well."""
    async with anyio.create_task_group() as both:
        both.start_soon(store._server.ask, *SLOW_READ)
        with pytest.raises(StoreUnavailable):
            await store.schedule("topic", [NewTimer("a", b"", due=LATER)])
    async with anyio.create_task_group() as both:
        for number in range(4):
            both.start_soon(store.schedule, "topic", [NewTimer(f"b{number}", b"", due=LATER)])
