"""The one place that knows method paths and channel options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import Message

from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import timer_service_pb2 as timer_pb

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)

if TYPE_CHECKING:  # grpcio 1.74's classes can't be subscripted when the program runs
    _Deliver: TypeAlias = grpc.aio.StreamStreamMultiCallable[
        delivery_pb.DeliverRequest, delivery_pb.DeliverResponse
    ]
    DeliverCall: TypeAlias = grpc.aio.StreamStreamCall[
        delivery_pb.DeliverRequest, delivery_pb.DeliverResponse
    ]

_CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    # A frame may hold hundreds of payloads of a MiB each; the relay bounds it, not gRPC's 4 MiB.
    ("grpc.max_receive_message_length", -1),
    # gRPC by itself stops dialling for up to two minutes: longer than a relay takes to restart.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),  # the relay is beside the application, never behind a proxy
]


Metadata: TypeAlias = Sequence[tuple[str, str]]


class Unary(Protocol[_Request, _Response]):
    """A call with one request and one answer; `timeout` is in seconds."""

    def __call__(
        self, request: _Request, *, timeout: float | None = None, metadata: Metadata = ()
    ) -> grpc.aio.UnaryUnaryCall[_Request, _Response]:
        """Start the call."""
        ...


class Wire:
    """A channel to a relay and the calls that go over it."""

    def __init__(self, target: str) -> None:
        self.channel = grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
        self.schedule = self._unary("Schedule", timer_pb.ScheduleRequest, timer_pb.ScheduleResponse)
        self.schedule_batch = self._unary(
            "ScheduleBatch", timer_pb.ScheduleBatchRequest, timer_pb.ScheduleBatchResponse
        )
        self.cancel = self._unary("Cancel", timer_pb.CancelRequest, timer_pb.CancelResponse)
        self.get = self._unary("GetTimer", timer_pb.GetTimerRequest, timer_pb.GetTimerResponse)
        self.list = self._unary("ListTimers", timer_pb.ListTimersRequest, timer_pb.ListTimersResponse)
        self._deliver: _Deliver = self.channel.stream_stream(
            "/relay.v1.DeliveryService/Deliver",
            request_serializer=delivery_pb.DeliverRequest.SerializeToString,
            response_deserializer=delivery_pb.DeliverResponse.FromString,
        )

    def deliver(self) -> DeliverCall:
        """Start a delivery stream."""
        return self._deliver()

    async def close(self) -> None:
        """Close the channel and cancel what is still under way."""
        await self.channel.close(None)

    def _unary(
        self, name: str, request: type[_Request], response: type[_Response]
    ) -> Unary[_Request, _Response]:
        return self.channel.unary_unary(
            f"/relay.v1.TimerService/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
