"""What leaves the timeline for a list or a stream; the contract is that of `relay.core.ports.Promotions`.

One script call each; the scripts in `lua/` say what they read, write and return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import iter_unpack

from relay.core.dispatch import Dispatch, DispatchState, GroupStats, Promotion, StreamPolicy, Tidied
from relay.core.instants import from_score, micros
from relay.core.policy import TopicPolicy
from relay.store.codec.lease_record import text_of
from relay.store.server.server import Server
from relay.store.timeline.read_sizes import at_once
from relay.store.timeline.redis_store import PARK_GRACE
from relay.store.verbs import ready_list, stream

PROMOTE_BYTES = 4 << 20
"""Payload bytes that one call moves at most, roughly: they stay within the server."""

GONE = 600.0
"""Seconds of silence after which a consumer that has nothing pending is removed from its group."""

TRIM = 10_000
"""Entries that one call removes from a stream, roughly."""

TRIMS = 100
"""Calls of one round at most, while there is more to remove: no stream grows faster than it is trimmed."""

MOST_GROUPS = 50
"""Groups of a stream of which is told how they stand."""

LOOK = 500
"""Entries of a processing list that one call looks at."""

LOOKS = 20
"""Calls of one round at most, and `LOOK_BYTES` the bytes after which there is no further one."""

LOOK_BYTES = 16 << 20


class KnownGroups(set[tuple[str, str]]):  # see 0058
    """The groups, each with its topic, that were there at a call of this process.

    One that is met for the first time begins behind all entries. One that was there and isn't any more was
    lost by a failover, or a restart of Redis, and entries have perhaps been added since: it begins with all
    that are kept.
    """

    def begin(self, topic: str, group: str) -> str:
        """Where to begin if the group isn't there."""
        return "0" if (topic, group) in self else "$"


class RedisPromotions:
    """`Promotions` on a Redis or Valkey server; `policy` is the topics'."""

    def __init__(
        self,
        server: Server,
        policy: Callable[[str], TopicPolicy],
        *,
        park_grace: int = PARK_GRACE,
        known_groups: KnownGroups | None = None,
    ) -> None:
        self._server = server
        self._known_groups = KnownGroups() if known_groups is None else known_groups
        self._policy = policy
        self._park_grace = park_grace
        self._places: dict[str, int] = {}
        """By topic: how many of the oldest entries of its processing list to skip."""
        self._scans: dict[str, bytes | str] = {}
        """And where the search for finished ones goes on."""

    async def promote(self, topic: str, *, limit: int, nonce: bytes) -> Promotion:
        """See `Promotions.promote`."""
        reply = await self._promote(topic, self._policy(topic), limit, nonce)
        now = int(reply.now)
        return Promotion(
            promoted=reply.promoted,
            now=now,
            next=from_score(float(reply.following)) if reply.following else None,
            parked=reply.parked,
            orphans=tuple(text_of(raw)[0] for raw in reply.orphans),
            deaths=pairs(reply.deaths),
            paused_until=int(reply.paused) if reply.paused else None,
            lateness=[now / 1e6 - due for raw in reply.dues for (due,) in iter_unpack("<d", raw)],
        )

    async def _promote(
        self, topic: str, policy: TopicPolicy, limit: int, nonce: bytes
    ) -> ready_list.PromoteReply:
        request = ready_list.PromoteRequest(
            limit=limit,
            max_bytes=PROMOTE_BYTES,
            park_grace=self._park_grace,
            nonce=nonce,
            limits=policy.limits,
            at_once=at_once(policy.max_payload_bytes),
        )
        if policy.dispatch is not Dispatch.STREAM:
            return await self._server.call(ready_list.promote(topic, request))
        group = policy.stream.group
        begin = self._known_groups.begin(topic, group)
        reply = await self._server.call(stream.promote(topic, group, request, begin=begin))
        self._known_groups.add((topic, group))
        return reply

    async def tidy(self, topic: str) -> Tidied:
        """See `Promotions.tidy`."""
        policy = self._policy(topic)
        if policy.dispatch is Dispatch.STREAM:
            return await self._trim(topic, policy.stream)
        if not policy.ready.processing_timeout:
            return Tidied()
        return await self._reclaim(topic, policy)

    async def _reclaim(self, topic: str, policy: TopicPolicy) -> Tidied:
        """Look at the oldest entries; if nothing is to be done there, at those that follow what was looked at
        last time, until the list's end. Whatever is there in any number, the rest has its turn."""
        place, size = 0, 0
        for look in range(LOOKS):
            reply = await self._server.call(
                ready_list.reclaim(
                    topic,
                    left_after=micros(policy.ready.processing_timeout),
                    limit=LOOK,
                    limits=policy.limits,
                    at_once=at_once(policy.max_payload_bytes),
                    skip=place,
                    scan=self._scans.get(topic, "0"),
                )
            )
            size += reply.size
            if look == 0:
                self._scans[topic] = reply.scan
            if reply.returned or reply.deaths:
                return Tidied(returned=reply.returned, deaths=pairs(reply.deaths))
            if reply.following == b"":
                self._places.pop(topic, None)
                break
            following = int(reply.following)
            place = max(following, self._places.get(topic, 0)) if look == 0 else following
            if look > 0:
                self._places[topic] = place
            if look > 0 and size >= LOOK_BYTES:
                break
        return Tidied()

    async def _trim(self, topic: str, policy: StreamPolicy) -> Tidied:
        trimmed = dropped = consumers = 0
        for _ in range(TRIMS):
            call = stream.tidy(topic, policy.group, round(GONE * 1000), policy.max_length, TRIM)
            reply = await self._server.call(call)
            trimmed, dropped, consumers = trimmed + reply[0], dropped + reply[1], consumers + reply[2]
            if max(reply[:2]) < TRIM / 2:
                break
        return Tidied(trimmed=trimmed, dropped=dropped, consumers=consumers)

    async def state(self, topic: str) -> DispatchState:
        """See `Promotions.state`. One pipeline, and with a stream another one for its groups."""
        policy, key, ask = self._policy(topic), self._server.keys.key, self._server.pipeline
        if policy.dispatch is Dispatch.LIST:
            waiting, taken = await ask(("LLEN", key("ready", topic)), ("LLEN", key("processing", topic)))
            return DispatchState(policy.dispatch, ready=waiting, processing=taken)
        entries_key = key("stream", topic)
        kind, entries = await ask(("TYPE", entries_key), ("XLEN", entries_key))
        if kind == b"none":
            return DispatchState(policy.dispatch)
        (found,) = await ask(("XINFO GROUPS", entries_key))
        names = [text_of(each["name"])[0] for each in found[:MOST_GROUPS]]
        retries = [key("retries", topic, group=name) for name in names]
        waits = await ask(*(("ZCARD", key) for key in retries))
        *firsts, (seconds, part) = await ask(
            *(("ZRANGE", key, "0", "0", "WITHSCORES") for key in retries), ("TIME",)
        )
        now = int(seconds) + int(part) / 1e6
        groups = (
            GroupStats(name, each["pending"], each.get("lag"), waiting, each["consumers"], _since(first, now))
            for name, each, waiting, first in zip(names, found, waits, firsts, strict=False)
        )
        return DispatchState(policy.dispatch, entries=entries, groups=tuple(groups))


def _since(first: Sequence[bytes], now: float) -> float:
    """Seconds since the first of a sorted set, [member, score] or nothing, was due; 0 if it is not."""
    return max(now - float(first[1]), 0.0) if first else 0.0


def pairs(flat: Sequence[bytes]) -> tuple[tuple[str, str], ...]:
    """Timers and why they died, as the scripts tell them."""
    return tuple((text_of(flat[i])[0], flat[i + 1].decode()) for i in range(0, len(flat), 2))
