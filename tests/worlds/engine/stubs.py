"""The few words that a bare stub needs to talk to a relay over gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2, status_pb2

from relay.core.policy import RetryPolicy
from relay.v1 import delivery_service_pb2 as pb
from relay.v1.timer_pb2 import TimerSpec
from tests.worlds.waiting import PATIENCE

MAX_PAYLOAD = 1 << 20
LATER = RetryPolicy(initial=600.0)
"""For a test that looks at what one attempt left: its retry comes in ten minutes."""

ACK, NACK, REJECT, EXTEND = pb.OUTCOME_ACK, pb.OUTCOME_NACK, pb.OUTCOME_REJECT, pb.OUTCOME_EXTEND

M = TypeVar("M", bound=Message)

DETAILS: tuple[type[Message], ...] = (
    error_details_pb2.BadRequest,
    error_details_pb2.RetryInfo,
    error_details_pb2.ErrorInfo,
)
"""What a relay says beside a status."""


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
        self,
        *topics: str,
        max_outstanding: int = 100,
        slow_outstanding: int = 0,
        columns: bool = False,
        header_columns: bool = False,
    ) -> Stream:
        """Say Open, and hear Opened."""
        await self.send(
            open=pb.Open(
                topics=topics or ("t",),
                max_outstanding=max_outstanding,
                slow_outstanding=slow_outstanding,
                columns=columns,
                header_columns=header_columns,
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
            for kind in DETAILS:
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
