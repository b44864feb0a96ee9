"""Many relays in one process, without gRPC: an engine each, with its own connections to Redis.

Argument: `url`, `topic`, `engines`. Says `{"ready": true}` when all of them wait for timers, then
`{"handled": …}` for each timer that one of them delivered and acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

import anyio
from anyio.abc import TaskGroup
from opentelemetry.sdk.metrics import MeterProvider

from bench.applications.tally import say
from relay.core.outcomes import ACKED
from relay.core.policy import Policies, TopicPolicy
from relay.core.ports import Stores
from relay.engine.engine import Engine
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.telemetry.metrics.instruments import Instruments

CAPACITY = 100
SETTLED = 2.0
"""Seconds for all to have subscribed to hints and polled once."""


async def main(url: str, topic: str, engines: int) -> None:
    """Until SIGTERM."""
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for _ in range(engines):
            server = await stack.enter_async_context(Server(url, timeout=30))
            hints = RedisHints(server)
            store, topics = RedisStore(server), RedisTopics(server)
            policies, instruments = Policies(TopicPolicy()), Instruments(MeterProvider())
            engine = Engine(Stores(store, topics, hints, server.places), policies, instruments)
            tasks.start_soon(hints.run)
            await start(engine, topic, tasks)
        await anyio.sleep(SETTLED)
        say(ready=True)


async def start(engine: Engine, topic: str, tasks: TaskGroup) -> None:
    """Run it, with a session that acknowledges everything."""
    await tasks.start(engine.run)
    session = engine.open([topic], CAPACITY)
    engine.attach(session)

    async def acknowledge() -> None:
        while outgoing := await session.next():
            for lease in outgoing.leases:
                engine.end(session, [lease.token], ACKED)
                say(handled=lease.timer.timer_id)

    tasks.start_soon(acknowledge)


if __name__ == "__main__":
    argument: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(main(**argument))
