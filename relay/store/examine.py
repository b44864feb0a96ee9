"""Examines a server and a user's rights on it, for `relay doctor`. It reports facts and does not judge
them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from relay.core.dispatch import Dispatch, ListPolicy
from relay.core.errors import ServiceError, StoreError, StoreUnavailable
from relay.core.instants import SECOND
from relay.core.journal import Journals
from relay.core.outcomes import ACKED, ClaimRequest, Ending, Extension, Limits, Settlement, Verb
from relay.core.partitions import MAX_PARTITIONS, Layout
from relay.core.policy import TopicPolicy
from relay.core.timers import NewTimer
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.keys import KeyNames
from relay.store.partitions.for_each import for_each
from relay.store.server.fitness import is_one_of_several, name_of
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs import move

ROUND_TRIPS = 20

TRIAL_JOURNALS = Journals(lambda topic: 1 if topic.startswith("relay-doctor-journal-") else 0)
"""The journals of the topics on which a relay's work is tried."""

TYPES = ("zset", "hash", "hash", "stream", "string", "stream")
"""What a topic's keys hold, in the order of `KeyNames.of`."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself. Sizes are in bytes; None means that the user may not know."""

    name: str
    place: str
    """Its `host:port` as the Cluster calls it; empty for a single server."""
    slots: int
    """How many slots of a Cluster it has."""
    replicas: int
    """How many replicas are connected to it."""
    stops_alone: bool
    """Whether it refuses writes while it has no replica, by `min-replicas-to-write`."""
    one_of_several: bool
    """Whether it is a node of a Cluster, and the URL takes it for a server that has everything."""
    policy: str
    memory_used: int
    memory_limit: int
    aof: bool
    snapshots: bool | None
    writes_fail: bool
    """Whether the last write of the AOF or of a snapshot went wrong."""


async def facts(server: Server) -> list[ServerFacts]:
    """Ask the server, in a Cluster each node that answers. Raises `StoreError`."""
    told = await server.info()
    of_several = await is_one_of_several(server, list(told.values()))
    snapshots = None
    with suppress(StoreError):  # a right that a relay does not need
        reply = await server.ask("CONFIG GET", "save")
        values = list(reply.values()) if isinstance(reply, dict) else reply[1:]
        snapshots = bool(values and values[0])
    slots = server.slots
    return [
        _facts(info, snapshots, place=place, slots=slots.get(place, 0), one_of_several=of_several)
        for place, info in sorted(told.items())
    ]


def _facts(
    info: Mapping[str, Any], snapshots: bool | None, *, place: str, slots: int, one_of_several: bool
) -> ServerFacts:
    return ServerFacts(
        name=name_of(info),
        place=place,
        slots=slots,
        replicas=int(info.get("connected_slaves", 0)),
        stops_alone="min_slaves_good_slaves" in info,  # which it only tells if it goes by that
        one_of_several=one_of_several,
        policy=str(info.get("maxmemory_policy", "noeviction")),
        memory_used=int(info.get("used_memory", 0)),
        memory_limit=int(info.get("maxmemory", 0)),
        aof=bool(info.get("aof_enabled")),
        snapshots=snapshots,
        writes_fail="err" in (info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status", "ok")),
    )


async def clock(server: Server) -> tuple[float, float]:
    """Return how far this machine's clock is ahead of the server's, and the median round trip, in seconds."""
    trips: list[tuple[float, float]] = []
    for _ in range(ROUND_TRIPS):
        before, start = time.time(), time.perf_counter()
        seconds, micros = await server.ask("TIME")
        trip = time.perf_counter() - start
        trips.append((trip, before + trip / 2 - (int(seconds) + int(micros) / 1e6)))
    trips.sort()
    return trips[0][1], trips[len(trips) // 2][0]  # the quickest trip tells the clock best


async def foreign_types(
    server: Server, topic: str, *, journal: bool, policy: TopicPolicy | None = None
) -> list[tuple[str, str, str]]:
    """Keys of a topic that hold something else: key, what it holds, what belongs there.

    The journal's is looked at if the topic has one, and those behind the timeline as its `policy` says: else
    the user may have no right to them.
    """
    found = []
    behind = _behind(server.keys, topic, policy) if policy is not None else ()
    marks = (server.keys.key("marks", topic), "hash")
    for key, wanted in (*zip(_used(server.keys, topic, journal), TYPES, strict=False), marks, *behind):
        held = (await server.ask("TYPE", key)).decode()
        if held not in (wanted, "none"):
            found.append((key, held, wanted))
    return found


@dataclass(frozen=True, slots=True)
class SweepMarks:
    """Whose a topic's marks are: which plan's of which cold store. Times are microseconds since 1970."""

    keys: Sequence[str]
    """Where they are: one for each partition that has some."""
    place: str
    plan: str
    until: int
    """Until when they are their driver's own. A driver that is at work puts it off."""
    kept: int
    """When they are abandoned: scripts write nothing to them from then on."""


async def sweep_marks(server: Server, layout: Layout) -> SweepMarks | None:
    """Those that a sweep has left in Redis of a topic, if it is not done. One command for each partition.
    Raises `StoreError`."""

    async def read(key: str) -> SweepMarks | None:
        told = await server.ask("HMGET", key, "place", "plan", "until", "kept")
        if None in told:
            return None
        place, plan, until, kept = (text.decode() for text in told)
        return SweepMarks([key], place, plan, int(until), int(kept))

    keys = [server.keys.key("marks", partition) for partition in layout.partitions]
    found = [marks for marks in await for_each(read, keys) if marks is not None]
    if not found:
        return None
    latest = max(found, key=lambda marks: marks.until)  # its driver goes from one to the other
    return replace(latest, keys=[key for marks in found for key in marks.keys])


async def out_of_use(server: Server, layout: Layout) -> int:
    """How many timers lie in partitions that a topic has no more, where nobody takes them: a failover has
    brought them back after a move had taken them away. A command for each such partition. Raises
    `StoreError`."""
    found, number = 0, len(layout.partitions)
    while layout.epoch and number < MAX_PARTITIONS:
        names = [f"{layout.topic}#{n} {layout.text}" for n in range(number, 2 * number)]
        if await server.ask("TYPE", server.keys.key("layout", names[0])) != b"string":
            break  # the number of partitions doubles, and each that was emptied keeps a layout
        sizes = await for_each(lambda name: server.ask("ZCARD", server.keys.key("timeline", name)), names)
        found, number = found + sum(sizes), 2 * number
    return found


async def refusals(
    server: Server, known: Sequence[str] = (), *, journal: bool = False
) -> list[tuple[str, str]]:
    """Do all that a relay does, on a topic of our own; return what was refused, and in which words.

    Nothing of the topic is left, as far as the user may remove it. `known` are topics that may be
    registered; `journal`: with a journal, if the server has `TRIAL_JOURNALS`. Raises `StoreUnavailable`.
    """
    topic = _trial(journal)
    store, topics = RedisStore(server), RedisTopics(server)
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
        rejected = Settlement(nonce, Ending(Verb.REJECT), ["c"])
        await store.settle(topic, [rejected], limits=Limits(keep=True))
        page = await topics.dead_page(topic, limit=10, cursor="")
        dead_ids[:] = [letter.dead_id for letter in page.letters] or dead_ids
        await topics.dead_letter(topic, dead_ids[0])

    timers = [NewTimer(name, b"", delay=0) for name in "abc"]
    try:
        await attempt("ask for a sign of life", store.ping)
        await attempt("schedule", lambda: store.schedule(topic, timers))
        await attempt(
            "read",
            lambda: store.get(topic, "a"),
            lambda: store.list(Layout(topic), state=None, limit=1, cursor=""),
        )
        await attempt(
            "claim",
            lambda: store.claim(
                topic, ClaimRequest(limit=3, lease=30 * SECOND, nonce=nonce, max_bytes=1 << 20)
            ),
        )
        await attempt("look for occurrences", lambda: server.call(move.scan(topic, "0", 10)))
        await attempt("extend", lambda: store.extend(topic, [Extension("a", nonce)], lease=30 * SECOND))
        nacked = Settlement(nonce, Ending(Verb.NACK, retry_after=0), ["b"])
        ends = [Settlement(nonce, ACKED, ["a"]), nacked]
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
        for key in _used(server.keys, topic, journal):
            with suppress(StoreError):  # what the user may not remove
                await server.ask("DEL", key)
    return found


async def refusals_behind(
    server: Server, policy: TopicPolicy, *, journal: bool = False
) -> list[tuple[str, str]]:
    """The same for what a relay does with the list or the stream of a topic of this `policy`."""
    topic = _trial(journal)
    policy = replace(policy, ready=ListPolicy(SECOND))
    promotions = RedisPromotions(server, lambda _: policy)
    store = RedisStore(server)
    groups = RedisGroups(server, lambda _: policy)
    what = f"dispatch to a {policy.dispatch.value}"
    nonce = secrets.token_bytes(16)
    try:
        await store.schedule(topic, [NewTimer(name, b"", delay=0) for name in "abc"])
        await promotions.promote(topic, limit=2, nonce=nonce)
        if policy.dispatch is Dispatch.STREAM:
            claim = await groups.claim(
                topic, ClaimRequest(limit=9, lease=SECOND, nonce=nonce, max_bytes=1 << 20)
            )
            proofs = [timer.proof for timer in claim.timers]
            await groups.extend(
                topic, [Extension("", proof, received=True) for proof in proofs], lease=SECOND
            )
            verbs = (Verb.ACK, Verb.NACK, Verb.REJECT)
            ends = [
                Settlement(nonce, Ending(verb), [""], [proof])
                for proof, verb in zip(proofs, verbs, strict=False)
            ]
            await groups.settle(topic, ends, limits=Limits(keep=True))
        await promotions.tidy(topic)
        await promotions.state(topic)
    except StoreUnavailable:
        raise
    except ServiceError as failure:
        return [(what, str(failure))]
    finally:
        behind = (key for key, _ in _behind(server.keys, topic, policy))
        for key in (*_used(server.keys, topic, journal), *behind):
            with suppress(StoreError):  # what the user may not remove
                await server.ask("DEL", key)
    return []


def _behind(keys: KeyNames, topic: str, policy: TopicPolicy) -> list[tuple[str, str]]:
    """The keys behind the timeline, and what they hold."""
    kinds: dict[str, str] = {}
    if policy.dispatch is Dispatch.LIST:
        kinds = {"ready": "list", "processing": "list", "taken": "hash"}
    elif policy.dispatch is Dispatch.STREAM:
        kinds = {"stream": "stream", "retries": "zset", "group": "hash"}
    group = policy.stream.group
    return [(keys.key(name, topic, group=group), kind) for name, kind in kinds.items()]


def _trial(journal: bool) -> str:
    """A topic of our own, with a journal or without."""
    return f"relay-doctor-{'journal-' if journal else ''}{secrets.token_hex(8)}"


def _used(keys: KeyNames, topic: str, journal: bool) -> tuple[str, ...]:
    return keys.of(topic)[: None if journal else -1]
