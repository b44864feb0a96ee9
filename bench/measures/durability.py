"""What a wait for the disk costs: timers of 200 bytes, due in an hour, stored through a relay by its Python
client, on a server whose append-only file is synced once a second, and on one whose file is synced with every
turn of its loop. At `stored` an OK means that the server has them, at `fsync` that its disk has.

The client asks for no level, or for `fsync`, and the two take turns. A batch is all timers in one call of the
client; it cuts them into calls of 1,000, of which a hundred may wait at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from bench.harness.processes import application, ask
from bench.harness.rows import Row
from bench.harness.server import server
from bench.harness.world import Relay, World

MEASURE = "durability"
SYNCED = ("everysec", "always")
LEVELS = ("stored", "fsync")
CONCURRENCY = 100


def batch(level: str, synced: str) -> str:
    """The row of a batch."""
    return f"batch, {level}, appendfsync {synced}"


def unary(level: str, synced: str) -> str:
    """The row of unary calls."""
    return f"unary, {level}, appendfsync {synced}, concurrency {CONCURRENCY}"


async def measure(world: World) -> AsyncIterator[Row]:
    """Each level on each kind of server."""
    for synced in world.alternately(SYNCED):
        async with server(appendonly="yes", appendfsync=synced) as running:
            own = dataclasses.replace(world, server=running)
            async with own.relay() as relay:
                for row in await rows(own, relay, synced):
                    yield row


async def rows(world: World, relay: Relay, synced: str) -> list[Row]:
    """Those of one kind of server."""
    rates: list[Row] = []
    waits: list[Row] = []
    for level in world.alternately(LEVELS):
        timers, calls = world.plan.durable, world.plan.durable_unary
        said = await stored(world, relay, level, timers)
        note = f"{timers:,} timers"
        rates.append(Row(MEASURE, batch(level, synced), timers / said["seconds"], "timers/s", note=note))
        said = await stored(world, relay, level, calls, concurrency=CONCURRENCY)
        waits += [
            Row(MEASURE, unary(level, synced), said["took"][stat], "ms", stat) for stat in ("p50", "p99")
        ]
    return rates + waits


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
