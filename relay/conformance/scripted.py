"""The relay that plays the scenes: `Deliver` and `Schedule` over real gRPC, and no timer behind them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from relay.conformance.observed import Observed
from relay.conformance.stream import ServedStream
from relay.v1 import delivery_service_pb2 as pb
from relay.v1 import timer_service_pb2 as timers


class ScheduleTry:
    """One try of a call: when it came (seconds of the monotonic clock), its deadline, and its request."""

    def __init__(self, request: timers.ScheduleRequest, context: Any) -> None:
        self.request = request
        self.context = context
        self.at = time.monotonic()
        self.life: float | None = context.time_remaining()
        """Seconds that were left of it; None if it has no deadline."""


_PAST_IT = 60.0
"""Seconds behind the deadline, so that no answer crosses it."""

ScheduleAnswer = Callable[[ScheduleTry], Awaitable[timers.ScheduleResponse]]


class ScriptedRelay:
    """Both services on a port of 127.0.0.1, which stays its own while it is stopped, until `close`."""

    def __init__(self, watched: Observed) -> None:
        self._watched = watched
        self._server: grpc.aio.Server | None = None
        # Bound, and not listening: nobody else gets the port, and a client that dials meanwhile is refused.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._place.bind(("127.0.0.1", 0))
        self._port: int = self._place.getsockname()[1]
        self.streams: list[ServedStream] = []
        self.arrivals: list[float] = []
        """When each stream came, in seconds of the monotonic clock."""
        self.refusals: list[tuple[grpc.StatusCode, str]] = []
        """How the next streams end, once their Open has come."""
        self.tries: list[ScheduleTry] = []
        self.answer: ScheduleAnswer | None = None
        """What answers Schedule."""

    @property
    def target(self) -> str:
        """Where it is: host:port."""
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        """Listen."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 1), ("grpc.max_send_message_length", -1)])
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "relay.v1.DeliveryService",
                    {
                        "Deliver": grpc.stream_stream_rpc_method_handler(
                            self._deliver, pb.DeliverRequest.FromString, bytes
                        )
                    },
                ),
                grpc.method_handlers_generic_handler(
                    "relay.v1.TimerService",
                    {
                        "Schedule": grpc.unary_unary_rpc_method_handler(
                            self._schedule,
                            timers.ScheduleRequest.FromString,
                            timers.ScheduleResponse.SerializeToString,
                        )
                    },
                ),
            )
        )
        server.add_insecure_port(self.target)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Break all connections off, and listen no more."""
        for each in self.streams:
            each.may_end = True
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def close(self) -> None:
        """Stop, and give the port back."""
        await self.stop()
        self._place.close()

    async def _deliver(self, _: Any, context: Any) -> None:
        stream = ServedStream(self._watched, context)
        self.arrivals.append(time.monotonic())
        self._watched.changed()
        if self.refusals:
            await context.read()  # as a relay does, which looks at the Open first
            code, text = self.refusals.pop(0)
            await context.abort(code, text)
        self.streams.append(stream)
        self._watched.changed()
        await stream.serve()

    async def _schedule(self, request: timers.ScheduleRequest, context: Any) -> timers.ScheduleResponse:
        one = ScheduleTry(request, context)
        self.tries.append(one)
        self._watched.changed()
        if self.answer is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this scene has no Schedule")
        assert self.answer is not None
        return await self.answer(one)


async def unanswered(context: Any) -> None:
    """Let a call pass its deadline: gRPC cancels it then."""
    await asyncio.sleep((context.time_remaining() or 0) + _PAST_IT)
