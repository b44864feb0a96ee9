"""How late ticks come, from the nominal instant to the script that makes the occurrence, in milliseconds, by
the clock of the server; and what a tick costs.

The recurrences fall on each minute, spread evenly, in one topic of one relay. Nobody takes their
occurrences. They are in Redis before the relay starts, and the first tick is to come after that.
First they are alone, then beside timers of another topic, which an application takes. Each recurrence
remembers how late its ticks were.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bench.harness import open_loop
from bench.harness.processes import cpu_seconds
from bench.harness.quantiles import QUANTILES, milliseconds
from bench.harness.recurrences import AT_ONCE, keep
from bench.harness.rows import Row
from bench.harness.server import Server
from bench.harness.world import World, Wrong
from relay.core.instants import SECOND
from relay.core.recurring.recurrence import Overlap, Recurrence, Standing
from relay.core.recurring.rule import Rule
from relay.store.codec.recurrence_text import read_standing
from relay.store.keys import KeyNames

MEASURE = "recurrences"
RECURRING = "recurring"
"""The topic."""
MINUTE = 60 * SECOND
BESIDE = 5_000
"""Timers a second."""
LEAD, LOAD_RATE = 10, 5_000
"""Seconds until the first tick, behind those that keeping them takes at this rate: the relay has to start."""
KEYS = 6
"""Of the topic: those of its recurrences, its timeline and its payloads."""


ALONE = "ticks"
LATE = f"ticks, beside {BESIDE:,} timers/s"
RELAY_CPU = "CPU of relay, a tick"
SERVER_CPU = "CPU of server, a tick"
CALLS = "script calls a tick"


async def measure(world: World) -> AsyncIterator[Row]:
    """Alone, and beside timers."""
    count, seconds = world.plan.recurrences, world.plan.recurring_time
    await keep(world.server, RECURRING, await each_minute(world.server, count))
    async with world.relay(**{f"RELAY_TOPICS__{RECURRING}__MAX_WAITING": "0"}) as relay:
        while not await ticks(world.server):
            await asyncio.sleep(0.1)
        server, own = await world.server.cpu_seconds(), cpu_seconds(relay.pid)
        calls, before = await evaluations(world.server), await ticks(world.server)
        await asyncio.sleep(seconds)
        made = len(await ticks(world.server)) - len(before)
        if not made:
            raise Wrong("nothing has ticked")
        yield Row(
            MEASURE, RELAY_CPU, (cpu_seconds(relay.pid) - own) / made * 1e6, "µs", note=f"{made:,} ticks"
        )
        yield Row(MEASURE, SERVER_CPU, (await world.server.cpu_seconds() - server) / made * 1e6, "µs")
        yield Row(MEASURE, CALLS, (await evaluations(world.server) - calls) / made, "calls")
    for row in await lateness(world, ALONE):
        yield row
    await world.server.clear()
    await keep(world.server, RECURRING, await each_minute(world.server, count))
    timers = round(BESIDE * seconds)
    async with (
        world.relay(**{f"RELAY_TOPICS__{RECURRING}__MAX_WAITING": "0"}) as relay,
        open_loop.due_soon(world, [relay], timers, open_loop.steady(BESIDE)) as child,
    ):
        await world.drained(child, timers, KEYS)
    for row in await lateness(world, LATE):
        yield row
    await world.server.clear()


async def each_minute(server: Server, count: int) -> list[tuple[Recurrence, Standing]]:
    """Recurrences of every minute, each with its first instant within the minute to come."""
    seconds, micros = await server.redis.time()
    start = (seconds + LEAD + count // LOAD_RATE) * SECOND + micros
    found = []
    for number in range(count):
        first = start + number * MINUTE // count
        rule = Rule(every=MINUTE, anchor=first)
        wanted = Recurrence(f"r{number}", rule, b"p" * 200, overlap=Overlap.ALLOW)
        found.append((wanted, Standing(version=1, next=first, settled=first - 1)))
    return found


async def ticks(server: Server) -> list[float]:
    """How late each tick was, in seconds, as the recurrences remember."""
    found: list[float] = []
    async for _, standing in server.redis.hscan_iter(KeyNames().key("standings", RECURRING), count=AT_ONCE):
        found += [each.lateness / SECOND for each in read_standing(standing).recent]
    return found


async def lateness(world: World, name: str) -> list[Row]:
    """One row for each quantile."""
    late = await ticks(world.server)
    found, note = milliseconds(late), f"{world.plan.recurrences:,} recurrences a minute, {len(late):,} ticks"
    return [Row(MEASURE, name, found[stat], "ms", stat, note) for stat in QUANTILES]


async def evaluations(server: Server) -> int:
    """How many scripts ran so far."""
    calls = await server.calls()
    return calls.get("evalsha", 0) + calls.get("eval", 0)
