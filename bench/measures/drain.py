"""Due timers of 200 bytes, from Redis through relay to an application that acknowledges each after its
handler; timers a second from the first handler to the last.

The ceiling is relay's own claim and settle scripts in a bare loop, at the batch size that relay was just
seen to reach. Traced means that every timer carries a producer's context, of which 1 % are sampled; the
same timers are drained with tracing off, so that only the tracing differs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from bench.harness.processes import application, ask, cpu_seconds, free_port, running
from bench.harness.rows import Drain, Row
from bench.harness.scripts import claims
from bench.harness.timers import TOPIC, Headers, load_due, no_headers, traced
from bench.harness.world import World

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
    """By stream, and the ceiling at the batch size that came of it."""
    before = await world.server.calls()
    drain = await drained(world, world.plan.drain)
    batch = world.plan.drain / claims(await world.server.calls(), before).useful
    ceiling = await bare_loop(world, round(batch))
    return [
        Row(MEASURE, STREAM, drain.rate, UNIT),
        Row(MEASURE, BATCH, batch, "timers"),
        Row(
            MEASURE,
            CEILING,
            ceiling,
            UNIT,
            note="at relay's batch size; the faster of one connection and two",
        ),
    ]


async def wide(world: World) -> list[Row]:
    """An application that takes more at a time, and the ceiling for relay's largest claim."""
    drain = await drained(world, world.plan.drain_beside, concurrency=WIDE_CONCURRENCY)
    return [
        Row(MEASURE, WIDE, drain.rate, UNIT),
        Row(MEASURE, CEILING_WIDE, await bare_loop(world, 300), UNIT),
    ]


async def contexts(world: World) -> list[Row]:
    """Timers that carry a context, and a relay that doesn't trace."""
    drain = await drained(world, world.plan.drain_beside, headers=traced(1))
    return [Row(MEASURE, CONTEXTS, drain.rate, UNIT)]


async def tracing(world: World) -> list[Row]:
    """The same timers, and a relay that sends spans."""
    async with collector() as endpoint:
        env = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}
        drain = await drained(world, world.plan.drain_beside, headers=traced(1), env=env)
    return [Row(MEASURE, TRACED, drain.rate, UNIT)]


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
    """To relay's own client, which takes batches."""
    timers = world.plan.drain_beside
    drain, _ = await pushed(world, timers)
    return [Row(MEASURE, PUSH, drain.rate, UNIT, note="`DeliverBatch`, as relay's client has it")]


async def unary_push(world: World) -> list[Row]:
    """To an application that has no `DeliverBatch`: a call a timer."""
    timers = world.plan.push
    drain, _ = await pushed(world, timers, batches=False)
    return [Row(MEASURE, UNARY_PUSH, drain.rate, UNIT, note=f"{timers:,} timers, `Deliver` for each")]


async def bare_push(world: World) -> list[Row]:
    """What gRPC alone would reach, between two processes alike."""
    said = await bare_calls(world, "deliver", world.plan.push, PUSH_CONCURRENCY)
    return [Row(MEASURE, BARE, said, "calls/s", note=f"concurrency {PUSH_CONCURRENCY}")]


SIDES: tuple[Side, ...] = (streams, wide, contexts, tracing, metrics, journal, push, unary_push, bare_push)
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
    **options: Any,
) -> Drain:
    """Load due timers and drain them by stream, with a fresh relay."""
    await load_due(world.server.url, timers, world.plan.payload, headers=headers)
    async with world.relay(**(env or {})) as relay:
        return await world.by_stream([relay], timers, **options)


async def pushed(world: World, timers: int, *, batches: bool = True, **policy: str) -> tuple[Drain, float]:
    """Load due timers and let relay push them; answers how it went, and the seconds of CPU that relay took.

    `policy` is settings of the topic by their names, such as `MAX_CONCURRENT`.
    """
    port = free_port()
    own = {"DELIVERY__MODE": "push", "DELIVERY__TARGET": f"127.0.0.1:{port}", **policy}
    env = {f"RELAY_TOPICS__{TOPIC}__{name}": value for name, value in own.items()}
    await load_due(world.server.url, timers, world.plan.payload)
    command = application("relay_push", port=port, topic=TOPIC, timers=timers, batches=batches)
    async with world.relay(**env) as relay, running("pushed application", command) as child:
        await child.hear()
        began = cpu_seconds(relay.pid)
        drain = await world.drained(child, timers)
        return drain, cpu_seconds(relay.pid) - began


async def bare_loop(world: World, batch: int, verb: str = "drain") -> float:
    """Timers a second of the bare loop: of one connection or two, whichever is faster."""
    rates = []
    timers = world.plan.drain_beside if verb == "drain" else world.plan.batch
    for overlap in (False, True) if verb == "drain" else (False,):
        if verb == "drain":
            await load_due(world.server.url, timers, world.plan.payload)
        command = application(
            "bare_loop",
            url=world.server.url,
            topic=TOPIC,
            timers=timers,
            batch=batch,
            verb=verb,
            payload=world.plan.payload,
            overlap=overlap,
        )
        said = await ask(command)
        if verb == "drain":
            await world.check("bare loop", said, timers)
        rates.append(timers / said["seconds"])
    return float(max(rates))


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
