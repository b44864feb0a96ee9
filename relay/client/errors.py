"""What can go wrong when an application talks to a relay.

::

    RelayError                  anything below; catch this to catch it all
    ├── UsageError              the client was used out of order (not open, topic registered twice)
    ├── AlreadySettled          a delivery was settled a second time
    ├── DeliveryLost            a delivery can't be settled any more: its lease or stream is gone
    └── CallError               a call failed; carries `code` and `message`
        ├── InvalidArgument     an argument is wrong; `field` names it
        ├── NotFound            there is no such thing
        ├── AlreadyExists       there is such a thing already
        ├── FailedPrecondition  the relay or Redis is in a state that forbids the call
        ├── ResourceExhausted   the topic or Redis is full, or a bound is reached; `retry_after` may say when
        ├── Unavailable         no relay, or the relay has no Redis; `retry_after` may say when
        │   └── NotDurable      the change stands, or may stand, and is not as durable as was asked
        └── DeadlineExceeded    no answer in time; it may have had its effect, and has none any more

A status without a class of its own is a plain `CallError`. `InvalidArgument` comes from the
relay and, for what is plainly wrong, from the client before any call, with the same field names.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped, unused-ignore]

FailedCall: TypeAlias = grpc.aio.AioRpcError | grpc.Call
"""What gRPC raises: asyncio's calls raise the first, blocking calls the second."""

CLOSED = "the client was closed"
NOT_DURABLE = "NOT_DURABLE"


class RelayError(Exception):
    """Anything that this package raises."""


class UsageError(RelayError):
    """The client was used out of order."""


class AlreadySettled(RelayError):
    """The delivery has its outcome already; the first one stands."""


class DeliveryLost(RelayError):
    """The delivery's lease or stream is gone, so its outcome is void.

    The timer was rescheduled or cancelled, or it will be delivered again.
    """


class CallError(RelayError):
    """A call failed.

    `code` is the gRPC status and `message` the relay's words.
    """

    status: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, *, code: grpc.StatusCode | None = None) -> None:
        self.code = code or self.status
        self.message = message
        super().__init__(f"{self.code.name}: {message}")


class InvalidArgument(CallError):
    """An argument is wrong; `field` names it, or is empty if the relay named none."""

    status = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class NotFound(CallError):
    """There is no such thing."""

    status = grpc.StatusCode.NOT_FOUND


class AlreadyExists(CallError):
    """There is such a thing already."""

    status = grpc.StatusCode.ALREADY_EXISTS


class FailedPrecondition(CallError):
    """The relay or Redis is in a state that forbids the call."""

    status = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhausted(CallError):
    """The topic holds as many timers as it may (`max_waiting`), or Redis is full, or this caller is over a
    bound of the relay's policy.

    `retry_after` is the pause in seconds that the relay asked for, or None. With a pause, the relay
    did nothing for this try, and the client tries again by itself within its timeout.
    """

    status = grpc.StatusCode.RESOURCE_EXHAUSTED

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(CallError):
    """There is no relay, or the relay has no Redis. Nothing is known to be stored.

    `retry_after` is the pause in seconds that the relay asked for, or None. `unanswered` means that the call
    may have reached a relay, which did not answer: the connection was lost. Such a call may act until its
    deadline.
    """

    status = grpc.StatusCode.UNAVAILABLE

    def __init__(self, message: str, *, retry_after: float | None = None, unanswered: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.unanswered = unanswered


class NotDurable(Unavailable):
    """The change stands, or may stand, and was not as durable in time as was asked. Repeat the call."""


class DeadlineExceeded(CallError):
    """No answer came in time. Whether the call took effect is unknown; from now on it has none."""

    status = grpc.StatusCode.DEADLINE_EXCEEDED


_PLAIN: dict[grpc.StatusCode, type[CallError]] = {
    kind.status: kind
    for kind in (
        NotFound,
        AlreadyExists,
        FailedPrecondition,
        ResourceExhausted,
        Unavailable,
        DeadlineExceeded,
    )
}
_NEVER_SENT = ("failed to connect to all addresses", "errors resolving ", "DNS resolution failed")
"""How gRPC begins to say that it made no connection, so that nobody has the call."""
_BROKE_IN_A_WRITE = "Internal error from Core"
"""What grpc.aio says of a stream that had ended when a message was written. It says so even in the place of
the status with which the stream has ended (github.com/grpc/grpc/issues/36066)."""
_LEFT = "CANCELLED"
"""All that gRPC says, with the status of that name, of a call that a server has left without an answer: as it
stopped, or since it was too slow to begin. Calls that the caller's own side ends have other words."""
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def make(
    code: grpc.StatusCode | int,
    message: str,
    *,
    field: str = "",
    reason: str = "",
) -> CallError:
    """Build the error that stands for a gRPC status, given as an enum or as a number. `reason` is that of
    google.rpc.ErrorInfo."""
    if isinstance(code, int):
        code = _CODES.get(code, grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidArgument(message, field=field)
    if reason == NOT_DURABLE:
        return NotDurable(message, retry_after=0.0)
    if code in _PLAIN:
        return _PLAIN[code](message)
    return CallError(message, code=code)


def from_rpc(error: FailedCall) -> CallError:
    """Translate a failed gRPC call, with the field and the pause from its status details."""
    field, retry_after, reason = _read_details(error)
    message, code = error.details() or "no details", error.code()
    if code is grpc.StatusCode.INTERNAL and message == _BROKE_IN_A_WRITE:
        code, message = grpc.StatusCode.UNAVAILABLE, "the stream had ended when a message was written to it"
    if code is grpc.StatusCode.CANCELLED and message == _LEFT:
        return Unavailable("the relay has left the call without an answer", unanswered=True)
    if code is grpc.StatusCode.UNAVAILABLE and not reason:
        # A relay always names a pause. Without one it is gRPC that says why there is no answer.
        unanswered = retry_after is None and not message.startswith(_NEVER_SENT)
        return Unavailable(message, retry_after=retry_after, unanswered=unanswered)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return ResourceExhausted(message, retry_after=retry_after)
    return make(code, message, field=field, reason=reason)


def _read_details(error: FailedCall) -> tuple[str, float | None, str]:
    """Return the first field violation, the retry delay in seconds, and the reason, where there are any."""
    field, retry_after, reason = "", None, ""
    violation, retry = error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    info = error_details_pb2.ErrorInfo()
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        try:
            details = status_pb2.Status.FromString(value).details
            for detail in details:
                if detail.Unpack(violation) and violation.field_violations:
                    field = violation.field_violations[0].field
                elif detail.Unpack(retry):
                    retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
                elif detail.Unpack(info):
                    reason = info.reason
        except DecodeError:
            continue  # the status and its message still tell what happened
    return field, retry_after, reason
