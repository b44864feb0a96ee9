"""What a due timer costs by where it goes: delivered from the timeline, by a stream to one group or two,
or moved to a list.

The timers wait in a paused topic until relays and applications are there. A delivery is a handler that
ended and was acknowledged; of a list, all timers are moved. The server's CPU is what it tells itself, from
the end of the pause until all is acknowledged or moved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

from redis.asyncio import Redis

from bench.harness.rows import Row
from bench.harness.timers import TOPIC, load_due
from bench.harness.world import World
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.topics import RedisTopics

MEASURE = "dispatch"
LEASE = "lease, by stream"
ONE = "stream, one group"
TWO = "stream, two groups"
LIST = "list, moved by one relay"
DISPATCH = f"RELAY_TOPICS__{TOPIC}__DISPATCH"
GROUP = f"RELAY_TOPICS__{TOPIC}__STREAM__GROUP"


def cost(name: str) -> str:
    """The row of CPU."""
    return f"CPU of the server, a timer: {name}"


async def measure(world: World) -> AsyncIterator[Row]:
    """All sides, in an order that alternates."""
    sides: list[tuple[str, list[dict[str, str]]]] = [
        (LEASE, [{}]),
        (ONE, groups("a")),
        (TWO, groups("a", "b")),
    ]
    for name, relays in world.alternately(sides):
        for row in await delivered(world, name, relays):
            yield row
        await world.server.clear()
    for row in await listed(world):
        yield row
    await world.server.clear()


def groups(*names: str) -> list[dict[str, str]]:
    """A relay for each."""
    return [{DISPATCH: "stream", GROUP: name} for name in names]


async def delivered(world: World, name: str, relays: Sequence[dict[str, str]]) -> list[Row]:
    """A relay with these settings and an application for each."""
    timers = world.plan.drain_beside
    async with AsyncExitStack() as stack:
        topics = RedisTopics(await stack.enter_async_context(Server(world.server.url, timeout=60)))
        await topics.pause(TOPIC)
        running = [await stack.enter_async_context(world.relay(**env)) for env in relays]
        children = [await stack.enter_async_context(world.streaming([each], timers)) for each in running]
        if DISPATCH in relays[0]:
            await begun(world.server.redis, len(relays))
        await load_due(world.server.url, timers, world.plan.payload)
        before = await world.server.cpu_seconds()
        await topics.resume(TOPIC)
        left = 1 if DISPATCH in relays[0] else 0  # the stream, which its groups keep
        drains = await asyncio.gather(*(world.drained(child, timers, left) for child in children))
        used = await world.server.cpu_seconds() - before
    rate = sum(drain.rate for drain in drains)
    return [
        Row(MEASURE, name, rate, "deliveries/s"),
        Row(MEASURE, cost(name), used / timers * 1e6, "µs"),
    ]


async def begun(redis: Redis, count: int) -> None:
    """Until so many groups are there: what is promoted before is not theirs."""
    stream = KeyNames().key("stream", TOPIC)
    while not await redis.exists(stream) or len(await redis.xinfo_groups(stream)) < count:
        await asyncio.sleep(0.005)


async def listed(world: World) -> list[Row]:
    """From the end of the pause until the last timer is in the list."""
    timers, redis = world.plan.drain_beside, world.server.redis
    ready = KeyNames().key("ready", TOPIC)
    async with world.relay(**{DISPATCH: "list"}), Server(world.server.url, timeout=60) as server:
        topics = RedisTopics(server)
        await topics.pause(TOPIC)
        await load_due(world.server.url, timers, world.plan.payload)
        before = await world.server.cpu_seconds()
        began = time.perf_counter()
        await topics.resume(TOPIC)
        while await redis.execute_command("LLEN", ready) < timers:
            await asyncio.sleep(0.005)
        took = time.perf_counter() - began
        used = await world.server.cpu_seconds() - before
    return [
        Row(MEASURE, LIST, timers / took, "timers/s"),
        Row(MEASURE, cost(LIST), used / timers * 1e6, "µs"),
    ]
