"""redis-py's errors and the server's words as Relay's own."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from relay.core.errors import InvalidField, StoreFull, StoreRefused, StoreUnavailable, WrongKeyType
from relay.core.outcomes import ClaimRequest, Verb, Verdict
from relay.core.timers import Change, NewTimer
from relay.store.server.errors import translated_errors
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.servers import KINDS, Kind, free_port, start_server
from tests.settlements import end_of
from tests.store.fake import serving

UNAVAILABLE = [
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "NOREPLICAS Not enough good replicas to write.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "READONLY You can't write against a read only replica. script: abc, on @user_script:1.",
]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("certificate verify failed: CA cert does not include key usage extension", "keyUsage=critical"),
        ("certificate verify failed: Missing Authority Key Identifier", "authorityKeyIdentifier=keyid"),
        ("certificate verify failed: unable to get local issuer certificate", "with ssl_ca_certs"),
        ("TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "does not trust the client certificate"),
        (
            "SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert",
            "the client certificate that redis.url names has expired",
        ),
    ],
)
def test_what_openssl_says(text: str, advice: str) -> None:
    """With what to do about it, and its own words."""
    with pytest.raises(StoreUnavailable, match=re.escape(text)) as caught, translated_errors():
        raise RedisConnectionError("Error 1 connecting") from ssl.SSLError(1, f"[SSL: {text}")
    assert advice in str(caught.value)


async def outcome_of(answer: Callable[[bytes], bytes | None]) -> BaseException:
    """What scheduling a timer raises on a server that answers so."""
    async with serving(answer) as url:
        redis = Server(url, connections=1, timeout=60.0)
        with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is what is asked)
            await RedisStore(redis).schedule("topic", [NewTimer("a", b"", due=0)])
        await redis.aclose()
    return caught.value


@pytest.mark.parametrize("words", UNAVAILABLE, ids=lambda words: words.split()[0])
async def test_a_server_that_cannot_answer_now(words: str) -> None:
    """A state that passes is `StoreUnavailable`, in the server's own words."""
    failure = await outcome_of(lambda _: f"-{words}\r\n".encode())
    assert type(failure) is StoreUnavailable
    assert str(failure) == words or str(failure) in words


@pytest.mark.parametrize("words", UNAVAILABLE, ids=lambda words: words.split()[0])
async def test_whatever_a_server_answers_is_definite(words: str) -> None:
    """It is told at once: redis-py takes some of these words for a lost connection."""
    info = b"$11\r\nrole:master\r\n"
    failure = await outcome_of(lambda name: info if name == b"info" else f"-{words}\r\n".encode())
    assert type(failure) is StoreUnavailable
    assert str(failure) == words or str(failure) in words


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", StoreFull),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:1.",
            StoreFull,
        ),
        ("WRONGKEYTYPE timers_timeline:x holds a string, not a zset", WrongKeyType),
        ("OUTOFRANGE 0", InvalidField),
        ("NOPERM this user has no permissions to run the 'evalsha' command", StoreRefused),
        ("ERR unknown command", StoreRefused),
        ("MOVED 866 127.0.0.1:7001", StoreRefused),
        ("CROSSSLOT Keys in request don't hash to the same slot", StoreRefused),
    ],
)
async def test_a_server_that_refuses(words: str, kind: type[Exception]) -> None:
    """Each refusal has a kind of its own, and keeps what the server said."""
    failure = await outcome_of(lambda _: f"-{words}\r\n".encode())
    assert type(failure) is kind
    assert str(failure)


async def test_a_connection_that_breaks() -> None:
    """Nothing is known about the call."""
    assert type(await outcome_of(lambda _: None)) is StoreUnavailable


async def test_a_server_that_is_not_there() -> None:
    """A refused connection says so."""
    redis = Server(f"redis://127.0.0.1:{free_port()}/0", connections=1, timeout=60.0)
    with pytest.raises(StoreUnavailable, match="onnect"):
        await RedisStore(redis).ping()
    await redis.aclose()


async def test_every_error_has_words() -> None:
    """An exception without a message is named by its type."""
    with pytest.raises(StoreUnavailable, match="TimeoutError"), translated_errors():
        raise TimeoutError
    with pytest.raises(StoreRefused, match="RedisError"), translated_errors():
        raise RedisError


@pytest.mark.parametrize("kind", KINDS)
async def test_a_master_that_became_a_replica(kind: Kind) -> None:
    """Its refusal passes, in whichever words (6.2 wraps a script's errors): nothing is given up for it."""
    with start_server(kind) as server:
        redis = Server(server.url, connections=2, timeout=60.0)
        store = RedisStore(redis)
        await store.schedule("topic", [NewTimer("a", b"", due=0)])
        claim = await store.claim(
            "topic", ClaimRequest(limit=1, lease=30_000_000, nonce=b"n" * 16, max_bytes=1)
        )
        with server.client() as operator:
            operator.replicaof("127.0.0.1", 1)
        done = end_of("a", b"n" * 16, Verb.ACK)
        with pytest.raises(StoreUnavailable):
            await store.settle("topic", [done])
        with pytest.raises(StoreUnavailable):
            await store.schedule("topic", [NewTimer("b", b"", due=0)])
        with pytest.raises(StoreUnavailable, match="the server is a replica"):
            await store.ping()
        with server.client() as operator:
            operator.replicaof("NO", "ONE")
        assert [timer.timer_id for timer in claim.timers] == ["a"]
        assert await store.settle("topic", [done]) == [Verdict.OK]
        await redis.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_hints_that_are_forbidden(kind: Kind) -> None:
    """A user who may not publish still schedules and settles: what was written is not called a failure."""
    with start_server(kind) as server:
        owner = Server(server.url, connections=1, timeout=60.0)
        rules = ("on", ">secret", "~*", "+@all", "resetchannels")
        await owner.ask("ACL SETUSER", "mute", *rules)
        redis = Server(server.url.replace("://", "://mute:secret@"), connections=1, timeout=60.0)
        store = RedisStore(redis)
        (scheduled,) = await store.schedule("topic", [NewTimer("a", b"", due=0)])
        assert scheduled.change is Change.CREATED
        await store.claim("topic", ClaimRequest(limit=1, lease=30_000_000, nonce=b"n" * 16, max_bytes=1))
        released = end_of("a", b"n" * 16, Verb.RELEASE)
        assert await store.settle("topic", [released]) == [Verdict.OK]
        await redis.aclose()
        await owner.aclose()
