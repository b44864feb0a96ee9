"""What leaves the timeline for a list or a stream; the contract is that of `relay.core.ports.Promotions`.

One script call each; the scripts in `lua/` say what they read, write and return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import iter_unpack
from typing import Any

from redis.asyncio import Redis

from relay.core.dispatch import Dispatch, DispatchState, GroupStats, Promotion, Tidied
from relay.core.instants import from_score, micros
from relay.core.journal import NO_JOURNALS, Journals
from relay.core.policy import TopicPolicy
from relay.store.codec.lease_record import text_of
from relay.store.keys import KeyNames
from relay.store.server.errors import translated_errors
from relay.store.server.scripts import Observe, Scripts, ignore_duration
from relay.store.timeline.read_sizes import at_once
from relay.store.timeline.redis_store import PARK_GRACE, limit_words

LIST_VERBS = ("list/promote", "list/reclaim")
STREAM_VERBS = ("stream/promote", "stream/tidy")

PROMOTE_BYTES = 4 << 20
"""Payload bytes that one call moves at most, roughly: they stay within the server."""

GONE = 600.0
"""Seconds without a word after which a consumer that has nothing pending is removed from its group."""

TRIM = 10_000
"""Entries that one call removes from a stream, roughly."""

TRIMS = 100
"""Calls of one round at most, while there is more to remove: no stream grows faster than it is trimmed."""

MOST_GROUPS = 50
"""Groups of a stream of which is told how they stand."""

STREAM, RETRIES = 5, 6
"""Where these stand in `KeyNames.of_stream`."""

LOOK = 500
"""Entries of a processing list that one call looks at."""

LOOKS = 20
"""Calls of one round at most, and `LOOK_BYTES` the bytes after which there is no further one."""

LOOK_BYTES = 16 << 20


class KnownGroups(set[tuple[str, str]]):
    """The groups, each with its topic, that were there at a call of this process.

    One that is met for the first time begins behind all entries. One that was there and isn't any more was
    lost by a failover, or a restart of Redis, and entries have perhaps been added since: it begins with all
    that are kept.
    """

    def begin(self, topic: str, group: str) -> str:
        """Where to begin if the group isn't there."""
        return "0" if (topic, group) in self else "$"


class RedisPromotions:
    """`Promotions` on a Redis or Valkey server; arguments as of `RedisStore`, and the topics' `policy`."""

    def __init__(
        self,
        redis: Redis,
        policy: Callable[[str], TopicPolicy],
        keys: KeyNames | None = None,
        *,
        park_grace: int = PARK_GRACE,
        journals: Journals = NO_JOURNALS,
        demoted: Callable[[], None] = lambda: None,
        texts: Mapping[str, str] | None = None,
        observe: Observe = ignore_duration,
        known_groups: KnownGroups | None = None,
    ) -> None:
        self._redis = redis
        self._known_groups = KnownGroups() if known_groups is None else known_groups
        self._policy = policy
        self._park_grace = park_grace
        self._keys = keys = keys or KeyNames()
        self._places: dict[str, int] = {}
        """Of each topic: how many of the oldest entries of its processing list to pass over."""
        self._scans: dict[str, bytes | str] = {}
        """And where the search for finished ones goes on."""
        self._lists = Scripts(
            redis,
            keys,
            LIST_VERBS,
            journals=journals,
            demoted=demoted,
            texts=texts,
            observe=observe,
            names=keys.of_list,
        ).run
        self._streams = Scripts(
            redis,
            keys,
            STREAM_VERBS,
            journals=journals,
            demoted=demoted,
            texts=texts,
            observe=observe,
            names=lambda topic: keys.of_stream(topic, policy(topic).stream.group),
        ).run

    async def promote(self, topic: str, *, limit: int, nonce: bytes) -> Promotion:
        """See `Promotions.promote`."""
        policy = self._policy(topic)
        args = (limit, PROMOTE_BYTES, self._park_grace, nonce)
        rest = (*limit_words(policy.limits), at_once(policy.max_payload_bytes))
        if policy.dispatch is Dispatch.STREAM:
            group = policy.stream.group
            reply = await self._streams(
                "stream/promote", topic, *args, group, *rest, self._known_groups.begin(topic, group)
            )
            self._known_groups.add((topic, group))
        else:
            reply = await self._lists("list/promote", topic, *args, *rest)
        now, following, promoted, parked, orphans, deaths, paused, *dues = reply
        return Promotion(
            promoted=promoted,
            now=int(now),
            next=from_score(float(following)) if following else None,
            parked=parked,
            orphans=tuple(text_of(raw)[0] for raw in orphans),
            deaths=pairs(deaths),
            paused_until=int(paused) if paused else None,
            lateness=[int(now) / 1e6 - due for raw in dues for (due,) in iter_unpack("<d", raw)],
        )

    async def tidy(self, topic: str) -> Tidied:
        """See `Promotions.tidy`."""
        policy = self._policy(topic)
        if policy.dispatch is Dispatch.STREAM:
            return await self._trim(topic, policy.stream.max_length)
        if not policy.ready.processing_timeout:
            return Tidied()
        return await self._reclaim(topic, policy)

    async def _reclaim(self, topic: str, policy: TopicPolicy) -> Tidied:
        """Look at the oldest entries; if nothing is to be done there, at those that follow what was looked at
        last time, until the list's end. Whatever is there in any number, the rest has its turn."""
        place, size = 0, 0
        for look in range(LOOKS):
            returned, deaths, following, scan, read = await self._lists(
                "list/reclaim",
                topic,
                *(micros(policy.ready.processing_timeout), LOOK),
                *limit_words(policy.limits),
                at_once(policy.max_payload_bytes),
                *(place, self._scans.get(topic, "0")),
            )
            size += read
            if look == 0:
                self._scans[topic] = scan
            if returned or deaths:
                return Tidied(returned=returned, deaths=pairs(deaths))
            if following == b"":
                self._places.pop(topic, None)
                break
            place = max(following, self._places.get(topic, 0)) if look == 0 else following
            if look > 0:
                self._places[topic] = place
            if look > 0 and size >= LOOK_BYTES:
                break
        return Tidied()

    async def _trim(self, topic: str, max_length: int) -> Tidied:
        trimmed = dropped = consumers = 0
        for _ in range(TRIMS):
            reply = await self._streams("stream/tidy", topic, round(GONE * 1000), max_length, TRIM)
            trimmed, dropped, consumers = trimmed + reply[0], dropped + reply[1], consumers + reply[2]
            if max(reply[:2]) < TRIM / 2:
                break
        return Tidied(trimmed=trimmed, dropped=dropped, consumers=consumers)

    async def state(self, topic: str) -> DispatchState:
        """See `Promotions.state`. One pipeline, and with a stream another one for its groups."""
        policy = self._policy(topic)
        if policy.dispatch is Dispatch.LIST:
            *_, ready, processing, _, _ = self._keys.of_list(topic)
            waiting, taken = await self._read(("LLEN", ready), ("LLEN", processing))
            return DispatchState(policy.dispatch, ready=waiting, processing=taken)
        stream = self._keys.of_stream(topic, policy.stream.group)[STREAM]
        kind, entries = await self._read(("TYPE", stream), ("XLEN", stream))
        if kind == b"none":
            return DispatchState(policy.dispatch)
        (found,) = await self._read(("XINFO GROUPS", stream))
        names = [text_of(each["name"])[0] for each in found[:MOST_GROUPS]]
        retries = [self._keys.of_stream(topic, name)[RETRIES] for name in names]
        waits = await self._read(*(("ZCARD", key) for key in retries))
        (seconds, part), *firsts = await self._read(
            ("TIME",), *(("ZRANGE", key, "0", "0", "WITHSCORES") for key in retries)
        )
        now = int(seconds) + int(part) / 1e6
        groups = (
            GroupStats(name, each["pending"], each.get("lag"), waiting, each["consumers"], _since(first, now))
            for name, each, waiting, first in zip(names, found, waits, firsts, strict=False)
        )
        return DispatchState(policy.dispatch, entries=entries, groups=tuple(groups))

    async def _read(self, *commands: Sequence[str]) -> list[Any]:
        with translated_errors():
            async with self._redis.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                replies: list[Any] = await pipe.execute()
                return replies


def _since(first: Sequence[bytes], now: float) -> float:
    """Seconds since the first of a sorted set, [member, score] or nothing, was due; 0 if it is not."""
    return max(now - float(first[1]), 0.0) if first else 0.0


def pairs(flat: Sequence[bytes]) -> tuple[tuple[str, str], ...]:
    """Timers and why they died, as the scripts tell them."""
    return tuple((text_of(flat[i])[0], flat[i + 1].decode()) for i in range(0, len(flat), 2))
