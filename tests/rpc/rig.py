"""A served engine, and the few words that a bare stub needs to talk to it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from relay.api.call_time import CallTime
from relay.core.endpoints.listener_bounds import CallBounds
from relay.core.policy import Policies, RetryPolicy, TopicPolicy
from relay.core.ports import Stores, TimerStore, TopicStore, WakeHints
from relay.engine.delivery.session import Session
from relay.engine.engine import Engine
from relay.rpc import server as rpc
from relay.settings import Settings
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.telemetry.metrics.catalogue import UNREADABLE
from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import delivery_service_pb2_grpc, timer_service_pb2_grpc
from relay.v1.timer_pb2 import TimerSpec
from relay.v1.timer_service_pb2 import ScheduleBatchRequest
from tests.engine.doubles import Counts, GatedStore, Registered
from tests.servers import RunningServer
from tests.worlds.waiting import until

MAX_PAYLOAD = 1 << 20
PATIENCE = 120.0
"""Seconds after which something that must happen counts as not happening."""

LONG = CallTime(PATIENCE, lambda: 0.0)
"""For calls that end by themselves."""

LATER = RetryPolicy(initial=600.0)
"""For a test that looks at what one attempt left: its retry comes in ten minutes."""

ACK, NACK, REJECT, EXTEND = pb.OUTCOME_ACK, pb.OUTCOME_NACK, pb.OUTCOME_REJECT, pb.OUTCOME_EXTEND

M = TypeVar("M", bound=Message)


def memory() -> GatedStore:
    """A store in memory on the machine's clock."""
    return GatedStore(lambda: time.time_ns() // 1000)


def spec(timer_id: str = "a", *, topic: str = "t", **fields: Any) -> TimerSpec:
    """A timer that is due now, unless `due_time` or `delay` says otherwise."""
    if not {"due_time", "delay"} & fields.keys():
        fields["delay"] = Duration()
    return TimerSpec(topic=topic, timer_id=timer_id, **fields)


def at(seconds: int, nanos: int = 0) -> Timestamp:
    return Timestamp(seconds=seconds, nanos=nanos)


def settlement(token: bytes, outcome: pb.Outcome = ACK, **fields: Any) -> pb.Settlement:
    return pb.Settlement(token=token, outcome=outcome, **fields)


@dataclass(eq=False)
class Stream:
    """One `Deliver` call."""

    call: Any
    frames: list[pb.DeliverResponse] = field(default_factory=list)
    waiting: list[pb.Delivery] = field(default_factory=list)

    async def send(self, **message: Any) -> None:
        await self.call.write(pb.DeliverRequest(**message))

    async def open(
        self, *topics: str, max_outstanding: int = 100, slow_outstanding: int = 0, columns: bool = False
    ) -> Stream:
        """Say Open, and hear Opened."""
        await self.send(
            open=pb.Open(
                topics=topics or ("t",),
                max_outstanding=max_outstanding,
                slow_outstanding=slow_outstanding,
                columns=columns,
            )
        )
        response = await self.next()
        assert response.WhichOneof("message") == "opened"
        return self

    async def next(self) -> pb.DeliverResponse:
        """The next message; `EOFError` at the stream's orderly end."""
        with anyio.fail_after(PATIENCE):
            response = await self.call.read()
        if response is grpc.aio.EOF:
            assert await self.call.code() is grpc.StatusCode.OK, await self.call.details()
            raise EOFError
        assert isinstance(response, pb.DeliverResponse)
        self.frames.append(response)
        return response

    async def deliveries(self, count: int) -> list[pb.Delivery]:
        """The next deliveries, from as many frames as it takes; nothing else may come between."""
        while len(self.waiting) < count:
            response = await self.next()
            assert response.WhichOneof("message") == "deliveries", response
            self.waiting += response.deliveries.deliveries
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    async def delivery(self) -> pb.Delivery:
        (one,) = await self.deliveries(1)
        return one

    async def problems(self, count: int = 1) -> list[int]:
        """The reasons of the next problems."""
        found: list[int] = []
        while len(found) < count:
            response = await self.next()
            assert response.WhichOneof("message") == "problems", response
            found += [problem.reason for problem in response.problems.problems]
        return found

    async def settle(self, *settlements: pb.Settlement, received: Sequence[bytes] = ()) -> None:
        await self.send(settle=pb.Settle(received=received, settlements=settlements))

    async def ack(self, deliveries: Sequence[pb.Delivery]) -> None:
        await self.settle(*(settlement(delivery.token) for delivery in deliveries))

    async def finish(self) -> list[pb.DeliverResponse]:
        """End our side; the relay's last words, to an orderly end."""
        await self.call.done_writing()
        return await self.finish_reading()

    async def finish_reading(self) -> list[pb.DeliverResponse]:
        """The relay's last words, to an orderly end."""
        rest = []
        while True:
            try:
                rest.append(await self.next())
            except EOFError:
                return rest

    async def status(self) -> grpc.StatusCode:
        with anyio.fail_after(PATIENCE):
            code: grpc.StatusCode = await self.call.code()
        return code


@dataclass(eq=False)
class Relay:
    """A served engine and a channel to it."""

    engine: Engine
    store: GatedStore
    server: rpc.RpcServer
    channel: grpc.aio.Channel
    policies: dict[str, TopicPolicy]
    counts: Counts

    def __post_init__(self) -> None:
        self.timers = timer_service_pb2_grpc.TimerServiceStub(self.channel)
        self.delivery = delivery_service_pb2_grpc.DeliveryServiceStub(self.channel)

    def tune(self, topic: str = "t", **changes: Any) -> None:
        self.policies[topic] = replace(self.policies.get(topic, TopicPolicy()), **changes)

    def stream(self) -> Stream:
        return Stream(self.delivery.Deliver())

    async def attached(self, count: int = 1) -> set[Session]:
        """The sessions of so many streams. A stream is attached a moment after it has said Opened."""

        async def here() -> bool:
            return len(self.engine._dispatcher.sessions()) == count

        await until(here, f"{count} streams are attached")
        return self.engine._dispatcher.sessions()


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
) -> AsyncIterator[Relay]:
    """Serve an engine on a store, in memory if none is given; `closed`: to configured topics."""
    gated = memory()
    policies: dict[str, TopicPolicy] = {}
    counts = Counts()
    engine = Engine(
        Stores(store or gated, topics or cast("TopicStore", Registered()), hints or gated.inner, gated.ping),
        Policies(own=policies, closed=closed),
        counts,
    )
    engine._dispatcher._jitter = lambda: 1.0  # a back-off that is drawn may be next to nothing
    async with anyio.create_task_group() as tasks:
        await tasks.start(engine.run)
        server = await rpc.start(
            engine,
            listen=listen,
            socket_mode=0o660,
            bounds=bounds or Settings().grpc.bounds,
            call_time=call_time,
            unreadable=partial(counts.count, UNREADABLE),
        )
        async with grpc.aio.insecure_channel(server.address, options=list(channel_options)) as channel:
            yield Relay(engine, gated, server, channel, policies, counts)
            gated.open_all()
        await server.stop(0)
        with anyio.fail_after(PATIENCE):  # a stream that has ended leaves no session behind
            while engine._dispatcher.sessions():  # noqa: ASYNC110  (the relay gives no event for it)
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def on_server(server: RunningServer) -> AsyncIterator[Relay]:
    """Serve an engine on a real server."""
    async with (
        Server(server.url, timeout=60.0) as redis,
        anyio.create_task_group() as tasks,
    ):
        hints = RedisHints(redis)
        tasks.start_soon(hints.run)
        async with served(RedisStore(redis), hints, RedisTopics(redis)) as relay:
            yield relay
        tasks.cancel_scope.cancel()


async def refused(call: Any) -> tuple[grpc.StatusCode, str, list[Message]]:
    """Status code, message and details of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or "", unpacked(caught.value.trailing_metadata())


def unpacked(metadata: Any) -> list[Message]:
    """google.rpc details from trailing metadata."""
    found: list[Message] = []
    for key, value in metadata or ():
        if key != "grpc-status-details-bin":
            continue
        status = status_pb2.Status.FromString(value)
        for packed in status.details:
            for kind in (error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
                if packed.Is(kind.DESCRIPTOR):
                    detail = kind()
                    packed.Unpack(detail)
                    found.append(detail)
    return found


async def invalid_field(call: Any) -> str:
    """The field that an INVALID_ARGUMENT names, in its details and as the first word of its message."""
    code, message, details = await refused(call)
    assert code is grpc.StatusCode.INVALID_ARGUMENT, message
    return named_field(message, details)


def named_field(message: str, details: Sequence[Any]) -> str:
    (bad_request,) = details
    (violation,) = bad_request.field_violations
    assert message.startswith(f"{violation.field}: ")
    assert violation.description
    return str(violation.field)


async def put(relay: Relay, *names: str, topic: str = "t", **fields: Any) -> None:
    """Schedule these timers, all with the same fields."""
    timers = [spec(name, topic=topic, **fields) for name in names]
    results = (await relay.timers.ScheduleBatch(ScheduleBatchRequest(timers=timers))).results
    assert all(result.HasField("scheduled") for result in results)


async def gone(relay: Relay, *names: str, topic: str = "t") -> None:
    """Until these timers have left the store."""

    async def condition() -> bool:
        return [await relay.engine.get(topic, name) for name in names] == [None] * len(names)

    await until(condition, f"{names} are settled")
