"""Connections, and which servers are refused."""

from __future__ import annotations

import anyio
import pytest

from relay.core.errors import OpenOutcome, UnfitServer
from relay.core.outcomes import ClaimRequest, Verb, Verdict
from relay.core.timers import NewTimer
from relay.store.server.fitness import check_server
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.settlements import end_of
from tests.store.fake import bulk, serving
from tests.store.test_late_calls import TTL, Claims

N1, N2 = b"relay-1-nonce-01", b"relay-1-nonce-02"
SECOND = 1_000_000


async def checked(url: str, *, allow_eviction: bool = False) -> str:
    redis = Server(url, connections=1, timeout=60.0)
    try:
        return await check_server(redis, allow_eviction=allow_eviction)
    finally:
        await redis.aclose()


@pytest.mark.every_server
async def test_the_server_is_named(redis_server: RunningServer) -> None:
    """Every supported server is fit, and told apart by name and version."""
    name, _, version = (await checked(redis_server.url)).partition(" ")
    assert name == ("Valkey" if redis_server.kind == "valkey" else "Redis")
    assert version[0].isdigit()


POLICIES = [f"{kind}-{way}" for kind in ("allkeys", "volatile") for way in ("lru", "lfu", "random")]


@pytest.mark.parametrize("policy", [*POLICIES, "volatile-ttl"])
async def test_a_policy_that_evicts(
    redis_server: RunningServer, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that may drop timers is refused by name, unless the settings allow it. One that drops only keys
    with a time to live is taken, with a warning."""
    with redis_server.client() as client:
        client.config_set("maxmemory-policy", policy)
        try:
            if policy.startswith("volatile"):
                assert await checked(redis_server.url)
                (record,) = caplog.records
                assert (record.levelname, record.__dict__["maxmemory_policy"]) == ("WARNING", policy)
                assert "docs/how-to/redis.md" in record.message
            else:
                with pytest.raises(UnfitServer, match=rf"{policy}.*noeviction.*redis\.allow_eviction"):
                    await checked(redis_server.url)
                assert await checked(redis_server.url, allow_eviction=True)
        finally:
            client.config_set("maxmemory-policy", "noeviction")


async def test_no_version_is_compared() -> None:
    """A server that has all commands is fit, whatever it calls itself; and one that tells no policy."""

    def answer(name: bytes) -> bytes:
        return b"*0\r\n" if name == b"eval" else bulk("redis_version:0.1\r\n")

    async with serving(answer) as url:
        assert await checked(url) == "Redis 0.1"


@pytest.mark.usefixtures("patient")
async def test_a_lost_reply_is_not_asked_for_again(valkey: RunningServer, keyspace: Keyspace) -> None:
    """A claim whose reply got lost has happened: the same nonce is never sent twice, by anybody.

    Its lease is a token that nobody knows; another nonce gets the timer when it is over.
    """
    topic = keyspace.topic()
    line = Claims(valkey.port)
    async with line.open() as url:
        redis = Server(url, connections=2, timeout=60.0, write_ttl=60.0)
        store = RedisStore(redis)
        await store.schedule(topic, [NewTimer("a", b"x", delay=0)])
        await store.claim(
            f"{topic}-warm:{topic}", ClaimRequest(limit=1, lease=1, nonce=bytes(16), max_bytes=1)
        )
        redis._write_ttl = TTL  # of what is to be lost, and of nothing else here

        async def claim_once() -> None:
            line.sent = b""
            try:
                await store.claim(topic, ClaimRequest(limit=1, lease=50_000, nonce=N1, max_bytes=1))
            except OpenOutcome:
                assert line.sent.count(N1) == 1
                raise

        await line.lose(redis, claim_once)
        redis._write_ttl = 60.0
        timer = await store.get(topic, "a")
        assert timer is not None
        assert timer.state.value == "leased", "it did happen"
        with anyio.fail_after(60):
            while not (
                claim := await store.claim(topic, ClaimRequest(limit=1, lease=SECOND, nonce=N2, max_bytes=1))
            ).timers:
                pass
        assert claim.timers[0].attempt == 1
        for nonce, verdict in ((N1, Verdict.STALE), (N2, Verdict.OK)):
            assert await store.settle(topic, [end_of("a", nonce, Verb.ACK)]) == [verdict]
        await redis.aclose()


async def test_calls_wait_for_a_connection(valkey: RunningServer, keyspace: Keyspace) -> None:
    """More calls than connections at once is no error."""
    topic = keyspace.topic()
    with valkey.client() as client:
        before = {each["id"] for each in client.client_list()}
    redis = Server(valkey.url, connections=2, timeout=60.0)
    store = RedisStore(redis)
    async with anyio.create_task_group() as group:
        for n in range(50):
            group.start_soon(store.schedule, topic, [NewTimer(f"t{n}", b"", delay=0)])
    claim = await store.claim(topic, ClaimRequest(limit=100, lease=SECOND, nonce=N1, max_bytes=1 << 20))
    assert len(claim.timers) == 50
    with valkey.client() as client:
        opened = {each["id"] for each in client.client_list()} - before
    assert len(opened) <= 3, "two, and the one that asks"
    await redis.aclose()


async def test_closing_leaves_no_connection(valkey: RunningServer) -> None:
    """The client owns its pool."""
    with valkey.client() as client:
        before = {each["id"] for each in client.client_list()}
        redis = Server(valkey.url, connections=2, timeout=60.0)
        await redis.ping()
        opened = {each["id"] for each in client.client_list()} - before
        assert len(opened) == 1
        await redis.aclose()
        deadline = anyio.current_time() + 60
        while opened & {each["id"] for each in client.client_list()}:
            assert anyio.current_time() < deadline, "still open"


async def test_a_server_that_is_loading_its_data() -> None:
    """It is fit by what it says of itself, and a relay waits for it as for one that is away. What it lacks is
    found out by whoever starts later."""

    def answer(name: bytes) -> bytes:
        said = bulk("redis_version:8.2\r\n")
        return b"-LOADING Redis is loading the dataset in memory\r\n" if name == b"eval" else said

    async with serving(answer) as url:
        assert await checked(url) == "Redis 8.2"


async def test_a_node_that_takes_no_call_now() -> None:
    """A start does not wait for it: the other nodes serve their topics."""
    here = dict[str, bytes]()

    def answer(name: bytes) -> bytes:
        if name == b"cluster":
            return here["slots"]
        return b"-CLUSTERDOWN The cluster is down\r\n" if name == b"eval" else bulk("redis_version:8.2\r\n")

    async with serving(answer) as url:
        host, _, port = url.removeprefix("redis://").removesuffix("/0").rpartition(":")
        here["slots"] = b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk(host) + b":%d\r\n" % int(port)
        with anyio.fail_after(40):
            assert await checked(f"redis+cluster://{host}:{port}") == "Redis 8.2"
