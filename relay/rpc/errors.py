"""Relay's errors as gRPC statuses, with google.rpc details."""

from __future__ import annotations

import logging
import math
from asyncio import CancelledError
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, NoReturn, Protocol, TypeVar

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode
from grpc.aio import InternalError, ServicerContext

from relay.api.call_time import CallTime
from relay.api.errors import kind, retry_after
from relay.core.errors import InvalidField, OverBound, ServiceError

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = ServicerContext[Any, Any]


class Timed(Protocol):
    """A service whose unary calls have a time."""

    call_time: CallTime


Service = TypeVar("Service", bound=Timed)

log = logging.getLogger(__name__)

DOMAIN = "relay"
"""That of the reasons in google.rpc.ErrorInfo."""

CODES = {status.value[0]: status for status in StatusCode}


def code(failure: ServiceError) -> StatusCode:
    """Return the status code of an error; INTERNAL for an error that no caller can mend."""
    return CODES[kind(failure).code]


def details(failure: ServiceError) -> list[Message]:
    """Return the details of a status beside its code and message."""
    if isinstance(failure, InvalidField):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=failure.field, description=failure.problem
        )
        return [error_details_pb2.BadRequest(field_violations=[violation])]
    if code(failure) is not StatusCode.UNAVAILABLE and not isinstance(failure, OverBound):
        return []
    what, pause = kind(failure), Duration()
    pause.FromMicroseconds(math.ceil((retry_after(failure) or 0) * 1_000_000))
    retry = error_details_pb2.RetryInfo(retry_delay=pause)
    if not what.reason:
        return [retry]
    return [retry, error_details_pb2.ErrorInfo(reason=what.reason, domain=DOMAIN)]


async def abort(context: Context, failure: ServiceError) -> NoReturn:
    """End the call with the error's status."""
    status = code(failure)
    number: int = status.value[0]
    rich = status_pb2.Status(code=number, message=str(failure))
    for detail in details(failure):
        packed = AnyMessage()
        packed.Pack(detail)
        rich.details.append(packed)
    told = (("grpc-status-details-bin", rich.SerializeToString()),)
    try:
        await context.abort(status, str(failure), trailing_metadata=told)
    except InternalError as gone:
        # The caller has given the call up, which gRPC's core knows before it tells the handler. gRPC would
        # log this with a traceback, and a caller could fill the log so.
        raise CancelledError from gone
    raise AssertionError("abort returned")


def answered_in_time(
    call: Callable[[Service, Request, Context], Awaitable[Response]],
) -> Callable[[Service, Request, Context], Awaitable[Response]]:
    """Give a unary call the time that its caller waits, and turn a `ServiceError` of it into its status."""

    @wraps(call)
    async def answered(service: Service, request: Request, context: Context) -> Response:
        try:
            with service.call_time.bound(context.time_remaining()):
                return await call(service, request, context)
        except ServiceError as failure:
            if code(failure) is StatusCode.INTERNAL:
                log.error("a call failed", extra={"reason": str(failure)})
            await abort(context, failure)

    return answered
