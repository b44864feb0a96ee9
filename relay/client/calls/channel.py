"""The one place that knows method paths and channel options."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import Message

from relay.client import arguments, errors, trace_context
from relay.client.connection_log import ConnectionLog
from relay.client.credentials import Bearer, Credentials
from relay.client.unreadable import readable, reader
from relay.v1 import delivery_service_pb2 as delivery_pb
from relay.v1 import recurrence_service_pb2 as recurrence_pb
from relay.v1 import timer_service_pb2 as timer_pb
from relay.v1 import topic_service_pb2 as topic_pb

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

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
DEFAULT_TARGET = "127.0.0.1:7451"
NONE = Credentials()


def target_or_default(target: str | None) -> str:
    """Where the relay is: as given, or the environment's `RELAY_TARGET`, or `127.0.0.1:7451`.

    Raises `InvalidArgument` if gRPC can't dial it.
    """
    return arguments.check_target(target or os.environ.get("RELAY_TARGET") or DEFAULT_TARGET)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """A unary call: one request, one answer.

    `changes` says whether it changes something, so that a second try must not meet the first. If it is
    `traced`, the caller's trace context goes with it.
    """

    name: str
    request: type[Request]
    response: type[Response]
    changes: bool = False
    traced: bool = False
    service: str = "TimerService"

    @property
    def path(self) -> str:
        """The name by which gRPC knows it."""
        return f"/relay.v1.{self.service}/{self.name}"

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a request that is made now."""
        return trace_context.inject() if self.traced else ()


SCHEDULE = Method("Schedule", timer_pb.ScheduleRequest, timer_pb.ScheduleResponse, changes=True, traced=True)
SCHEDULE_BATCH = Method(
    "ScheduleBatch", timer_pb.ScheduleBatchRequest, timer_pb.ScheduleBatchResponse, changes=True, traced=True
)
SCHEDULE_COLUMNS = Method(
    "ScheduleColumns",
    timer_pb.ScheduleColumnsRequest,
    timer_pb.ScheduleColumnsResponse,
    changes=True,
    traced=True,
)
CANCEL = Method("Cancel", timer_pb.CancelRequest, timer_pb.CancelResponse, changes=True)
GET = Method("GetTimer", timer_pb.GetTimerRequest, timer_pb.GetTimerResponse)
LIST = Method("ListTimers", timer_pb.ListTimersRequest, timer_pb.ListTimersResponse)
RUN = Method("RunTimer", timer_pb.RunTimerRequest, timer_pb.RunTimerResponse, changes=True)
TIMER_HISTORY = Method("GetTimerHistory", timer_pb.GetTimerHistoryRequest, timer_pb.GetTimerHistoryResponse)
TIMER_METHODS: tuple[Method[Any, Any], ...] = (
    SCHEDULE,
    SCHEDULE_BATCH,
    SCHEDULE_COLUMNS,
    CANCEL,
    GET,
    LIST,
    RUN,
    TIMER_HISTORY,
)

LIST_TOPICS = Method(
    "ListTopics", topic_pb.ListTopicsRequest, topic_pb.ListTopicsResponse, service="TopicService"
)
GET_TOPIC = Method("GetTopic", topic_pb.GetTopicRequest, topic_pb.GetTopicResponse, service="TopicService")
PAUSE_TOPIC = Method(
    "PauseTopic",
    topic_pb.PauseTopicRequest,
    topic_pb.PauseTopicResponse,
    changes=True,
    service="TopicService",
)
RESUME_TOPIC = Method(
    "ResumeTopic",
    topic_pb.ResumeTopicRequest,
    topic_pb.ResumeTopicResponse,
    changes=True,
    service="TopicService",
)
RESHARD_TOPIC = Method(
    "ReshardTopic",
    topic_pb.ReshardTopicRequest,
    topic_pb.ReshardTopicResponse,
    changes=True,
    service="TopicService",
)
FORECAST = Method("Forecast", topic_pb.ForecastRequest, topic_pb.ForecastResponse, service="TopicService")
LIST_DEAD = Method(
    "ListDeadLetters",
    topic_pb.ListDeadLettersRequest,
    topic_pb.ListDeadLettersResponse,
    service="TopicService",
)
GET_DEAD = Method(
    "GetDeadLetter", topic_pb.GetDeadLetterRequest, topic_pb.GetDeadLetterResponse, service="TopicService"
)
REDRIVE = Method(
    "RedriveDeadLetters",
    topic_pb.RedriveDeadLettersRequest,
    topic_pb.RedriveDeadLettersResponse,
    changes=True,
    service="TopicService",
)
PURGE = Method(
    "PurgeDeadLetters",
    topic_pb.PurgeDeadLettersRequest,
    topic_pb.PurgeDeadLettersResponse,
    changes=True,
    service="TopicService",
)
FORGET_SUBJECT = Method(
    "ForgetSubject",
    topic_pb.ForgetSubjectRequest,
    topic_pb.ForgetSubjectResponse,
    changes=True,
    service="TopicService",
)
TOPIC_METHODS: tuple[Method[Any, Any], ...] = (
    LIST_TOPICS,
    GET_TOPIC,
    PAUSE_TOPIC,
    RESUME_TOPIC,
    RESHARD_TOPIC,
    FORECAST,
    LIST_DEAD,
    GET_DEAD,
    REDRIVE,
    PURGE,
    FORGET_SUBJECT,
)


def _of_recurrences(
    name: str, request: type[Request], response: type[Response], *, changes: bool = False
) -> Method[Request, Response]:
    return Method(name, request, response, changes=changes, service="RecurrenceService")


PUT_RECURRENCE = _of_recurrences(
    "PutRecurrence", recurrence_pb.PutRecurrenceRequest, recurrence_pb.PutRecurrenceResponse, changes=True
)
GET_RECURRENCE = _of_recurrences(
    "GetRecurrence", recurrence_pb.GetRecurrenceRequest, recurrence_pb.GetRecurrenceResponse
)
LIST_RECURRENCES = _of_recurrences(
    "ListRecurrences", recurrence_pb.ListRecurrencesRequest, recurrence_pb.ListRecurrencesResponse
)
PREVIEW = _of_recurrences(
    "PreviewRecurrence", recurrence_pb.PreviewRecurrenceRequest, recurrence_pb.PreviewRecurrenceResponse
)
PAUSE_RECURRENCE = _of_recurrences(
    "PauseRecurrence",
    recurrence_pb.PauseRecurrenceRequest,
    recurrence_pb.PauseRecurrenceResponse,
    changes=True,
)
RESUME_RECURRENCE = _of_recurrences(
    "ResumeRecurrence",
    recurrence_pb.ResumeRecurrenceRequest,
    recurrence_pb.ResumeRecurrenceResponse,
    changes=True,
)
TRIGGER = _of_recurrences(
    "TriggerRecurrence",
    recurrence_pb.TriggerRecurrenceRequest,
    recurrence_pb.TriggerRecurrenceResponse,
    changes=True,
)
BACKFILL = _of_recurrences(
    "BackfillRecurrence",
    recurrence_pb.BackfillRecurrenceRequest,
    recurrence_pb.BackfillRecurrenceResponse,
    changes=True,
)
DELETE_RECURRENCE = _of_recurrences(
    "DeleteRecurrence",
    recurrence_pb.DeleteRecurrenceRequest,
    recurrence_pb.DeleteRecurrenceResponse,
    changes=True,
)
HISTORY = _of_recurrences(
    "GetRecurrenceHistory",
    recurrence_pb.GetRecurrenceHistoryRequest,
    recurrence_pb.GetRecurrenceHistoryResponse,
)
PUT_CALENDAR = _of_recurrences(
    "PutCalendar", recurrence_pb.PutCalendarRequest, recurrence_pb.PutCalendarResponse, changes=True
)
GET_CALENDAR = _of_recurrences(
    "GetCalendar", recurrence_pb.GetCalendarRequest, recurrence_pb.GetCalendarResponse
)
LIST_CALENDARS = _of_recurrences(
    "ListCalendars", recurrence_pb.ListCalendarsRequest, recurrence_pb.ListCalendarsResponse
)
DELETE_CALENDAR = _of_recurrences(
    "DeleteCalendar", recurrence_pb.DeleteCalendarRequest, recurrence_pb.DeleteCalendarResponse, changes=True
)
RECURRENCE_METHODS: tuple[Method[Any, Any], ...] = (
    PUT_RECURRENCE,
    GET_RECURRENCE,
    LIST_RECURRENCES,
    PREVIEW,
    PAUSE_RECURRENCE,
    RESUME_RECURRENCE,
    TRIGGER,
    BACKFILL,
    DELETE_RECURRENCE,
    HISTORY,
    PUT_CALENDAR,
    GET_CALENDAR,
    LIST_CALENDARS,
    DELETE_CALENDAR,
)
METHODS = TIMER_METHODS + TOPIC_METHODS + RECURRENCE_METHODS


class Wire(Protocol):
    """The connection of an asyncio client."""

    async def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        """Make one call that takes at most `timeout` seconds. Raises `CallError`."""
        ...

    async def close(self) -> None:
        """Close it, and cancel the calls that are still under way."""
        ...


class SyncWire(Protocol):
    """The connection of a blocking client. Any number of threads may use it at once."""

    def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        """Make one call that takes at most `timeout` seconds. Raises `CallError`."""
        ...

    def close(self) -> None:
        """Close it, and cancel the calls that are still under way."""
        ...


class GrpcWire:
    """A channel to a relay, for one event loop."""

    def __init__(self, target: str, credentials: Credentials = NONE) -> None:
        options, secure = [*_CHANNEL_OPTIONS, *credentials.options()], credentials.for_channel()
        self.channel = (
            grpc.aio.insecure_channel(target, options=options)
            if secure is None
            else grpc.aio.secure_channel(target, secure, options=options)
        )
        self._bearer = Bearer(credentials)
        self.reads_token = bool(credentials.token_file)
        """Whether the token that calls show is read again when it changes."""
        self._calls = {
            method.name: self.channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=reader(method.response),
            )
            for method in METHODS
        }
        self._deliver: _Deliver = self.channel.stream_stream(
            "/relay.v1.DeliveryService/Deliver",
            request_serializer=delivery_pb.DeliverRequest.SerializeToString,
            response_deserializer=reader(delivery_pb.DeliverResponse),
        )

    async def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        """See `Wire.call`."""
        try:
            metadata = method.metadata + self._bearer.metadata()
            answer = await self._calls[method.name](request, timeout=timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise errors.from_rpc(error) from None
        except grpc.aio.UsageError:  # the channel was closed before the call began
            raise errors.make(grpc.StatusCode.CANCELLED, errors.CLOSED) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # gRPC reports a closed channel in this way; nobody cancelled this task.
            raise errors.make(grpc.StatusCode.CANCELLED, errors.CLOSED) from None
        return cast("Message", readable(answer, method.response))

    def deliver(self) -> DeliverCall:
        """Start a delivery stream."""
        return self._deliver(metadata=self._bearer.metadata())

    async def close(self) -> None:
        """See `Wire.close`."""
        await self.channel.close(None)


_IMPORTED_IN = os.getpid()
_FORK_GRACE = 0.5
"""Seconds beyond a call's deadline that gRPC has to end the call by itself."""


class SyncGrpcWire:
    """A channel to a relay, for one process."""

    def __init__(self, target: str, credentials: Credentials = NONE) -> None:
        options, secure = [*_CHANNEL_OPTIONS, *credentials.options()], credentials.for_channel()
        self._channel = (
            grpc.insecure_channel(target, options=options)
            if secure is None
            else grpc.secure_channel(target, secure, options=options)
        )
        self._bearer = Bearer(credentials)
        self._forked = os.getpid() != _IMPORTED_IN
        self._lines = ConnectionLog(target)
        self._calls = {
            method.name: self._channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=reader(method.response),
            )
            for method in METHODS
        }

    def call(self, method: Method[Any, Any], request: Message, timeout: float) -> Message:
        """See `SyncWire.call`."""
        call = self._calls[method.name]
        metadata = method.metadata + self._bearer.metadata()
        try:
            answer = (
                self._call_after_fork(call, request, timeout, metadata)
                if self._forked
                else call(request, timeout=timeout, metadata=metadata)
            )
        except grpc.RpcError as error:
            failure = errors.from_rpc(cast("grpc.Call", error))
            if isinstance(failure, errors.Unavailable) and failure.retry_after is None:
                # An error with a pause comes from the relay itself, whose Redis is away.
                self._lines.lost(failure, "calls try again until their timeout")
            raise failure from None
        except ValueError as error:  # gRPC raises this once the channel is closed
            raise errors.make(grpc.StatusCode.CANCELLED, errors.CLOSED) from error
        self._lines.opened()
        return cast("Message", readable(answer, method.response))

    def close(self) -> None:
        """See `SyncWire.close`."""
        self._channel.close()

    def _call_after_fork(
        self,
        call: grpc.UnaryUnaryMultiCallable[Any, Any],
        request: Message,
        timeout: float,
        metadata: tuple[tuple[str, str], ...],
    ) -> Message:
        """Call with a second deadline, which Python keeps.

        gRPC's own threads, and with them its timers, may not have survived the fork: that happens if another
        thread of the parent was in a call, or with GRPC_ENABLE_FORK_SUPPORT=0. This costs twice the CPU of a
        plain call, so only processes that were forked pay for it. Raises `DeadlineExceeded`.
        """
        running = call.future(request, timeout=timeout, metadata=metadata)
        try:
            answer: Message = running.result(timeout + _FORK_GRACE)
        except grpc.FutureTimeoutError:
            running.cancel()
            raise errors.DeadlineExceeded(
                "gRPC did not answer in this process, which was forked while gRPC was in use; "
                "make the first call after the fork"
            ) from None
        except grpc.FutureCancelledError:
            raise errors.make(grpc.StatusCode.CANCELLED, errors.CLOSED) from None
        return answer
