"""Between protobuf messages and values."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.timers import NewTimer, Scheduled, StoredTimer, TimerState
from relay.engine.lease import Lease
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

STATES = {TimerState.PENDING: pb.TIMER_STATE_PENDING, TimerState.LEASED: pb.TIMER_STATE_LEASED}


def timestamp(instant: int) -> Timestamp:
    """Microseconds since 1970 as a Timestamp."""
    seconds, rest = divmod(instant, SECOND)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def instant(field: str, message: Timestamp) -> int:
    """A Timestamp as microseconds, rounded up."""
    if not 0 <= message.nanos < 1_000_000_000:
        raise InvalidField(field, "has nanos outside 0 to 999,999,999")
    return message.seconds * SECOND + -(-message.nanos // 1000)


def length(field: str, message: Duration) -> int:
    """A Duration as microseconds, rounded up; not negative."""
    if message.seconds < 0 or message.nanos < 0:
        raise InvalidField(field, "is negative; give 0 or more")
    if message.nanos >= 1_000_000_000:
        raise InvalidField(field, "has nanos above 999,999,999")
    return message.seconds * SECOND + -(-message.nanos // 1000)


def new_timer(
    spec: pb.TimerSpec, timer_id: str, max_payload_bytes: int, trace: Mapping[str, str]
) -> NewTimer:
    """A validated timer; raises `InvalidField`. `trace` is the caller's trace context."""
    validate.name("timer_id", timer_id)
    due = delay = None
    if spec.HasField("due_time"):
        if spec.HasField("delay"):
            raise InvalidField("due_time", "is set beside delay; set one of the two")
        due = validate.due(instant("due_time", spec.due_time))
    elif spec.HasField("delay"):
        delay = validate.delay(length("delay", spec.delay))
    else:
        raise InvalidField("due_time", "is not set, and neither is delay; set one of the two")
    headers: Mapping[str, str] = validate.headers(dict(spec.headers)) if spec.headers else {}
    if trace and "traceparent" not in headers:  # a tracestate belongs to its own traceparent
        headers = {**trace, **headers}
    return NewTimer(
        timer_id,
        validate.payload(spec.payload, max_payload_bytes),
        due,
        delay,
        headers,
        validate.content_type(spec.content_type),
    )


def scheduled(topic: str, timer_id: str, result: Scheduled) -> service.ScheduleResponse:
    """The answer to Schedule."""
    due = timestamp(result.due)
    return service.ScheduleResponse(
        timer=pb.Timer(
            topic=topic,
            timer_id=timer_id,
            due_time=due,
            next_claim_time=due,
            state=pb.TIMER_STATE_PENDING,
        ),
        replaced=result.replaced,
    )


def timer(topic: str, stored: StoredTimer) -> pb.Timer:
    """A timer as it stands."""
    return pb.Timer(
        topic=topic,
        timer_id=_text(stored.timer_id),
        due_time=timestamp(stored.due),
        payload=stored.payload,
        headers=stored.headers,
        content_type=stored.content_type,
        state=STATES[stored.state],
        attempts=stored.attempts,
        next_claim_time=timestamp(stored.next_claim),
    )


def deliveries(leases: list[Lease]) -> delivery.DeliverResponse:
    """A frame of deliveries."""
    response = delivery.DeliverResponse()
    add = response.deliveries.deliveries.add
    for lease in leases:
        item = lease.timer
        due, due_rest = divmod(item.due, SECOND)
        deadline, deadline_rest = divmod(lease.deadline_time, SECOND)
        message = add(
            topic=lease.topic,
            timer_id=item.timer_id,
            payload=item.payload,
            due_time={"seconds": due, "nanos": due_rest * 1000},
            attempt=item.attempt,
            lease_deadline={"seconds": deadline, "nanos": deadline_rest * 1000},
            occurrence_id=item.occurrence_id,
            token=lease.token,
        )
        if item.headers:
            message.headers.update(item.headers)
        if item.content_type:
            message.content_type = item.content_type
        if item.approximate:
            message.due_time_approximate = True
    return response


def pushed(lease: Lease) -> handler.TimerHandlerDeliverRequest:
    """A call to the application's `TimerHandler`."""
    (delivered,) = deliveries([lease]).deliveries.deliveries
    return handler.TimerHandlerDeliverRequest(delivery=delivered)


def shortened(text: str, limit: int) -> str:
    """At most `limit` bytes of it."""
    return text if 4 * len(text) <= limit else text.encode()[:limit].decode(errors="ignore")


def _text(name: str) -> str:
    """A name that protobuf takes; one that is not UTF-8 is shown escaped."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
