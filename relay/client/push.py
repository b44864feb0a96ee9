"""The application's side of push: it listens, and the relay dials it (`TimerHandler`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from relay.client import outcomes
from relay.client.errors import UsageError
from relay.client.handlers import Handlers, Registration
from relay.client.handling import Handling
from relay.client.health import Health
from relay.client.lease import Lease
from relay.client.signals import stop_signals
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_handler_pb2 as pb
from relay.v1 import timer_handler_pb2_grpc as base

_log = logging.getLogger("relay.client")
_SERVICE = "relay.v1.TimerHandler"
RECEIPT = (("relay-receipt", "1"),)
"""Initial metadata, sent as a handler starts: from here on the attempt counts."""
_END_PATIENCE = 5.0
"""Seconds for handlers that were cancelled to end."""
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

    The deadline of a call is the relay's `delivery_timeout`. When it passes, or the connection
    breaks, an async handler is cancelled; a plain one runs on in its thread and finds
    `delivery.lost`. `delivery.extend()` raises `UsageError`: a call has all of `delivery_timeout`.
    """

    def __init__(self, *, shutdown_timeout: float = 30.0) -> None:
        super().__init__()
        self._shutdown_timeout = shutdown_timeout
        self._servicer: _Servicer | None = None
        self._stop = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the handlers on a server of your own, beside your own services and health.

        At the end call `aclose`, then `server.stop`. Raises `UsageError` if they are served.
        """
        if self._servicer is not None:
            raise UsageError("the handlers are served already")
        self._stop = asyncio.Event()
        self._servicer = _Servicer([_Place(each) for each in self.registrations.values()])
        base.add_TimerHandlerServicer_to_server(self._servicer, server)

    async def aclose(self) -> None:
        """Take no more calls; running handlers have `shutdown_timeout` to end, then are cancelled.

        Closing twice is harmless. Not for use in a handler: call `stop` there.
        """
        servicer = self._servicer
        if servicer is not None:
            await servicer.close(self._shutdown_timeout)
            self._servicer = None

    @contextlib.asynccontextmanager
    async def serve(self, listen: str, *, socket_mode: int = 0o660) -> AsyncIterator[int]:
        """Serve on `host:port` or `unix:/path` inside the block; gives the port (port 0: a free one).

        `grpc.health.v1` is served, too. Leaving the block closes in order: health says
        NOT_SERVING, no new calls, running handlers end and answer. Raises `OSError` if it can't
        listen there. `socket_mode` is for a Unix socket.
        """
        server = grpc.aio.server(options=_OPTIONS)
        health = Health(_SERVICE)
        health.add_to(server)
        self.add_to(server)
        try:
            port = _listen(server, listen, socket_mode)
            await server.start()
            _log.info("handlers are served: listen=%s topics=%d", listen, len(self.registrations))
            yield port
        finally:
            # The server stops last: what it cuts off reads CANCELLED, and nobody could tell whether
            # a handler had it. Until then calls are refused in words.
            health.stop()
            await self.aclose()
            health.end()
            await server.stop(_END_PATIENCE)

    async def run(self, listen: str, *, socket_mode: int = 0o660) -> None:
        """Serve as `serve` does, until SIGTERM, SIGINT or `stop`."""
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


class _Place:
    """One topic's handler, and room for as many calls as it may have at a time."""

    def __init__(self, registration: Registration) -> None:
        self.topic = registration.topic
        self.is_async = registration.is_async
        self.handling = Handling(registration)
        self.room = asyncio.Semaphore(registration.concurrency)


class _Call:
    """A call, as its lease sees it: the outcome is its answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[pb.TimerHandlerDeliverResponse | None] = (
            asyncio.get_running_loop().create_future()
        )
        """None: the handler ended without an outcome."""

    @property
    def closed(self) -> bool:
        """Whether outcomes are void by now."""
        return self.answer.done()

    def settle(self, token: bytes, settlement: delivery_pb.Settlement) -> _Call | None:
        """Answer; None if nobody waits for it any more."""
        if settlement is outcomes.EXTEND:
            raise UsageError("a pushed delivery can't be extended: its call has delivery_timeout, all of it")
        if self.closed:
            return None
        said = {field.name: value for field, value in settlement.ListFields()}
        self.answer.set_result(pb.TimerHandlerDeliverResponse(**said))
        return self

    def finished(self, lease: Lease) -> None:
        """Nothing: whoever runs the handler knows."""

    async def wait(self) -> bool:
        """The answer leaves as soon as the loop turns."""
        return True


class _Servicer(base.TimerHandlerServicer):
    """See `proto/relay/v1/timer_handler.proto`."""

    def __init__(self, places: list[_Place]) -> None:
        self._places = {place.topic: place for place in places}
        self._running: set[asyncio.Task[None]] = set()
        self._closing = False

    async def Deliver(  # noqa: N802 (gRPC methods carry their names from the proto)
        self, request: pb.TimerHandlerDeliverRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.TimerHandlerDeliverResponse:
        """Call the handler; its outcome is the answer."""
        message = request.delivery
        place = self._places.get(message.topic)
        if place is None:
            # Released, no attempt: an application that is rolled out may learn the topic later.
            _log.warning("there is no handler: topic=%s timer_id=%s", message.topic, message.timer_id)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"topic {message.topic!r} has no handler here")
            raise AssertionError("abort returned")
        call = _Call()
        lease = Lease(message, call)
        handling = await self._start(place, lease, call, context)
        try:
            answer = await call.answer
        except asyncio.CancelledError:
            # The deadline passed, or the connection broke. A thread can't be cancelled: it keeps
            # its place, so that no receipt is sent for a handler that would only queue for it.
            if place.is_async:
                handling.cancel()
            _log.warning("call ended before its handler: %s", lease)
            raise
        if answer is None:
            await context.abort(grpc.StatusCode.ABORTED, "the application stopped before its handler ended")
            raise AssertionError("abort returned")
        return answer

    async def close(self, timeout: float) -> None:
        """Refuse what is not running, wait for what is, cancel what takes too long."""
        self._closing = True
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=timeout)
            for task in late:
                task.cancel()
            if late:
                _log.warning("%d handlers did not end within %g s and were cancelled", len(late), timeout)
                await asyncio.wait(late, timeout=_END_PATIENCE)
        for place in self._places.values():
            place.handling.close()

    async def _start(
        self, place: _Place, lease: Lease, call: _Call, context: grpc.aio.ServicerContext[Any, Any]
    ) -> asyncio.Task[None]:
        """Wait for room, then start the handler; from then on `close` waits for it."""
        await place.room.acquire()
        if self._closing:
            place.room.release()
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "the application stops")
        task = asyncio.create_task(_handle(place, lease, call, context))
        self._running.add(task)
        task.add_done_callback(partial(self._ended, call))
        return task

    def _ended(self, call: _Call, task: asyncio.Task[None]) -> None:
        """A handler that was cut off, or died of a BaseException, gives no outcome."""
        self._running.discard(task)
        if (task.cancelled() or task.exception() is not None) and not call.closed:
            call.answer.set_result(None)


async def _handle(
    place: _Place, lease: Lease, call: _Call, context: grpc.aio.ServicerContext[Any, Any]
) -> None:
    """Send the receipt, and only then call the handler."""
    try:
        await context.send_initial_metadata(RECEIPT)
        if not call.closed:  # else the call ended meanwhile, and a thread could not be cancelled
            await place.handling.handle(lease)
    finally:
        place.room.release()
    if not call.closed:
        await asyncio.wait([call.answer])  # under MANUAL somebody else may settle it yet


def _listen(server: grpc.aio.Server, listen: str, socket_mode: int) -> int:
    try:
        port: int = server.add_insecure_port(listen)
    except RuntimeError:
        raise OSError(f"can't listen on {listen}; is something else there already?") from None
    if listen.startswith("unix:"):
        Path(listen.removeprefix("unix:")).chmod(socket_mode)  # gRPC makes sockets with mode 0755
    return port
