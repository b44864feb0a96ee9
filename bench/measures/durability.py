"""What a wait for the disk costs: timers of 200 bytes, due in an hour, stored through a relay by its Python
client, on a server whose append-only file is synced once a second, and on one whose file is synced with every
turn of its loop. At `stored` an OK means that the server has them, at `fsync` that its disk has.

The client asks for no level, or for `fsync`, and the two take turns. A batch is all timers in one call of the
client; it cuts them into calls of 1,000, of which a hundred may wait at once. The disk's own time is that of
`fdatasync` behind 4 KiB, in the folder for temporary files, in which the server's file is.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any

from bench.harness.processes import application, ask
from bench.harness.quantiles import milliseconds
from bench.harness.rows import Row
from bench.harness.server import server
from bench.harness.world import Relay, World

MEASURE = "durability"
SYNCED = ("everysec", "always")
LEVELS = ("stored", "fsync")
CALLERS = (100, 1_000)
DISK = "the disk's own fdatasync"
SYNCS = 300
"""of the disk"""
STATS = ("p50", "p99")


def batch(level: str, synced: str) -> str:
    """The row of a batch."""
    return f"batch, {level}, appendfsync {synced}"


def unary(level: str, synced: str, callers: int) -> str:
    """The row of unary calls."""
    return f"unary, {level}, appendfsync {synced}, concurrency {callers}"


async def measure(world: World) -> AsyncIterator[Row]:
    """Each level on each kind of server."""
    took = await asyncio.to_thread(synced_by_hand, SYNCS)
    for stat in STATS:
        yield Row(MEASURE, DISK, took[stat], "ms", stat)
    for synced in world.alternately(SYNCED):
        async with server(appendonly="yes", appendfsync=synced) as running:
            own = dataclasses.replace(world, server=running)
            async with own.relay() as relay:
                for row in await rows(own, relay, synced):
                    yield row


def synced_by_hand(count: int) -> dict[str, float]:
    """How long the disk takes, by quantile, in milliseconds."""
    took: list[float] = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(count):
            file.write(os.urandom(4_096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return milliseconds(took)


async def rows(world: World, relay: Relay, synced: str) -> list[Row]:
    """Those of one kind of server."""
    timers = world.plan.durable

    async def rate(level: str) -> float:
        return float(timers / (await stored(world, relay, level, timers))["seconds"])

    rates = [Row(MEASURE, batch(level, synced), await rate(level), "timers/s") for level in _in_turns(world)]
    waits: list[Row] = []
    for callers in CALLERS:
        for level in _in_turns(world):
            least = 0 if waits_long(level, synced) else world.plan.durable_unary
            calls = max(world.plan.durable_rounds * callers, least)
            said = await stored(world, relay, level, calls, concurrency=callers)
            name, note = unary(level, synced, callers), f"{calls:,} calls"
            waits += [Row(MEASURE, name, said["took"][stat], "ms", stat, note=note) for stat in STATS]
    return rates + waits


def _in_turns(world: World) -> tuple[str, ...]:
    return tuple(world.alternately(LEVELS))


def waits_long(level: str, synced: str) -> bool:
    """Whether a call takes a second."""
    return (level, synced) == ("fsync", "everysec")


async def stored(world: World, relay: Relay, level: str, timers: int, **options: Any) -> dict[str, Any]:
    """Let a producer store this number of timers; empty the server again; return what the producer says."""
    command = application(
        "relay_scheduler",
        target=relay.target,
        timers=timers,
        payload=world.plan.payload,
        durability="" if level == "stored" else level,
        **options,
    )
    said: dict[str, Any] = await ask(command)
    await world.server.clear()
    return said
