"""What a timer of 200 bytes costs the servers and the relay on its whole way, from `ScheduleColumns` to its
acknowledgement, on a plain server and on Clusters of one node, two and three; and how many commands come to a
node that has not what they are about.

One relay and one application, each fresh for each figure. The timers are due at once, in a topic that is
paused until all are stored. CPU is that of all nodes together, as they tell it themselves. A topic of several
partitions has smaller calls, so it is measured on the plain server, too.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial

from bench.harness.processes import application, ask, cpu_seconds
from bench.harness.rows import Row
from bench.harness.server import Server, cluster
from bench.harness.timers import TOPIC
from bench.harness.world import World, client

MEASURE = "cluster"
NODES = (1, 2, 3)
PARTITIONS = 8
"""More than twice as many as nodes."""

ALONE = "a plain server, 1 partition"
PLAIN = f"a plain server, {PARTITIONS} partitions"


def nodes(count: int) -> str:
    """A Cluster in words."""
    return f"{count} {'node' if count == 1 else 'nodes'}, {PARTITIONS} partitions"


def servers(where: str) -> str:
    """The row of the servers' CPU."""
    return f"CPU of all servers, a timer: {where}"


def relay(where: str) -> str:
    """The row of the relay's CPU."""
    return f"CPU of relay, a timer: {where}"


def redirects(where: str) -> str:
    """The row of commands that came to a wrong node."""
    return f"commands to a wrong node: {where}"


@dataclass(frozen=True)
class Side:
    """A server or a Cluster, and how many partitions the topic has there."""

    name: str
    server: Server
    partitions: int


async def measure(world: World) -> AsyncIterator[Row]:
    """All sides in turns, on Clusters that are started once."""
    timers = world.plan.cluster
    of_relay: dict[str, list[float]] = defaultdict(list)
    sent_on = Counter[str]()

    async def spent(side: Side) -> float:
        before = await side.server.redirects()
        of_servers, own = await through(replace(world, server=side.server), side.partitions)
        sent_on[side.name] += await side.server.redirects() - before
        of_relay[side.name].append(own)
        return of_servers

    async with AsyncExitStack() as stack:
        sides = [Side(ALONE, world.server, 1), Side(PLAIN, world.server, PARTITIONS)]
        clusters = [
            Side(nodes(count), await stack.enter_async_context(cluster(count)), PARTITIONS) for count in NODES
        ]
        sides += clusters
        figures = await world.in_turns(*(partial(spent, side) for side in sides))
    for side, figure in zip(sides, figures, strict=True):
        yield Row(MEASURE, servers(side.name), figure, "µs", note=f"{timers:,} timers")
    for side in sides:
        yield Row(MEASURE, relay(side.name), statistics.median(of_relay[side.name]), "µs")
    for side in clusters:
        yield Row(MEASURE, redirects(side.name), sent_on[side.name], "commands")


async def through(world: World, partitions: int) -> tuple[float, float]:
    """Microseconds of CPU for each timer that goes its whole way: of the servers, and of the relay."""
    timers = world.plan.cluster
    env = {f"RELAY_TOPICS__{TOPIC}__PARTITIONS": str(partitions)}
    layouts = partitions if partitions > 1 else 0  # each partition keeps that of the topic
    async with world.relay(**env) as running, client(running) as producer:
        await producer.topics.pause(TOPIC)
        async with world.streaming([running], timers) as child:
            server, own = await world.server.cpu_seconds(), cpu_seconds(running.pid)
            command = application(
                "relay_scheduler",
                target=running.target,
                timers=timers,
                payload=world.plan.payload,
                delay=0,
            )
            await ask(command)
            await producer.topics.resume(TOPIC)
            await world.drained(child, timers, layouts)
            server, own = await world.server.cpu_seconds() - server, cpu_seconds(running.pid) - own
    await world.server.clear()
    return server / timers * 1e6, own / timers * 1e6
