"""Due timers with payloads of other sizes, drained by stream; timers a second."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bench.harness.rows import Row
from bench.harness.timers import load_due
from bench.harness.world import World

MEASURE = "payloads"


def of_size(size: int) -> str:
    """The row."""
    return f"{size:,} bytes"


async def measure(world: World) -> AsyncIterator[Row]:
    """Small to large."""
    for size, timers in world.alternately(tuple(world.plan.payloads.items())):
        await load_due(world.server.url, timers, size)
        async with world.relay() as relay:
            drain = await world.by_stream([relay], timers)
        mib = drain.rate * size / (1 << 20)
        note = f"{timers:,} timers" + (f", {mib:,.0f} MiB/s in run {world.run + 1}" if mib >= 1 else "")
        yield Row(MEASURE, of_size(size), drain.rate, "timers/s", note=note)
        await world.server.clear()
