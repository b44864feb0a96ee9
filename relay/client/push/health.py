"""`grpc.health.v1` for an application that serves handlers, without the package of that name.

grpcio-health-checking needs a newer protobuf than the client does. The two messages are very
plain: on the wire a request is a string in field 1, and an answer is an enum in field 1. That
is what protobuf's own StringValue and Int32Value are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from relay.client.unreadable import reader, refuse_unreadable

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_SERVICE = "grpc.health.v1.Health"
_REQUEST = "grpc.health.v1.HealthCheckRequest"


def _ignore(_: str) -> None: ...


class HealthService:
    """Answers Check and Watch for the server as a whole ("") and for `services`.

    A relay watches for as long as it is connected. `watched` is called with a peer that begins to watch,
    `left` with one that went away before `stop`.
    """

    def __init__(
        self, *services: str, watched: Callable[[str], None] = _ignore, left: Callable[[str], None] = _ignore
    ) -> None:
        self._services = {"", *services}
        self._watched = watched
        self._left = left
        self._stopped = asyncio.Event()
        self._ended = asyncio.Event()

    def stop(self) -> None:
        """Answer NOT_SERVING from now on. Those who watch learn it at once."""
        self._stopped.set()

    def end(self) -> None:
        """End the calls of those who watch. Call it only when the server stops, since gRPC's clients repeat a
        Watch that ended at once."""
        self._ended.set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        codecs: dict[str, Any] = {
            "request_deserializer": reader(StringValue),
            "response_serializer": Int32Value.SerializeToString,
        }
        handlers = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, **codecs),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, **codecs),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))

    async def _check(self, request: StringValue, context: grpc.aio.ServicerContext[Any, Any]) -> Int32Value:
        await refuse_unreadable(request, context, _REQUEST)
        status = self._status(request.value)
        if status == SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {request.value!r} here")
        return Int32Value(value=status)

    async def _watch(
        self, request: StringValue, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Int32Value]:
        await refuse_unreadable(request, context, _REQUEST)
        self._watched(context.peer())
        try:
            yield Int32Value(value=self._status(request.value))
            await self._stopped.wait()
        finally:
            if not self._stopped.is_set():
                self._left(context.peer())
        if request.value in self._services:
            yield Int32Value(value=NOT_SERVING)
        await self._ended.wait()

    def _status(self, service: str) -> int:
        if service not in self._services:
            return SERVICE_UNKNOWN
        return NOT_SERVING if self._stopped.is_set() else SERVING
