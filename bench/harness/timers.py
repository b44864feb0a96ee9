"""Stores timers, fast, in the form that relays and faststream-redis-timers both read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from redis.asyncio import Redis

from relay.core.timers import NewTimer
from relay.store.codec import envelope
from relay.store.codec.contents import PLAIN, Contents
from relay.store.keys import KeyNames
from relay.store.server.connect import open_client
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

TOPIC = "bench"
BATCH = 500
BATCH_BYTES = 2 << 20
BULK = 5_000

Headers = Callable[[int], Mapping[str, str]]


def no_headers(_: int) -> Mapping[str, str]:
    """Timers without headers."""
    return {}


def traced(percent: int) -> Headers:
    """Each with a producer's context, sampled in so many percent of all timers."""

    def headers(number: int) -> Mapping[str, str]:
        sampled = number % 100 < percent
        return {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-0{int(sampled)}"}

    return headers


def name_of(number: int) -> str:
    """The timer_id."""
    return f"timer-{number}"


async def load_due(
    url: str,
    timers: int,
    payload: int,
    *,
    topic: str = TOPIC,
    headers: Headers = no_headers,
    contents: Contents = PLAIN,
) -> None:
    """Store timers that are due now, through the script that relays store with."""
    content = b"p" * payload
    batch = max(1, min(BATCH, BATCH_BYTES // (payload + 1)))
    async with Server(url, connections=2, timeout=60) as redis:
        store = RedisStore(redis, contents=contents)

        async def store_some(start: int) -> None:
            numbers = range(start, min(start + batch, timers))
            new = [NewTimer(name_of(n), content, delay=0, headers=headers(n)) for n in numbers]
            await store.schedule(topic, new)

        starts = range(0, timers, batch)
        for first, second in zip(starts[::2], starts[1::2], strict=False):
            await asyncio.gather(store_some(first), store_some(second))
        if len(starts) % 2:
            await store_some(starts[-1])


async def load_at(
    url: str,
    timers: int,
    payload: int,
    due: Callable[[int], float],
    *,
    topic: str = TOPIC,
    first: int = 0,
    prefix: str = "timer",
) -> None:
    """Store timers at `due(number)` (unix seconds) as a bulk writer does: plain ZADD and HSET.

    The first one's due time is published in the end, as relays do.
    """
    timeline, payloads, *_ = KeyNames().of(topic)
    stored = envelope.encode(b"p" * payload, {}, "")
    async with open_client(url, connections=1, timeout=60) as redis:
        for start in range(first, first + timers, BULK):
            numbers = range(start, min(start + BULK, first + timers))
            await _write(redis, timeline, payloads, {f"{prefix}-{n}": due(n) for n in numbers}, stored)
        await redis.publish(KeyNames().channel(topic), repr(due(first)))


async def _write(redis: Redis, timeline: str, payloads: str, scores: dict[str, float], stored: bytes) -> None:
    async with redis.pipeline(transaction=True) as pipe:
        pipe.zadd(timeline, dict(scores))
        pipe.hset(payloads, mapping=dict.fromkeys(scores, stored))
        await pipe.execute()
