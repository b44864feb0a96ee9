"""An application that serves `TimerHandler`, and a wire to it that the test can cut."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from relay.rpc.push import push
from relay.telemetry.metrics.catalogue import UNREADABLE
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as pb
from relay.v1 import timer_handler_pb2_grpc as base
from tests.worlds.engine.served import Served

Context = Any
Act = Callable[[delivery.Delivery, Context], Awaitable[pb.TimerHandlerDeliverResponse | None]]

RECEIPT = (("relay-receipt", "1"),)


def answer(outcome: delivery.Outcome = delivery.OUTCOME_ACK, **fields: Any) -> pb.TimerHandlerDeliverResponse:
    return pb.TimerHandlerDeliverResponse(outcome=outcome, **fields)


@dataclass(eq=False)
class Handler(base.TimerHandlerServicer):
    """Does what `act` says with each timer, and keeps its own count of all it was given."""

    act: Act | None = None
    receipts: bool = False
    seen: list[delivery.Delivery] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    time_left: list[float] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    """Calls that came, whether or not their handler has started."""
    starts: Counter[str] = field(default_factory=Counter)
    active: int = 0
    peak: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Calls wait here before their handler starts; open unless the test closes it."""

    def __post_init__(self) -> None:
        self.gate.set()

    async def Deliver(
        self, request: pb.TimerHandlerDeliverRequest, context: Context
    ) -> pb.TimerHandlerDeliverResponse:
        """One timer."""
        self.reached[request.delivery.timer_id] += 1
        await self.gate.wait()
        if self.receipts:
            await context.send_initial_metadata(RECEIPT)
        self.seen.append(request.delivery)
        self.metadata.append(dict(context.invocation_metadata()))
        self.time_left.append(context.time_remaining())
        self.starts[request.delivery.timer_id] += 1
        self.active += 1
        self.peak = max(self.peak, self.active)
        try:
            done = await self.act(request.delivery, context) if self.act is not None else None
        finally:
            self.active -= 1
        return done or pb.TimerHandlerDeliverResponse()

    def attempts(self, timer_id: str = "a") -> list[int]:
        """The attempts that were reported to it, in their order."""
        return [each.attempt for each in self.seen if each.timer_id == timer_id]


@dataclass(eq=False)
class Batcher(Handler):
    """One that takes batches, too: does with each timer what it would do with a call."""

    batches: list[list[str]] = field(default_factory=list)
    """The timers of each call."""
    starts_now: Callable[[delivery.Delivery], Awaitable[bool]] | None = None
    """Whether there is a place for it; else it waits in the application, and is not even started."""

    async def DeliverBatch(self, request: pb.TimerHandlerDeliverBatchRequest, context: Context) -> None:
        """Many timers."""
        self.batches.append([each.timer_id for each in request.deliveries])
        writing = asyncio.Lock()

        async def write(**said: Any) -> None:
            async with writing:
                await context.write(pb.TimerHandlerDeliverBatchResponse(**said))

        async def one(each: delivery.Delivery) -> None:
            call = InBatch(context, each.token, write)
            if self.starts_now is not None and not await self.starts_now(each):
                await anyio.sleep_forever()
            try:
                done = await self.Deliver(pb.TimerHandlerDeliverRequest(delivery=each), call)
            except Refused:
                return
            said = {descriptor.name: value for descriptor, value in done.ListFields()}
            outcome = said.pop("outcome", delivery.OUTCOME_ACK)
            await write(settlements=[delivery.Settlement(token=each.token, outcome=outcome, **said)])

        async with asyncio.TaskGroup() as tasks:
            for each in request.deliveries:
                tasks.create_task(one(each))


class Refused(Exception):
    """No handler will have a timer of a batch."""


@dataclass(eq=False)
class InBatch:
    """The context of a call of `Deliver`, for one of a batch; UNIMPLEMENTED becomes a refusal."""

    context: Context
    token: bytes
    write: Callable[..., Awaitable[None]]

    async def send_initial_metadata(self, _: object) -> None:
        """A receipt."""
        await self.write(received=[self.token])

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """Of all that is still open in the batch."""
        if code is grpc.StatusCode.UNIMPLEMENTED:
            await self.write(refused=[self.token])
            raise Refused
        await self.context.abort(code, details)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)


@dataclass(eq=False)
class Server:
    """A running application. `health` is None where it has no such service."""

    address: str
    health: health.aio.HealthServicer | None
    _server: grpc.aio.Server

    async def say(self, *, serving: bool) -> None:
        """What grpc.health.v1 answers from now on."""
        assert self.health is not None
        status = health_pb2.HealthCheckResponse
        await self.health.set("", status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace: float = 0.0) -> None:
        await self._server.stop(grace)


async def serve(
    handler: Handler | None,
    listen: str = "127.0.0.1:0",
    *,
    healthy: bool | None = None,
    interceptors: Sequence[Any] = (),
) -> Server:
    """Start an application; `healthy` is None: without a health service. No handler: nothing else."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)], interceptors=interceptors)
    if handler is not None:
        base.add_TimerHandlerServicer_to_server(handler, server)
    servicer = None
    if healthy is not None:
        servicer = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(listen)
    await server.start()
    address = listen if listen.startswith("unix:") else f"127.0.0.1:{port}"
    started = Server(address, servicer, server)
    if healthy is not None:
        await started.say(serving=healthy)
    return started


class Wire:
    """A TCP relay of bytes, to be cut: as if the process at its end had been killed."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.connections = 0
        self.address = ""

    async def lay(self) -> None:
        """Take connections, on the same port as before if there was one."""
        port = int(self.address.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        assert self._server is not None
        self._server.close()
        self.snap()

    def snap(self) -> None:
        """Break all connections; new ones are taken at once."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._open |= ends
        with suppress(OSError):
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        self._open -= ends


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65_536):
            sink.write(data)
            await sink.drain()
    finally:
        sink.transport.abort()


@asynccontextmanager
async def pushing(relay: Served, target: str, *topics: str, **policy: Any) -> AsyncIterator[None]:
    """Push these topics (`t` if none is named) to the target, as the daemon does."""
    for topic in topics or ("t",):
        relay.tune(topic, target=target, **policy)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(push, relay.engine, partial(relay.counts.count, UNREADABLE))
        yield
        tasks.cancel_scope.cancel()
