"""Due timers of 200 bytes, from Redis through relay to an application that acknowledges each after its
handler; timers a second from the first handler to the last.

The ceiling is relay's own claim and settle scripts in a bare loop, at the batch size that relay was just
seen to reach. Traced means that every timer carries a producer's context, of which 1 % are sampled; the
same timers are drained with tracing off, so that only the tracing differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from bench.harness.processes import application, ask, free_port, running
from bench.harness.rows import Drain, Row
from bench.harness.scripts import claims
from bench.harness.timers import TOPIC, Headers, load_due, no_headers, traced
from bench.harness.world import World
from relay.store.codec.contents import PLAIN, Contents

MEASURE = "drain"
UNIT = "timers/s"
STREAM = "relay, by stream"
WIDE = "relay, by stream, concurrency 500"
CONTEXTS = "relay, by stream, timers with trace contexts, tracing off"
TRACED = "relay, by stream, timers with trace contexts, tracing 1 %"
PUSHED_METRICS = "relay, by stream, metrics pushed each second"
JOURNALED = "relay, by stream, with a journal"
PUSH = "relay, by push"
UNARY_PUSH = "relay, by unary push"
BARE = "bare grpc.aio unary, same messages"
CEILING = "ceiling: claim and settle in a bare loop"
CEILING_WIDE = "ceiling: claim and settle in a bare loop, 300 a call"
BATCH = "timers a claim, by stream"
WIDE_CONCURRENCY = 500
PUSH_CONCURRENCY = 100
"""relay's default `max_concurrent`"""

Side = Callable[[World], Awaitable[list[Row]]]


async def measure(world: World) -> AsyncIterator[Row]:
    """All sides, in an order that alternates."""
    for side in world.alternately(SIDES):
        for row in await side(world):
            yield row
        await world.server.clear()


async def streams(world: World) -> list[Row]:
    """By stream, and the ceiling at the batch size that relay was seen to reach just before."""
    before, timers = await world.server.calls(), world.plan.drain_beside
    await drained(world, timers)
    batch = timers / claims(await world.server.calls(), before).useful

    async def stream() -> float:
        return (await drained(world, world.plan.drain)).rate

    rate, *ceilings = await world.in_turns(stream, *ceiling_sides(world, round(batch)))
    return [
        Row(MEASURE, STREAM, rate, UNIT),
        Row(MEASURE, BATCH, batch, "timers"),
        Row(
            MEASURE,
            CEILING,
            max(ceilings),
            UNIT,
            note="at relay's batch size; the faster of one connection and two",
        ),
    ]


async def wide(world: World) -> list[Row]:
    """An application that takes more at a time, and the ceiling for relay's largest claim."""

    async def stream() -> float:
        return (await drained(world, world.plan.drain_beside, concurrency=WIDE_CONCURRENCY)).rate

    rate, *ceilings = await world.in_turns(stream, *ceiling_sides(world, 300))
    return [Row(MEASURE, WIDE, rate, UNIT), Row(MEASURE, CEILING_WIDE, max(ceilings), UNIT)]


def ceiling_sides(world: World, batch: int) -> tuple[Callable[[], Awaitable[float]], ...]:
    """The bare loop at so many timers a call, over one connection and over two."""
    return tuple(partial(bare_drain, world, batch, overlap) for overlap in (False, True))


async def tracing(world: World) -> list[Row]:
    """Timers that carry a context: a relay that doesn't trace, and one that sends spans."""

    async def silent() -> float:
        return (await drained(world, world.plan.drain_beside, headers=traced(1))).rate

    async def telling() -> float:
        async with collector() as endpoint:
            env = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}
            return (await drained(world, world.plan.drain_beside, headers=traced(1), env=env)).rate

    without, traces = await world.in_turns(silent, telling)
    return [Row(MEASURE, CONTEXTS, without, UNIT), Row(MEASURE, TRACED, traces, UNIT)]


async def metrics(world: World) -> list[Row]:
    """A relay that pushes its metrics; all count them, whether or not somebody asks."""
    async with collector() as endpoint:
        env = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
        drain = await drained(world, world.plan.drain_beside, env=env)
    return [Row(MEASURE, PUSHED_METRICS, drain.rate, UNIT)]


async def journal(world: World) -> list[Row]:
    """A topic whose every change is recorded in Redis; the journal is what is left."""
    env = {f"RELAY_TOPICS__{TOPIC}__JOURNAL": "true"}
    drain = await drained(world, world.plan.drain_beside, env=env, left=1)
    return [Row(MEASURE, JOURNALED, drain.rate, UNIT)]


async def push(world: World) -> list[Row]:
    """To relay's own client, which takes batches; to an application that has no `DeliverBatch`, a call a
    timer; and what gRPC alone would reach, between two processes alike."""

    async def by_batches() -> float:
        return (await pushed(world, world.plan.drain_beside)).rate

    async def one_by_one() -> float:
        return (await pushed(world, world.plan.push, batches=False)).rate

    async def bare() -> float:
        return await bare_calls(world, "deliver", world.plan.push, PUSH_CONCURRENCY)

    batches, unary, calls = await world.in_turns(by_batches, one_by_one, bare)
    return [
        Row(MEASURE, PUSH, batches, UNIT, note="`DeliverBatch`, as relay's client has it"),
        Row(MEASURE, UNARY_PUSH, unary, UNIT, note=f"{world.plan.push:,} timers, `Deliver` for each"),
        Row(MEASURE, BARE, calls, "calls/s", note=f"concurrency {PUSH_CONCURRENCY}"),
    ]


SIDES: tuple[Side, ...] = (streams, wide, tracing, metrics, journal, push)
"""A variant of relay is one more function here, which passes `drained` its settings."""


@asynccontextmanager
async def collector() -> AsyncIterator[str]:
    """Where OpenTelemetry's signals go."""
    async with running("collector", application("sink")) as child:
        yield f"http://127.0.0.1:{(await child.hear())['port']}"


async def drained(
    world: World,
    timers: int,
    *,
    headers: Headers = no_headers,
    env: dict[str, str] | None = None,
    contents: Contents = PLAIN,
    **options: Any,
) -> Drain:
    """Load due timers and drain them by stream, with a fresh relay."""
    await load_due(world.server.url, timers, world.plan.payload, headers=headers, contents=contents)
    async with world.relay(**(env or {})) as relay:
        return await world.by_stream([relay], timers, **options)


async def pushed(world: World, timers: int, *, batches: bool = True) -> Drain:
    """Load due timers and let relay push them."""
    port = free_port()
    own = {"DELIVERY__MODE": "push", "DELIVERY__TARGET": f"127.0.0.1:{port}"}
    env = {f"RELAY_TOPICS__{TOPIC}__{name}": value for name, value in own.items()}
    await load_due(world.server.url, timers, world.plan.payload)
    command = application("relay_push", port=port, topic=TOPIC, timers=timers, batches=batches)
    async with world.relay(**env), running("pushed application", command) as child:
        await child.hear()
        return await world.drained(child, timers)


async def bare_drain(world: World, batch: int, overlap: bool) -> float:
    """Timers a second of the bare loop that claims and settles; `overlap`: over two connections."""
    timers = world.plan.drain_beside
    await load_due(world.server.url, timers, world.plan.payload)
    said = await bare_loop(world, "drain", timers, batch, overlap=overlap)
    await world.check("bare loop", said, timers)
    return float(timers / said["seconds"])


async def bare_loop(world: World, verb: str, timers: int, batch: int, **options: Any) -> dict[str, Any]:
    """What the bare loop says."""
    return await ask(
        application(
            "bare_loop",
            url=world.server.url,
            topic=TOPIC,
            timers=timers,
            batch=batch,
            verb=verb,
            payload=world.plan.payload,
            **options,
        )
    )


async def bare_calls(world: World, method: str, calls: int, concurrency: int) -> float:
    """Calls a second of bare gRPC."""
    port = free_port()
    async with running("bare server", application("bare_grpc", role="server", port=port)) as child:
        await child.hear()
        said = await ask(
            application(
                "bare_grpc",
                role="caller",
                target=f"127.0.0.1:{port}",
                method=method,
                calls=calls,
                concurrency=concurrency,
                payload=world.plan.payload,
            )
        )
    return float(calls / said["seconds"])
