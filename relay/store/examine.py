"""Looks at a server and at a user's rights on it, for `relay doctor`: what is there, never what is right."""

from __future__ import annotations

import re
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.core.dispatch import Dispatch, ListPolicy
from relay.core.errors import ServiceError, StoreError, StoreUnavailable
from relay.core.instants import SECOND
from relay.core.journal import Journals
from relay.core.outcomes import Extension, Limits, Settlement, Verb
from relay.core.policy import TopicPolicy
from relay.core.timers import NewTimer
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.keys import KeyNames
from relay.store.server.errors import NotMaster, translated_errors
from relay.store.server.scripts import OnRefusedHint, ignore_reason
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics

ROUND_TRIPS = 20
HEARING = 2.0
"""Seconds for a message of our own to come back."""

TYPES = ("zset", "hash", "hash", "stream", "string", "stream")
"""What a topic's keys hold, in the order of `KeyNames.of`."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself. Sizes in bytes; `None` where the user may not know."""

    name: str
    version: tuple[int, ...]
    is_cluster: bool
    policy: str
    memory_used: int
    memory_limit: int
    aof: bool
    snapshots: bool | None
    writes_fail: bool
    """Whether the last write of the AOF or of a snapshot went wrong."""


async def facts(redis: Redis) -> ServerFacts:
    """Ask the server. Raises `StoreError`."""
    with translated_errors():
        info = await redis.info()
    snapshots = None
    with suppress(RedisError):  # a right that a relay does not need
        reply = await redis.execute_command("CONFIG", "GET", "save")
        values = list(reply.values()) if isinstance(reply, dict) else reply[1:]
        snapshots = bool(values and values[0])
    version = str(info.get("redis_version", "0"))
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {version}"
    return ServerFacts(
        name=name,
        version=tuple(int(part) for part in re.findall(r"\d+", version)[:2]),
        is_cluster=bool(info.get("cluster_enabled")),
        policy=str(info.get("maxmemory_policy", "noeviction")),
        memory_used=int(info.get("used_memory", 0)),
        memory_limit=int(info.get("maxmemory", 0)),
        aof=bool(info.get("aof_enabled")),
        snapshots=snapshots,
        writes_fail="err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status", "ok")),
    )


async def clock(redis: Redis) -> tuple[float, float]:
    """How far this machine's clock is ahead of the server's, and the median round trip; seconds."""
    trips: list[tuple[float, float]] = []
    for _ in range(ROUND_TRIPS):
        before, start = time.time(), time.perf_counter()
        with translated_errors():
            seconds, micros = await redis.execute_command("TIME")
        trip = time.perf_counter() - start
        trips.append((trip, before + trip / 2 - (int(seconds) + int(micros) / 1e6)))
    trips.sort()
    return trips[0][1], trips[len(trips) // 2][0]  # the quickest trip tells the clock best


async def foreign_types(
    redis: Redis, keys: KeyNames, topic: str, *, journal: bool, policy: TopicPolicy | None = None
) -> list[tuple[str, str, str]]:
    """Keys of a topic that hold something else: key, what it holds, what belongs there.

    The journal's is looked at if the topic has one, and those behind the timeline as its `policy` says: else
    the user may have no right to them.
    """
    found = []
    with translated_errors():
        behind = _behind(keys, topic, policy) if policy is not None else ()
        for key, wanted in (*zip(_used(keys, topic, journal), TYPES, strict=False), *behind):
            held = (await redis.execute_command("TYPE", key)).decode()
            if held not in (wanted, "none"):
                found.append((key, held, wanted))
    return found


async def refusals(
    redis: Redis,
    keys: KeyNames,
    known: Sequence[str] = (),
    *,
    journal: bool = False,
    unheard: OnRefusedHint = ignore_reason,
) -> list[tuple[str, str]]:
    """Do all that a relay does, on a topic of our own; what was refused, and in which words.

    Nothing of the topic is left, as far as the user may remove it. `known` are topics that may be
    registered; `journal`: with a journal. `unheard` is told of each wake hint that Redis refused to a script:
    why. Raises `StoreUnavailable`.
    """
    topic = f"relay-doctor-{secrets.token_hex(8)}"
    journals = Journals(lambda _: 1 if journal else 0)
    store = RedisStore(redis, keys, journals=journals, unheard=unheard)
    topics = RedisTopics(redis, keys, journals=journals, unheard=unheard)
    nonce = secrets.token_bytes(16)
    found: list[tuple[str, str]] = []

    async def attempt(what: str, *calls: Callable[[], Awaitable[object]]) -> None:
        for call in calls:
            try:
                await call()
            except StoreUnavailable:
                raise
            except ServiceError as failure:
                found.append((what, str(failure)))
                return

    dead_ids = ["1-1"]  # until there is a real one

    async def bury() -> None:
        await store.settle(topic, [Settlement("c", nonce, Verb.REJECT)], limits=Limits(keep=True))
        page = await topics.dead_page(topic, limit=10, cursor="")
        dead_ids[:] = [letter.dead_id for letter in page.letters] or dead_ids
        await topics.dead_letter(topic, dead_ids[0])

    timers = [NewTimer(name, b"", delay=0) for name in "abc"]
    try:
        await attempt("ask for a sign of life", store.ping)
        await attempt("schedule", lambda: store.schedule(topic, timers))
        await attempt(
            "read", lambda: store.get(topic, "a"), lambda: store.list(topic, state=None, limit=1, cursor="")
        )
        await attempt(
            "claim",
            lambda: store.claim(topic, limit=3, lease=30 * SECOND, nonce=nonce, max_bytes=1 << 20),
        )
        await attempt("extend", lambda: store.extend(topic, [Extension("a", nonce)], lease=30 * SECOND))
        ends = [Settlement("a", nonce, Verb.ACK), Settlement("b", nonce, Verb.NACK, retry_after=0)]
        await attempt("settle", lambda: store.settle(topic, ends))
        await attempt("keep dead letters", bury)
        await attempt("trim dead letters", lambda: topics.trim(topic, max_count=10, max_age=0))
        await attempt("redrive", lambda: topics.redrive(topic, dead_ids))
        await attempt("purge", lambda: topics.purge(topic, dead_ids))
        await attempt("run", lambda: store.run(topic, ["b"]))
        await attempt("pause", lambda: topics.pause(topic, duration=SECOND), lambda: topics.resume(topic))
        await attempt("tell how a topic stands", lambda: topics.stats(topic))
        await attempt(
            "clean up",
            lambda: topics.lock(f"doctor:{topic}", ttl=SECOND // 10),
            lambda: topics.orphans(topic, limit=10),
            lambda: topics.repair(topic, ["a"]),
        )
        await attempt("list the topics", topics.topics)
        for name in list(known)[:1]:  # one that may stand there: what is registered is never forgotten
            await attempt("register topics", lambda: topics.register(name))  # noqa: B023 (awaited at once)
    finally:
        await attempt("cancel", lambda: store.cancel(topic, list("abc")))
        for key in _used(keys, topic, journal):
            with suppress(RedisError):  # what the user may not remove
                await redis.execute_command("DEL", key)
    return found


async def refusals_behind(
    redis: Redis, keys: KeyNames, policy: TopicPolicy, *, journal: bool = False
) -> list[tuple[str, str]]:
    """The same for what a relay does with the list or the stream of a topic of this `policy`."""
    topic = f"relay-doctor-{secrets.token_hex(8)}"
    journals = Journals(lambda _: 1 if journal else 0)
    policy = replace(policy, ready=ListPolicy(SECOND))
    promotions = RedisPromotions(redis, lambda _: policy, keys, journals=journals)
    store = RedisStore(redis, keys, journals=journals)
    groups = RedisGroups(redis, lambda _: policy, keys, journals=journals)
    what = f"dispatch to a {policy.dispatch.value}"
    nonce = secrets.token_bytes(16)
    try:
        await store.schedule(topic, [NewTimer(name, b"", delay=0) for name in "abc"])
        await promotions.promote(topic, limit=2, nonce=nonce)
        if policy.dispatch is Dispatch.STREAM:
            claim = await groups.claim(topic, limit=9, lease=SECOND, nonce=nonce, max_bytes=1 << 20)
            proofs = [timer.proof for timer in claim.timers]
            await groups.extend(
                topic, [Extension("", proof, received=True) for proof in proofs], lease=SECOND
            )
            verbs = (Verb.ACK, Verb.NACK, Verb.REJECT)
            ends = [Settlement("", proof, verb) for proof, verb in zip(proofs, verbs, strict=False)]
            await groups.settle(topic, ends, limits=Limits(keep=True))
        await promotions.tidy(topic)
        await promotions.state(topic)
    except StoreUnavailable:
        raise
    except ServiceError as failure:
        return [(what, str(failure))]
    finally:
        for key in (*_used(keys, topic, journal), *(key for key, _ in _behind(keys, topic, policy))):
            with suppress(RedisError):  # what the user may not remove
                await redis.execute_command("DEL", key)
    return []


def _behind(keys: KeyNames, topic: str, policy: TopicPolicy) -> list[tuple[str, str]]:
    """The keys behind the timeline, and what they hold."""
    if policy.dispatch is Dispatch.LIST:
        own, kinds = keys.of_list(topic)[5:-1], ("list", "list", "hash")
    elif policy.dispatch is Dispatch.STREAM:
        own, kinds = keys.of_stream(topic, policy.stream.group)[5:-1], ("stream", "zset", "hash")
    else:
        return []
    return list(zip(own, kinds, strict=True))


def _used(keys: KeyNames, topic: str, journal: bool) -> tuple[str, ...]:
    return keys.of(topic)[: None if journal else -1]


async def deafness(redis: Redis, keys: KeyNames) -> list[str]:
    """What is wrong with wake hints outside of scripts: Redis does not let us subscribe, or publish; empty if
    they are heard. Raises `StoreUnavailable`."""
    channel = keys.channel(f"relay-doctor-{secrets.token_hex(8)}")
    problems: list[str] = []

    async def attempt(what: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            with translated_errors():
                await call()
        except StoreUnavailable:
            raise
        except StoreError as failure:
            problems.append(f"Redis does not let us {what}: {failure}")

    async def subscribe() -> None:
        await pubsub.subscribe(channel)
        await pubsub.get_message(timeout=HEARING)  # the server's word that we listen

    async def publish() -> None:
        await redis.execute_command("PUBLISH", channel, "0")

    async def hear() -> None:
        if not await pubsub.get_message(timeout=HEARING):
            problems.append(f"a message did not come back within {HEARING:g} s")
        await pubsub.unsubscribe(channel)
        await pubsub.get_message(timeout=HEARING)

    async with redis.pubsub() as pubsub:
        await attempt("subscribe to them", subscribe)
        await attempt("publish them, as bulk loads do", publish)
        if not problems:
            await attempt("unsubscribe from them", hear)
    return problems


@asynccontextmanager
async def explained() -> AsyncIterator[None]:
    """Failures to reach the server, as `StoreError`s whose words say what to do."""
    try:
        with translated_errors():
            yield
    except StoreError as failure:
        raise type(failure)(explain(failure)) from failure


def explain(failure: BaseException) -> str:
    """Why the server can't be reached or used, and what to do; what is unknown, in its own words."""
    chain: list[BaseException] = []
    link: BaseException | None = failure
    while link is not None:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for kind, advice in _ADVICE:
        if any(isinstance(each, kind) for each in chain):
            return f"{advice} ({failure})"
    return str(failure)


# The first that fits stands.
_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (NotMaster, "this is a replica: name the master in redis.url, or its Sentinels"),
    (AuthenticationError, "the user or the password is wrong, or missing: put them into redis.url"),
    (NoPermissionError, "the user may not even do this: give it what docs/how-to/redis.md lists"),
    (socket.gaierror, "the host's name is not known: look for a typing error in redis.url, or in DNS"),
    (ConnectionRefusedError, "nobody listens there: is the server running, and on this port?"),
    (FileNotFoundError, "there is no such socket: is the server running?"),
    (PermissionError, "this user may not open the socket"),
    (RedisTimeoutError, "no answer: is the server frozen, or a firewall between?"),
    (TimeoutError, "no answer: is the server frozen, or a firewall between?"),
)
