"""Several relays on one topic, whose timers all fall due at the same instant; and many relays that wake for
one timer.

Each relay is a process; one application has a stream to each. A claim call is wasted if nothing was due.
Those that wake for one timer are engines in one process, each with connections of its own. What they send
for it are script calls.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Any

from bench.harness import scripts
from bench.harness.open_loop import due_soon, together
from bench.harness.processes import application, running
from bench.harness.rows import Row
from bench.harness.scripts import claims
from bench.harness.timers import TOPIC
from bench.harness.world import World
from relay.core.timers import NewTimer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

MEASURE = "relays"
WINDOW = 2.0
"""Seconds in which commands are counted."""
DELAY = 1_000_000
"""microseconds until the one timer is due"""


def rate(count: int) -> str:
    """The row of throughput."""
    return f"{count} {'relay' if count == 1 else 'relays'}"


def calls(count: int) -> str:
    """The row of claim calls."""
    return f"claim calls for each useful one, {rate(count)}"


def one_timer(count: int) -> str:
    """The row of relays that wake for one timer."""
    return f"script calls of {count} idle relays for one timer"


async def measure(world: World) -> AsyncIterator[Row]:
    """More and more relays; then the many."""
    counts, timers = world.plan.relays, world.plan.relays_drain
    made: dict[int, list[float]] = {count: [] for count in counts}

    async def drained(count: int) -> float:
        async with world.relays(count) as relays, due_soon(world, relays, timers, together) as child:
            before = await world.server.calls()
            drain = await world.drained(child, timers)
            calls_made = claims(await world.server.calls(), before)
        made[count].append(calls_made.all / calls_made.useful)
        return drain.rate

    rates = await world.in_turns(*(partial(drained, count) for count in counts))
    for count, each in zip(counts, rates, strict=True):
        yield Row(MEASURE, rate(count), each, "timers/s", note=f"{timers:,} timers")
        yield Row(MEASURE, calls(count), statistics.median(made[count]), "calls")
    await world.server.clear()
    yield await waking(world, world.plan.pollers)
    await world.server.clear()


async def waking(world: World, count: int) -> Row:
    """What so many relays send for one timer."""
    url = world.server.url
    command = application("engines", url=url, topic=TOPIC, engines=count)
    async with Server(url, connections=1, timeout=30) as redis, running("engines", command) as child:
        await child.hear()
        await round_of_polls(world, count)
        store, one = RedisStore(redis), NewTimer("one", b"", delay=DELAY)
        made = await script_calls(world, store.schedule(TOPIC, [one]), child.hear(), asyncio.sleep(WINDOW))
    note = f"within {WINDOW:.0f} s, right after all of them had polled in vain"
    return Row(MEASURE, one_timer(count), made, "calls", note=note)


async def round_of_polls(world: World, count: int) -> None:
    """Until each has polled its idle topic once more: then it is quiet for some seconds."""
    before = await world.server.calls()
    while claims(await world.server.calls(), before).all < count:
        await asyncio.sleep(0.05)


async def script_calls(world: World, *what: Awaitable[Any]) -> int:
    """How many script calls were made while all that happened, at the same time."""
    before = await world.server.calls()
    await asyncio.gather(*what)
    return scripts.calls(await world.server.calls(), before)
