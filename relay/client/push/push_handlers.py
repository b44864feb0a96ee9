"""The application's side of push: it listens, and the relay dials it and calls `TimerHandler`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio

from relay.client.connection_log import shown
from relay.client.errors import InvalidArgument, UsageError
from relay.client.handling.handlers import Handlers, Registration
from relay.client.push.health import HealthService
from relay.client.push.push_calls import BatchCall, Context, SingleCall
from relay.client.push.push_places import PushCall, PushPlace
from relay.client.signals import stop_signals
from relay.client.typed_topics import HandledTopic
from relay.client.unreadable import reader, refuse_unreadable
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb
from relay.v1 import timer_handler_pb2_grpc as base

_log = logging.getLogger("relay.client")
_SERVICE = "relay.v1.TimerHandler"
_WRONG = grpc.StatusCode.INVALID_ARGUMENT
_ONE, _MANY = pb.TimerHandlerDeliverRequest, pb.TimerHandlerDeliverBatchRequest
_C = TypeVar("_C", bound=PushCall)
_T = TypeVar("_T")
_END_PATIENCE = 5.0
"""Seconds that cancelled handlers have to end."""
_LAST_WORDS = 1.0
"""Seconds that their calls have to end after that."""
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # the relay bounds payloads, not gRPC's 4 MiB
    ("grpc.so_reuseport", 0),  # two applications on one port would share the calls by chance
]


class PushHandlers(Handlers):
    """Handlers that the relay calls, for topics whose `delivery.mode` is `push`.

    `shutdown_timeout` (seconds) bounds how long running handlers may take to end at the close.

    >>> push = PushHandlers()
    >>> @push.on("invoices", concurrency=50)
    ... async def remind(delivery):
    ...     print(delivery.timer_id)
    >>> async def main():
    ...     await push.run("127.0.0.1:7460")    # until SIGTERM or SIGINT

    The deadline of a call is the relay's `delivery_timeout`. When it passes, or when the connection
    breaks, an async handler is cancelled; a plain one runs on in its thread, where `delivery.lost` is
    true. `delivery.extend()` raises `UsageError`, since a call has all of `delivery_timeout`.
    """

    def __init__(self, *, shutdown_timeout: float = 30.0) -> None:
        super().__init__()
        self._shutdown_timeout = shutdown_timeout
        self._servicer: _Servicer | None = None
        self._stop = asyncio.Event()

    def topic(self, name: str, of: type[_T], *, version: int = 1) -> HandledTopic[_T]:
        """Name a topic whose payloads have a type, to register its handler; see `RelayClient.topic`."""
        return HandledTopic(self, name, of, version)

    def register(self, registration: Registration) -> None:
        """See `Handlers.register`. Raises `InvalidArgument` for what the relay's own settings say of a topic
        that is pushed."""
        for name in ("max_attempts", "backoff"):
            if getattr(registration, name) is not None:
                raise InvalidArgument(
                    f"{name} has no effect where the relay dials: set retry in the relay's settings of topic "
                    f"{registration.topic!r}",
                    field=name,
                )
        super().register(registration)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the handlers on a server of your own, beside your own services and health.

        At the end call `aclose`, then `server.stop`. Raises `UsageError` if they are served already.
        """
        if self._servicer is not None:
            raise UsageError("the handlers are served already")
        self._stop = asyncio.Event()
        self._servicer = _Servicer([PushPlace(each) for each in self.registrations.values()])
        self._servicer.add_to(server)

    async def aclose(self) -> None:  # see 0026
        """Take no more calls. Running handlers have `shutdown_timeout` to end, and are then cancelled.

        Closing twice is harmless. A handler must not call this: call `stop` there.
        """
        servicer = self._servicer
        if servicer is not None:
            await servicer.close(self._shutdown_timeout)
            self._servicer = None

    @contextlib.asynccontextmanager
    async def serve(self, listen: str, *, socket_mode: int = 0o660) -> AsyncIterator[int]:
        """Serve on `host:port` or `unix:/path` inside the block. Yields the port; port 0 takes a free one.

        `grpc.health.v1` is served, too. Leaving the block closes in order: health says
        NOT_SERVING, new calls are refused, running handlers end and answer. `socket_mode` is the mode of a
        Unix socket. Raises `OSError` if it can't listen there.
        """
        server = grpc.aio.server(options=_OPTIONS)
        health = HealthService(_SERVICE, watched=_tell_relay, left=_tell_lost)
        health.add_to(server)
        self.add_to(server)
        try:
            port = _listen(server, listen, socket_mode)
            await server.start()
            topics = ", ".join(sorted(self.registrations))
            _log.info("handlers are served at %s: topics %s; a relay dials them", listen, topics)
            yield port
        finally:
            # The server stops last. A call that it cuts off ends as CANCELLED, and the relay can't tell
            # whether a handler had it; until then calls are refused with a reason.
            health.stop()
            await self.aclose()
            health.end()
            await server.stop(_END_PATIENCE)

    async def run(self, listen: str, *, socket_mode: int = 0o660) -> None:
        """Serve as `serve` does, until SIGTERM, SIGINT or `stop`.

        While it runs, the logger `relay.client` writes to standard error when relays connect and are lost,
        and what is wrong, unless the application has configured logging or does so later.
        """
        with shown():
            await self._serve(listen, socket_mode)

    async def _serve(self, listen: str, socket_mode: int) -> None:
        async with self.serve(listen, socket_mode=socket_mode):
            with stop_signals(self._stop.set):
                await self._stop.wait()

    def stop(self) -> None:
        """Make `run` return, as a SIGTERM does; may be called in a handler."""
        self._stop.set()

    @property
    def begun(self) -> bool:
        """Whether the handlers are served."""
        return self._servicer is not None


def _tell_relay(peer: str) -> None:
    _log.info("a relay has connected: %s", peer)


def _tell_lost(peer: str) -> None:
    _log.warning("lost the relay %s: its connection ended; it dials again by itself", peer)


class _Servicer(base.TimerHandlerServicer):
    """See `proto/relay/v1/timer_handler.proto`."""

    def __init__(self, places: list[PushPlace]) -> None:
        self._places = {place.topic: place for place in places}
        self._calls: set[PushCall] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register the methods as generated code does, but with parsers that don't raise."""
        methods = {
            "Deliver": grpc.unary_unary_rpc_method_handler(
                self.Deliver,
                request_deserializer=reader(_ONE),
                response_serializer=pb.TimerHandlerDeliverResponse.SerializeToString,
            ),
            "DeliverBatch": grpc.unary_stream_rpc_method_handler(
                self.DeliverBatch,
                request_deserializer=reader(_MANY),
                response_serializer=pb.TimerHandlerDeliverBatchResponse.SerializeToString,
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))

    async def Deliver(  # noqa: N802 (gRPC methods carry their names from the proto)
        self, request: pb.TimerHandlerDeliverRequest, context: Context
    ) -> pb.TimerHandlerDeliverResponse:
        """Call the handler and answer with its outcome."""
        await refuse_unreadable(request, context, _ONE.DESCRIPTOR.full_name)
        message = request.delivery
        place = self._place(message)
        if place is None:
            # Released, no attempt: an application that is rolled out may learn the topic later.
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"topic {message.topic!r} has no handler here")
            raise AssertionError("abort returned")
        return await self._kept(SingleCall(place, message)).run(context)

    async def DeliverBatch(  # noqa: N802
        self, request: pb.TimerHandlerDeliverBatchRequest, context: Context
    ) -> None:
        """Call the handler with each delivery, and answer with receipts and outcomes."""
        await refuse_unreadable(request, context, _MANY.DESCRIPTOR.full_name)
        messages = request.deliveries
        tokens = {message.token for message in messages}
        if len(tokens) < len(messages):
            await context.abort(_WRONG, "deliveries: two have the same token; give each its own")
        if len({message.topic for message in messages}) > 1:
            await context.abort(_WRONG, "deliveries: are of several topics; make a call for each")
        if not messages:
            return
        place = self._place(messages[0])
        if place is None:
            await context.write(pb.TimerHandlerDeliverBatchResponse(refused=tokens))
        else:
            await self._kept(BatchCall(place, messages)).run(context)

    async def close(self, timeout: float) -> None:
        """Refuse deliveries that wait, let running handlers end, and cancel those that take too long."""
        for place in self._places.values():
            place.close()
        if self._calls:
            await asyncio.wait([call.over for call in self._calls], timeout=timeout)
        if self._calls:
            await self._cut_off(timeout)
        for place in self._places.values():
            place.handling.close()

    async def _cut_off(self, timeout: float) -> None:
        late = list(self._calls)
        count = sum(call.pending for call in late)
        _log.warning("%d handlers did not end within %g s and were cancelled", count, timeout)
        await asyncio.gather(*(place.workers.cancel(_END_PATIENCE) for place in self._places.values()))
        for call in late:
            for lease in list(call.open.values()):
                call.cut_off(lease)
        await asyncio.wait([call.over for call in late], timeout=_LAST_WORDS)

    def _place(self, message: delivery_pb.Delivery) -> PushPlace | None:
        place = self._places.get(message.topic)
        if place is None:
            _log.warning("there is no handler: topic=%s timer_id=%s", message.topic, message.timer_id)
        return place

    def _kept(self, call: _C) -> _C:
        """Make `close` wait for the call."""
        self._calls.add(call)
        call.over.add_done_callback(lambda _: self._calls.discard(call))
        return call


def _listen(server: grpc.aio.Server, listen: str, socket_mode: int) -> int:
    try:
        port: int = server.add_insecure_port(listen)
    except RuntimeError:
        raise OSError(f"can't listen on {listen}; is something else there already?") from None
    if listen.startswith("unix:"):
        Path(listen.removeprefix("unix:")).chmod(socket_mode)  # gRPC makes sockets with mode 0755
    return port
