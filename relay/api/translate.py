"""What requests say, as values; and the texts and instants that both ways share."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.outcomes import ACKED, Again, Ending, Reason, Verb
from relay.core.timers import (
    NO_CONDITION,
    Condition,
    Content,
    NewTimer,
    NewTimers,
)
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

ENDS = {
    delivery.OUTCOME_ACK: Verb.ACK,
    delivery.OUTCOME_NACK: Verb.NACK,
    delivery.OUTCOME_REJECT: Verb.REJECT,
    delivery.OUTCOME_RESCHEDULE: Verb.RESCHEDULE,
}


def timestamp(instant: int) -> Timestamp:
    """Turn microseconds since 1970 into a Timestamp."""
    seconds, rest = divmod(instant, SECOND)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def instant(field: str, message: Timestamp) -> int:
    """Turn a Timestamp into microseconds since 1970, rounded up. Raises `InvalidField`."""
    nanos = message.nanos
    if not 0 <= nanos < 1_000_000_000:
        raise InvalidField(field, "has nanos outside 0 to 999,999,999")
    return message.seconds * SECOND + -(-nanos // 1000)


def length(field: str, message: Duration) -> int:
    """Turn a Duration into microseconds, rounded up. Raises `InvalidField` if it is negative."""
    seconds, nanos = message.seconds, message.nanos
    if seconds < 0 or nanos < 0:
        raise InvalidField(field, "is negative; give 0 or more")
    if nanos >= 1_000_000_000:
        raise InvalidField(field, "has nanos above 999,999,999")
    return seconds * SECOND + -(-nanos // 1000)


def new_timer(
    spec: pb.TimerSpec,
    timer_id: str,
    max_payload_bytes: int,
    trace: Mapping[str, str],
    *,
    create: bool = False,
    condition: Condition = NO_CONDITION,
) -> NewTimer:
    """Check and translate a timer. `trace` is the caller's trace context. Raises `InvalidField`."""
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
    expires, expires_after = expiry(spec, due)
    return NewTimer(
        timer_id=timer_id,
        payload=validate.payload(spec.payload, max_payload_bytes),
        due=due,
        delay=delay,
        headers=headers(spec.headers, trace),
        content_type=validate.content_type(spec.content_type),
        expires=expires,
        expires_after=expires_after,
        create=create,
        condition=condition,
    )


def new_timers(
    specs: Sequence[pb.TimerSpec], max_payload_bytes: int, trace: Mapping[str, str], *, create: bool
) -> NewTimers | None:
    """Check and translate all timers together; those without a timer_id get one. If this returns None, or
    raises `InvalidField`, one of them is wrong or only unusual: `new_timer` finds which one, and how."""
    timer_ids = [spec.timer_id or uuid.uuid4().hex for spec in specs]
    payloads = [spec.payload for spec in specs]
    if not validate.plain_names(timer_ids) or max(map(len, payloads)) > max_payload_bytes:
        return None
    dues = [instant("due_time", spec.due_time) if spec.HasField("due_time") else None for spec in specs]
    delays = [length("delay", spec.delay) if spec.HasField("delay") else None for spec in specs]
    if any((due is None) is (delay is None) for due, delay in zip(dues, delays, strict=True)):
        return None
    if not validate.times([time for time in (*dues, *delays) if time is not None]):
        return None
    content_types = [spec.content_type for spec in specs]
    for each in set(content_types):
        validate.content_type(each)
    expiries = [expiry(spec, due) for spec, due in zip(specs, dues, strict=True)]
    bare = headers({}, trace)
    return NewTimers.filled(
        timer_ids,
        payloads=payloads,
        dues=dues,
        delays=delays,
        headers=[headers(said, trace) if (said := spec.headers) else bare for spec in specs],
        content_types=content_types,
        expires=[instant for instant, _ in expiries],
        expires_after=[distance for _, distance in expiries],
        create=[create] * len(specs),
    )


def headers(said: Mapping[str, str], trace: Mapping[str, str]) -> Mapping[str, str]:
    """Return a timer's headers, with the caller's trace context unless they have their own."""
    own: Mapping[str, str] = validate.headers(dict(said)) if said else {}
    if trace and "traceparent" not in own:  # a tracestate belongs to its own traceparent
        return {**trace, **own}
    return own


def shared(
    request: service.ScheduleColumnsRequest, trace: Mapping[str, str]
) -> tuple[Mapping[str, str], str]:
    """Return the headers and the content type of all timers of a request. Raises `InvalidField`."""
    return headers(request.headers, trace), validate.content_type(request.content_type)


def expiry(spec: pb.TimerSpec, due: int | None) -> tuple[int | None, int | None]:
    """Return when a timer expires: an instant, or a distance from its due time; at most one is not None.
    Raises `InvalidField`."""
    if spec.HasField("expire_time"):
        if spec.HasField("expire_after"):
            raise InvalidField("expire_time", "is set beside expire_after; set at most one of the two")
        expires = validate.due(instant("expire_time", spec.expire_time), "expire_time")
        if due is not None and expires <= due:
            raise InvalidField("expire_time", "is not after due_time; give a later one, or none")
        return expires, None
    if spec.HasField("expire_after"):
        after = validate.delay(length("expire_after", spec.expire_after), "expire_after")
        if not after:
            raise InvalidField("expire_after", "is 0; give more, or leave it out")
        return None, after
    return None, None


def condition(message: pb.Condition) -> Condition:
    """Translate the condition of a change."""
    due = instant("condition.due_time", message.due_time) if message.HasField("due_time") else None
    return Condition(message.only_if_pending, due)


Ended = delivery.Settlement | handler.TimerHandlerDeliverResponse


def acknowledges(message: Ended) -> bool:
    """Whether the settlement is an ACK and nothing else, as most are."""
    return message.outcome == delivery.OUTCOME_ACK and not message.HasField("reschedule")


def ending(message: Ended, max_payload_bytes: int) -> Ending:
    """Translate an outcome. Raises `InvalidField`."""
    if acknowledges(message):
        return ACKED
    verb = ENDS.get(message.outcome)
    if verb is None:
        raise InvalidField(
            "outcome", f"{message.outcome} is not an end; send ACK, NACK, REJECT or RESCHEDULE"
        )
    if (verb is Verb.RESCHEDULE) is not message.HasField("reschedule"):
        raise InvalidField("reschedule", "is set beside another outcome; leave it out, or send RESCHEDULE")
    error = shortened(message.reason, validate.MAX_REASON_BYTES)
    if verb is Verb.RESCHEDULE:
        return Ending(verb, again=_again(message.reschedule, max_payload_bytes))
    if verb is Verb.NACK and message.HasField("retryable") and not message.retryable:
        return Ending(Verb.REJECT, reason=Reason.FAILED, error=error)
    retry_after = None
    if message.HasField("retry_after"):
        retry_after = validate.delay(length("retry_after", message.retry_after), "retry_after")
    return Ending(verb, retry_after, error=error)


def _again(message: delivery.Reschedule, max_payload_bytes: int) -> Again:
    when = message.WhichOneof("when")
    due = delay = None
    if when == "due_time":
        due = validate.due(instant("reschedule.due_time", message.due_time), "reschedule.due_time")
    elif when == "delay":
        delay = validate.delay(length("reschedule.delay", message.delay), "reschedule.delay")
    else:
        raise InvalidField("reschedule", "has neither due_time nor delay; set one of the two")
    content = None
    if message.HasField("payload"):
        content = Content(validate.payload(message.payload, max_payload_bytes, "reschedule.payload"))
    return Again(due, delay, content)


def shortened(text: str, limit: int) -> str:
    """Cut a text to at most `limit` bytes."""
    return text if 4 * len(text) <= limit else text.encode()[:limit].decode(errors="ignore")


def text(name: str) -> str:
    """Return a name that protobuf takes: one that is not UTF-8 is escaped."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
