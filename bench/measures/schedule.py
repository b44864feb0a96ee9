"""Timers of 200 bytes, due in an hour, stored through a relay by its Python client; timers a second.

Unary calls stand beside bare grpc.aio calls with the same messages; many at once beside the schedule script
in a bare loop at 500 timers a call, which is the most that a relay puts into one. Relay's client sends timers
that are alike, as these are, by `ScheduleColumns`; a bare stub sends them by `ScheduleBatch`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

from bench.harness.processes import application, ask
from bench.harness.rows import Row
from bench.harness.world import Relay, World
from bench.measures.drain import bare_calls, bare_loop

MEASURE = "schedule"
UNIT = "timers/s"
COLUMNS = "relay, ScheduleColumns"
BATCH = "relay, ScheduleBatch by a bare stub"
CEILING = "ceiling: schedule in a bare loop, 500 a call"
SCRIPT_BATCH = 500

_T = TypeVar("_T")


def unary(concurrency: int) -> str:
    """The row of unary calls."""
    return f"relay, unary, concurrency {concurrency}"


def by_stub(concurrency: int) -> str:
    """The row of unary calls by the bare stub, without relay's client."""
    return f"relay, unary by a bare stub, concurrency {concurrency}"


def bare(concurrency: int) -> str:
    """The row of bare gRPC."""
    return f"bare grpc.aio, concurrency {concurrency}"


async def measure(world: World) -> AsyncIterator[Row]:
    """Unary and batch, each beside its limit."""
    async with world.relay() as relay:
        for concurrency, calls in world.alternately(tuple(world.plan.unary.items())):
            for row in await unary_rows(world, relay, concurrency, calls):
                yield row
        for row in await batch_rows(world, relay):
            yield row


async def unary_rows(world: World, relay: Relay, concurrency: int, calls: int) -> list[Row]:
    """One concurrency: relay by its client, relay by a bare stub, bare gRPC."""

    async def by_client() -> float:
        return await emptied(world, scheduled(world, relay, calls, concurrency=concurrency))

    async def by_bare_stub() -> float:
        return await emptied(world, stubbed(world, relay, calls, concurrency))

    async def without_relay() -> float:
        return await bare_calls(world, "schedule", calls, concurrency)

    rate, stub, calls_alone = await world.in_turns(by_client, by_bare_stub, without_relay)
    return [
        Row(MEASURE, unary(concurrency), rate, UNIT, note=f"{calls:,} calls"),
        Row(MEASURE, by_stub(concurrency), stub, UNIT),
        Row(MEASURE, bare(concurrency), calls_alone, "calls/s"),
    ]


async def batch_rows(world: World, relay: Relay) -> list[Row]:
    """By columns, one by one, and the script alone."""
    timers = world.plan.batch

    async def by_columns() -> float:
        return await emptied(world, scheduled(world, relay, timers))

    async def one_by_one() -> float:
        return await emptied(world, scheduled(world, relay, timers, columns=False))

    async def script() -> float:
        said = await emptied(world, bare_loop(world, "schedule", timers, SCRIPT_BATCH))
        return float(timers / said["seconds"])

    columns, batch, ceiling = await world.in_turns(by_columns, one_by_one, script)
    return [
        Row(MEASURE, COLUMNS, columns, UNIT, note=f"{timers:,} timers"),
        Row(MEASURE, BATCH, batch, UNIT),
        Row(MEASURE, CEILING, ceiling, UNIT),
    ]


async def emptied(world: World, work: Awaitable[_T]) -> _T:
    """What comes of it; the server is empty again behind it."""
    found = await work
    await world.server.clear()
    return found


async def scheduled(world: World, relay: Relay, timers: int, **options: Any) -> float:
    """Timers a second by relay's client, or without its columns."""
    said = await ask(
        application(
            "relay_scheduler",
            target=relay.target,
            timers=timers,
            payload=world.plan.payload,
            **options,
        )
    )
    return float(timers / said["seconds"])


async def stubbed(world: World, relay: Relay, calls: int, concurrency: int) -> float:
    """Timers a second by the generated stub alone."""
    said = await ask(
        application(
            "bare_grpc",
            role="caller",
            target=relay.target,
            method="schedule",
            calls=calls,
            concurrency=concurrency,
            payload=world.plan.payload,
        )
    )
    return float(calls / said["seconds"])
