"""What relay takes: CPU for each timer of a drain by stream, memory, and what it does while nothing is due.

CPU is user and system time of the whole process, that of the server as it tells it itself. The application
counts from its first handler to its last. Idle means streams for so many topics, and no timers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.harness import scripts
from bench.harness.processes import Peak, application, cpu_seconds, free_port, rss_mib, running
from bench.harness.rows import Row
from bench.harness.timers import load_due
from bench.harness.world import World, listening, serve_command

MEASURE = "cost"
RELAY = "CPU of relay, a timer"
SERVER = "CPU of the server, a timer"
APPLICATION = "CPU of the application, a timer"
RSS_IDLE = "memory of relay, idle"
RSS_PEAK = "memory of relay, at most while it drains"
START = "from exec to SERVING"
SETTLED = 2.0
"""Seconds until a relay that has new streams is at rest."""


def commands(topics: int) -> str:
    """The row of commands that are sent while idle."""
    return f"commands sent, {_idle(topics)}"


def ran(topics: int) -> str:
    """The row of commands that the server runs while idle."""
    return f"commands run, in scripts too, {_idle(topics)}"


def share(topics: int) -> str:
    """The row of CPU while idle."""
    return f"CPU of relay, {_idle(topics)}"


def _idle(topics: int) -> str:
    return f"{topics} idle {'topic' if topics == 1 else 'topics'}"


async def measure(world: World) -> AsyncIterator[Row]:
    """A drain, idleness, starts."""
    for row in await drain(world):
        yield row
    await world.server.clear()
    for topics in world.plan.idle_topics:
        for row in await idle(world, topics):
            yield row
    for row in await starts(world):
        yield row
    await world.server.clear()


async def drain(world: World) -> list[Row]:
    """What a drain costs each process."""
    timers = world.plan.drain
    await load_due(world.server.url, timers, world.plan.payload)
    async with world.relay() as relay:
        idle_mib = rss_mib(relay.pid)
        server, own = await world.server.cpu_seconds(), cpu_seconds(relay.pid)
        async with Peak(relay.pid) as peak:
            drained = await world.by_stream([relay], timers)
        server, own = await world.server.cpu_seconds() - server, cpu_seconds(relay.pid) - own
    costs = {RELAY: own, SERVER: server, APPLICATION: drained.cpu}
    note = f"{timers:,} timers"
    return [
        *(Row(MEASURE, name, seconds / timers * 1e6, "µs", note=note) for name, seconds in costs.items()),
        Row(MEASURE, RSS_IDLE, idle_mib, "MiB"),
        Row(MEASURE, RSS_PEAK, peak.mib, "MiB", note=note),
    ]


async def idle(world: World, topics: int) -> list[Row]:
    """What streams for so many topics cost while nothing is due."""
    async with world.relay() as relay:
        command = application("idle_streams", topics=topics, target=relay.target)
        async with running("idle application", command) as child:
            await child.hear()
            await asyncio.sleep(SETTLED)
            calls, spent, began = await sample(world, relay.pid)
            await asyncio.sleep(world.plan.idle_time)
            calls_then, spent_then, ended = await sample(world, relay.pid)
    seconds = ended - began
    sent, run = scripts.sent(calls_then, calls), scripts.ran(calls_then, calls)
    return [
        Row(MEASURE, commands(topics), sent / seconds, "commands/s", note=f"over {seconds:.0f} s"),
        Row(MEASURE, ran(topics), run / seconds, "commands/s"),
        Row(MEASURE, share(topics), (spent_then - spent) / seconds * 100, "% of a core"),
    ]


async def sample(world: World, pid: int) -> tuple[dict[str, int], float, float]:
    """Commands and CPU so far, and now."""
    return await world.server.calls(), cpu_seconds(pid), time.perf_counter()


async def starts(world: World) -> list[Row]:
    """How long a start takes; the fastest of a few, since files may have to be read first."""
    seconds = [await start(world) for _ in range(world.plan.starts)]
    return [Row(MEASURE, START, min(seconds), "s", note=f"the fastest of {len(seconds)} in each run")]


async def start(world: World) -> float:
    """Seconds from exec until grpc.health.v1 says SERVING."""
    target = f"127.0.0.1:{free_port()}"
    began = time.perf_counter()
    async with running("relay", serve_command(), env=world.environment(target, {})):
        await listening(target)
        async with grpc.aio.insecure_channel(target) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            while (await stub.Check(request)).status != health_pb2.HealthCheckResponse.SERVING:
                await asyncio.sleep(0.002)
        return time.perf_counter() - began
