"""An engine served over gRPC, in this process and on the machine's clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from typing import Any, Self, cast

import anyio
import grpc

from relay.api.access import Access
from relay.api.call_time import CallTime
from relay.core.endpoints.listener_bounds import CallBounds
from relay.core.partitions import Layout
from relay.core.ports import Moves, TimerStore, TopicStore, WakeHints
from relay.core.trust.usage import Bounds
from relay.engine.clock import SystemClock
from relay.engine.delivery.session import Session
from relay.engine.engine import Engine
from relay.rpc import server as rpc
from relay.rpc.binding import Binding
from relay.rpc.unreadable import Admit
from relay.settings import Settings
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.telemetry.metrics.catalogue import UNREADABLE
from relay.v1 import delivery_service_pb2_grpc, timer_service_pb2_grpc
from relay.v1.timer_service_pb2 import ScheduleBatchRequest
from tests.worlds.engine.stubs import Stream, spec
from tests.worlds.engine.world import Engines
from tests.worlds.waiting import PATIENCE, until

LONG = CallTime(PATIENCE, lambda: 0.0)
"""For calls that end by themselves."""


class Unmoved:
    """The `Moves` of topics that have one partition, which is what everybody asks for."""

    async def begin(self, topic: str, partitions: int, *, rate: int = 0) -> Layout:
        assert partitions == 1
        return Layout(topic)


class Served(Engines):
    """A served engine and a channel to it. `store` is the one in memory, which a real server leaves idle."""

    engine: Engine
    server: rpc.RpcServer
    channel: grpc.aio.Channel
    timers: Any
    delivery: Any

    def __init__(self) -> None:
        super().__init__(SystemClock(), lambda: time.time_ns() // 1000)
        self.moves = cast("Moves", Unmoved())

    def dial(self, channel: grpc.aio.Channel) -> Self:
        """This relay, called through that channel."""
        dialled = copy(self)
        dialled.channel = channel
        dialled.timers = timer_service_pb2_grpc.TimerServiceStub(channel)
        dialled.delivery = delivery_service_pb2_grpc.DeliveryServiceStub(channel)
        return dialled

    def stream(self, token: str = "") -> Stream:
        shown = (("authorization", f"Bearer {token}"),) if token else None
        return Stream(self.delivery.Deliver(metadata=shown))

    async def attached(self, count: int = 1) -> set[Session]:
        """The sessions of so many streams. A stream is attached a moment after it has said Opened."""
        sessions = self.engine._dispatcher.sessions
        await until(lambda: len(sessions()) == count, f"{count} streams are attached")
        return sessions()


@asynccontextmanager
async def served(
    store: TimerStore | None = None,
    hints: WakeHints | None = None,
    topics: TopicStore | None = None,
    *,
    listen: str = "127.0.0.1:0",
    channel_options: Sequence[tuple[str, Any]] = (),
    closed: bool = False,
    bounds: CallBounds | None = None,
    call_time: CallTime = LONG,
    bounds_of_callers: Bounds | None = None,
    access: Access | None = None,
    admit: Admit | None = None,
) -> AsyncIterator[Served]:
    """Serve an engine on a store, in memory if none is given; `closed`: to configured topics."""
    relay = Served()
    engine = relay.engine = relay.make(hints or relay.store.inner, store, topics, closed=closed)
    engine._dispatcher._jitter = lambda: 1.0  # a back-off that is drawn may be next to nothing
    async with anyio.create_task_group() as tasks:
        await tasks.start(engine.run)
        relay.server = await rpc.start(
            engine,
            binding=Binding(listen, 0o660),
            bounds=bounds or Settings().grpc.bounds,
            call_time=call_time,
            unreadable=partial(relay.counts.count, UNREADABLE),
            bounds_of_callers=bounds_of_callers,
            access=access,
            admit=admit,
        )
        options = list(channel_options)
        async with grpc.aio.insecure_channel(relay.server.address, options=options) as channel:
            yield relay.dial(channel)
            relay.store.open_all()
        await relay.server.stop(0)
        await until(lambda: not engine._dispatcher.sessions(), "a stream that has ended leaves no session")
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def on_server(url: str) -> AsyncIterator[Served]:
    """Serve an engine on a real server."""
    async with (
        Server(url, timeout=60.0) as redis,
        anyio.create_task_group() as tasks,
    ):
        hints = RedisHints(redis)
        tasks.start_soon(hints.run)
        async with served(RedisStore(redis), hints, RedisTopics(redis)) as relay:
            yield relay
        tasks.cancel_scope.cancel()


async def put(relay: Served, *names: str, topic: str = "t", **fields: Any) -> None:
    """Schedule these timers, all with the same fields."""
    timers = [spec(name, topic=topic, **fields) for name in names]
    results = (await relay.timers.ScheduleBatch(ScheduleBatchRequest(timers=timers))).results
    assert all(result.HasField("scheduled") for result in results)


async def gone(relay: Served, *names: str, topic: str = "t") -> None:
    """Until these timers have left the store."""

    async def condition() -> bool:
        return [await relay.engine.get(topic, name) for name in names] == [None] * len(names)

    await until(condition, f"{names} are settled")
