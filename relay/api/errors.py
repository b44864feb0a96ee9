"""Relay's errors as callers see them: one table for the statuses of gRPC and HTTP."""

from __future__ import annotations

from dataclasses import dataclass, replace

from google.rpc import code_pb2

from relay.core.errors import (
    CalendarNotFound,
    ContentSealed,
    Denied,
    DurabilityMissed,
    GivenUp,
    InvalidField,
    KeysAway,
    NotOffered,
    OpenOutcome,
    OtherLayout,
    OtherVersion,
    OutOfTime,
    OverBound,
    RecurrenceNotFound,
    ReplicasAway,
    ServiceError,
    StoreFull,
    StoreUnavailable,
    TimerNotFound,
    TooMany,
    TopicFull,
    Unauthenticated,
    WrongKeyType,
)


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """The codes and names of a kind of error.

    `code` is the number of a gRPC status, `status` that of HTTP. `name` and `title` are those of a problem's
    details (RFC 9457). `retry_after` is the number of seconds after which a retry may help; None if none can.
    `reason` is that of google.rpc.ErrorInfo, where it has one.
    """

    code: int
    status: int
    name: str
    title: str
    retry_after: int | None = None
    reason: str = ""


AWAY = ErrorKind(code_pb2.UNAVAILABLE, 503, "store-unavailable", "Redis is away", 1)
NOT_DURABLE = ErrorKind(
    code_pb2.UNAVAILABLE, 503, "not-durable", "The change is not as durable as was asked", 0, "NOT_DURABLE"
)

KINDS: dict[type[ServiceError], ErrorKind] = {
    InvalidField: ErrorKind(
        code_pb2.INVALID_ARGUMENT, 422, "invalid-field", "A field of the request is wrong"
    ),
    Unauthenticated: ErrorKind(code_pb2.UNAUTHENTICATED, 401, "unauthenticated", "The caller is not known"),
    KeysAway: ErrorKind(code_pb2.UNAVAILABLE, 503, "keys-away", "The keys of an issuer are away", 1),
    Denied: ErrorKind(code_pb2.PERMISSION_DENIED, 403, "denied", "The policy does not allow this"),
    OverBound: ErrorKind(code_pb2.RESOURCE_EXHAUSTED, 429, "over-bound", "The caller is over its bound", 1),
    TimerNotFound: ErrorKind(code_pb2.NOT_FOUND, 404, "not-found", "There is no such thing"),
    RecurrenceNotFound: ErrorKind(code_pb2.NOT_FOUND, 404, "not-found", "There is no such thing"),
    CalendarNotFound: ErrorKind(code_pb2.NOT_FOUND, 404, "not-found", "There is no such thing"),
    OtherVersion: ErrorKind(
        code_pb2.FAILED_PRECONDITION, 412, "other-version", "The recurrence has another version"
    ),
    ContentSealed: ErrorKind(
        code_pb2.FAILED_PRECONDITION, 409, "sealed", "The content is sealed, and does not open here"
    ),
    TopicFull: ErrorKind(
        code_pb2.RESOURCE_EXHAUSTED, 429, "topic-full", "The topic holds as many timers as it may", 5
    ),
    TooMany: ErrorKind(
        code_pb2.RESOURCE_EXHAUSTED, 429, "too-many", "There are as many of these as the relay keeps", 1
    ),
    StoreFull: ErrorKind(code_pb2.RESOURCE_EXHAUSTED, 507, "store-full", "Redis is full", 5),
    StoreUnavailable: AWAY,
    OpenOutcome: AWAY,
    OutOfTime: ErrorKind(code_pb2.UNAVAILABLE, 503, "out-of-time", "The call's time is over", 1),
    GivenUp: ErrorKind(code_pb2.UNAVAILABLE, 503, "given-up", "The call was too late, and had no effect", 1),
    DurabilityMissed: NOT_DURABLE,
    ReplicasAway: replace(NOT_DURABLE, retry_after=1),
    NotOffered: ErrorKind(
        code_pb2.FAILED_PRECONDITION, 409, "durability-not-offered", "The server can't give this durability"
    ),
    OtherLayout: ErrorKind(
        code_pb2.UNAVAILABLE, 503, "layout-changed", "The topic has other partitions than before", 1
    ),
    WrongKeyType: ErrorKind(
        code_pb2.FAILED_PRECONDITION, 409, "wrong-key-type", "A key in Redis holds something else"
    ),
}

INTERNAL = ErrorKind(code_pb2.INTERNAL, 500, "internal", "The relay could not do it")
"""The kind of errors that no caller can mend."""


def retry_after(failure: ServiceError) -> float | None:
    """After how many seconds a retry may help; None if none can."""
    return failure.retry_after if isinstance(failure, OverBound) else kind(failure).retry_after


def kind(failure: ServiceError) -> ErrorKind:
    """The kind of an error; one that has none of its own is of its base class's kind."""
    return next((KINDS[each] for each in type(failure).__mro__ if each in KINDS), INTERNAL)
