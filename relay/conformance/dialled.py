"""The relay that dials: it calls the client's `TimerHandler` over real gRPC, and watches its health."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc

from relay.conformance.observed import Observed
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb

_SERVICE = pb.DESCRIPTOR.services_by_name["TimerHandler"].full_name
_RECEIPT = "relay-receipt"
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a second channel makes a connection of its own
    ("grpc.enable_http_proxy", 0),
]
_LIFE = 600.0
"""Seconds until the deadline of a call, as a relay's `delivery_timeout`."""
_PAUSE = 0.05
"""Seconds between two tries to watch the client's health."""
_LOST = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
"""How a call ends that was cut off, so that it says nothing of its timer."""
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class CallOfClient:
    """A call, and what the client has answered of its deliveries.

    All that it answers is held to the rules of push that are no single scene's.
    """

    def __init__(self, watched: Observed, deliveries: Sequence[delivery_pb.Delivery]) -> None:
        self._watched = watched
        self._names = {each.token: each.timer_id for each in deliveries}
        self.received: list[bytes] = []
        self.refused: list[bytes] = []
        """What the client has no handler for, or takes no more."""
        self.outcomes: dict[bytes, delivery_pb.Settlement] = {}
        self.messages = 0
        self.code: grpc.StatusCode | None = None
        """The status, once the call has ended."""
        self.details = ""

    @property
    def ended(self) -> str:
        """How the call has ended; empty as long as it has not."""
        return "" if self.code is None else f"the call ended with {self.code.name} ({self.details})"

    @property
    def answered(self) -> bool:
        """Whether all that it carries has an outcome or is refused."""
        return self._names.keys() <= {*self.outcomes, *self.refused}

    async def single(self, under_way: Any) -> None:
        """Follow a call of `Deliver`."""
        (token,) = self._names
        if _RECEIPT in {key for key, _ in await under_way.initial_metadata()}:
            self._receive(token)
        async for said in under_way:
            answer = pb.TimerHandlerDeliverResponse.FromString(said)
            fields = {field.name: value for field, value in answer.ListFields()}
            self._settle(
                delivery_pb.Settlement(**{"token": token, "outcome": delivery_pb.OUTCOME_ACK, **fields})
            )

    async def batch(self, under_way: Any) -> None:
        """Follow a call of `DeliverBatch`."""
        async for message in under_way:
            said = pb.TimerHandlerDeliverBatchResponse.FromString(message)
            self.messages += 1
            for token in said.received:
                self._receive(token)
            for each in said.settlements:
                self._settle(each)
            for token in said.refused:
                self._known(token, "a refusal")
                self.refused.append(token)
            self._watched.changed()
        if not self.answered:
            self._watched.object_to("ended the call of a batch with OK before the outcomes of its deliveries")

    async def follow(self, under_way: Any, listening: Awaitable[None]) -> None:
        """Take what is answered until the end, and note its status."""
        try:
            await listening
        except grpc.aio.AioRpcError:
            pass
        except DecodeError:
            self._watched.object_to("an answer can't be read")
        finally:
            under_way.cancel()  # it has no effect on a call that has ended
        self.code, self.details = await under_way.code(), await under_way.details() or ""
        self._watched.changed()

    def means(self) -> None:
        """Take the status of `Deliver` for the outcome that it means."""
        (token,) = self._names
        if token in self.outcomes or self.code in _LOST:
            return
        if self.code is grpc.StatusCode.UNIMPLEMENTED:
            self.refused.append(token)
            return
        refused = self.code is grpc.StatusCode.INVALID_ARGUMENT
        outcome = delivery_pb.OUTCOME_REJECT if refused else delivery_pb.OUTCOME_NACK
        self.outcomes[token] = delivery_pb.Settlement(token=token, outcome=outcome, reason=self.details)

    def _receive(self, token: bytes) -> None:
        self._known(token, "a receipt")
        self.received.append(token)
        self._watched.changed()

    def _settle(self, said: delivery_pb.Settlement) -> None:
        name = self._known(said.token, "an outcome")
        ends = (
            delivery_pb.OUTCOME_ACK,
            delivery_pb.OUTCOME_NACK,
            delivery_pb.OUTCOME_REJECT,
            delivery_pb.OUTCOME_RESCHEDULE,
        )
        if said.outcome not in ends:
            self._watched.object_to(f"{name}: the outcome {said.outcome} came, which ends no pushed delivery")
        if said.token in self.outcomes:
            self._watched.object_to(f"{name} was settled twice")
        self.outcomes[said.token] = said

    def _known(self, token: bytes, what: str) -> str:
        name = self._names.get(token)
        if name is None:
            self._watched.object_to(f"{what} came with a token that belongs to no delivery of its call")
        return name or "an unknown delivery"


class DialledClient:  # see 0137
    """The client's server, and the way to it. Its port of 127.0.0.1 is kept free for it until `close`."""

    def __init__(self, watched: Observed) -> None:
        self._watched = watched
        # Bound, and not listening: nobody else is given the port, and the client can listen there, since
        # servers set SO_REUSEADDR, too.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._place.getsockname()[1]}"
        """Where the client has to listen."""
        self._channel: grpc.aio.Channel | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.has_health: bool | None = None
        """Whether the client has `grpc.health.v1`; None before the first answer on this connection."""
        self.health: list[int] = []
        """What its health service has said on this connection."""

    @property
    def serving(self) -> bool:
        """Whether the client may be called."""
        return self.has_health is False or self.health[-1:] == [_SERVING]

    @property
    def said_not_serving(self) -> bool:
        """Whether it has said that it takes no more."""
        return _NOT_SERVING in self.health

    def dial(self) -> None:
        """Connect, as soon as the client listens."""
        self.has_health, self.health = None, []
        self._channel = grpc.aio.insecure_channel(self.address, options=_OPTIONS)
        self._start(self._watch(self._channel))

    def deliver(self, one: delivery_pb.Delivery, life: float = _LIFE) -> CallOfClient:
        """Call `Deliver`; `life` is the seconds until its deadline."""
        request = pb.TimerHandlerDeliverRequest(delivery=one)
        return self.deliver_bytes(one, request.SerializeToString(), life)

    def deliver_bytes(self, one: delivery_pb.Delivery, request: bytes, life: float = _LIFE) -> CallOfClient:
        """Call `Deliver` with a request that has what no client knows."""
        call = CallOfClient(self._watched, [one])

        async def follow() -> None:
            under_way = self._method("Deliver")(request, timeout=life, metadata=_trace(one))
            await call.follow(under_way, call.single(under_way))
            call.means()
            self._watched.changed()

        self._start(follow())
        return call

    def deliver_batch(self, *many: delivery_pb.Delivery) -> CallOfClient:
        """Call `DeliverBatch`."""
        call = CallOfClient(self._watched, many)
        request = pb.TimerHandlerDeliverBatchRequest(deliveries=many).SerializeToString()

        async def follow() -> None:
            under_way = self._method("DeliverBatch")(request, timeout=_LIFE)
            await call.follow(under_way, call.batch(under_way))

        self._start(follow())
        return call

    async def hang_up(self) -> None:
        """Break the connection, with all calls that are under way."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    async def close(self) -> None:
        """Hang up, and give the port back."""
        await self.hang_up()
        self._place.close()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _method(self, name: str) -> Any:
        # As a stream of one answer where it is one: only then does gRPC give the initial metadata before the
        # end.
        assert self._channel is not None
        return self._channel.unary_stream(f"/{_SERVICE}/{name}")

    async def _watch(self, channel: grpc.aio.Channel) -> None:
        """Follow the health of the server as a whole on each connection, as gRPC's own client does."""
        stub: Any = health_pb2_grpc.HealthStub(channel)
        while True:
            watch: Any = stub.Watch(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            # A server that stops says so to its connections, and waits for the end of their calls: this one
            # has to be ended by its client.
            either = [asyncio.create_task(each) for each in (self._hear(watch), _left(channel))]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                watch.cancel()
                for each in either:
                    each.cancel()
                await asyncio.gather(*either, return_exceptions=True)
            if await watch.code() is grpc.StatusCode.UNIMPLEMENTED:
                self.has_health = False
                self._watched.changed()
                return
            await asyncio.sleep(_PAUSE)

    async def _hear(self, watch: Any) -> None:
        with suppress(grpc.aio.AioRpcError):
            async for said in watch:
                self.has_health = True
                self.health.append(said.status)
                self._watched.changed()


async def _left(channel: grpc.aio.Channel) -> None:
    """Wait until the channel has a connection, and until it has left it."""
    ready = grpc.ChannelConnectivity.READY
    while (state := channel.get_state()) is not ready:
        await channel.wait_for_state_change(state)
    await channel.wait_for_state_change(ready)


def _trace(one: delivery_pb.Delivery) -> Sequence[tuple[str, str]]:
    """The trace context as metadata, as a relay sends it."""
    return [(name, one.headers[name]) for name in ("traceparent", "tracestate") if name in one.headers]
