"""Translates between protobuf messages and values."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from relay.api.errors import kind
from relay.core import validate
from relay.core.errors import InvalidField, ServiceError
from relay.core.instants import SECOND
from relay.core.outcomes import ACKED, Again, Ending, Reason, Verb
from relay.core.timers import (
    NO_CONDITION,
    Change,
    Condition,
    Content,
    NewTimer,
    NewTimers,
    Scheduled,
    StoredTimer,
    TimerState,
)
from relay.engine.delivery.leases import Lease, Leases
from relay.v1 import delivery_service_pb2 as delivery
from relay.v1 import timer_handler_pb2 as handler
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

RESULTS = {
    Change.CREATED: pb.CHANGE_RESULT_CREATED,
    Change.REPLACED: pb.CHANGE_RESULT_REPLACED,
    Change.UNCHANGED: pb.CHANGE_RESULT_UNCHANGED,
    Change.IN_FLIGHT: pb.CHANGE_RESULT_IN_FLIGHT,
    Change.CANCELLED: pb.CHANGE_RESULT_CANCELLED,
    Change.GONE: pb.CHANGE_RESULT_NOT_FOUND,
    Change.RUN: pb.CHANGE_RESULT_RUN,
}
ENDS = {
    delivery.OUTCOME_ACK: Verb.ACK,
    delivery.OUTCOME_NACK: Verb.NACK,
    delivery.OUTCOME_REJECT: Verb.REJECT,
    delivery.OUTCOME_RESCHEDULE: Verb.RESCHEDULE,
}
MOST_HEADER_COLUMNS = 16
"""The most different headers that the deliveries of a message may have, if it is to be one of columns: each
has an entry for each delivery, even one without the header."""

STATES = {TimerState.PENDING: pb.TIMER_STATE_PENDING, TimerState.LEASED: pb.TIMER_STATE_LEASED}


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


def scheduled(topic: str, timer_id: str, result: Scheduled) -> dict[str, Any]:
    """Return the fields of a ScheduleResponse as a dict: protobuf makes nested messages of it in place, which
    takes less than half as long as copying one message into the next."""
    seconds, rest = divmod(result.due or 0, SECOND)
    due = {"seconds": seconds, "nanos": rest * 1000}
    timer: dict[str, Any] = {"topic": topic, "timer_id": timer_id, "due_time": due}
    change = result.change
    if result.stored:
        timer |= {"next_claim_time": due, "state": pb.TIMER_STATE_PENDING}
    elif change is Change.IN_FLIGHT:
        timer["state"] = pb.TIMER_STATE_LEASED
    return {
        "timer": timer,
        "replaced": change is Change.REPLACED,
        "result": RESULTS[change],
        "delivery_under_way": result.delivery_under_way,
    }


def item_error(failure: ServiceError) -> service.ItemError:
    """Say why one item of many failed."""
    field = failure.field if isinstance(failure, InvalidField) else ""
    return service.ItemError(code=kind(failure).code, message=str(failure), field=field)


class ScheduleResults:
    """Makes a ScheduleBatchResponse, result by result.

    Each result is a response of its own, in bytes. Several responses in a row are one response with all their
    results (protobuf.dev, Encoding, "Last One Wins"). One message is filled again for each stored timer,
    since most of it stays the same: writing it takes less time than copying it into another message.
    """

    def __init__(self) -> None:
        self.response = service.ScheduleBatchResponse()
        """The response with all results that were joined."""
        self._written: list[bytes] = []
        self._one = service.ScheduleBatchResponse()
        self._scheduled = self._one.results.add().scheduled
        self._timer = self._scheduled.timer
        self._timer.state = pb.TIMER_STATE_PENDING
        self._due, self._next_claim = self._timer.due_time, self._timer.next_claim_time
        self._said: tuple[str, int, Change, bool] | None = None

    def add(self, topic: str, timer_id: str, result: Scheduled) -> None:
        """Add the result of a stored timer."""
        if not result.stored or result.due is None:
            self._write(service.ScheduleResult(scheduled=scheduled(topic, timer_id, result)))
            return
        said = topic, result.due, result.change, result.delivery_under_way
        if said != self._said:  # timers with one delay are due at one instant
            self._said = said
            self._scheduled.replaced = result.change is Change.REPLACED
            self._scheduled.result = RESULTS[result.change]
            self._scheduled.delivery_under_way = result.delivery_under_way
            seconds, rest = divmod(result.due, SECOND)
            self._due.seconds = self._next_claim.seconds = seconds
            self._due.nanos = self._next_claim.nanos = rest * 1000
            self._timer.topic = topic
        self._timer.timer_id = timer_id
        self._written.append(self._one.SerializeToString())

    def refuse(self, failure: ServiceError) -> None:
        """Add why a timer was not stored."""
        self._write(service.ScheduleResult(error=item_error(failure)))

    def join(self) -> None:
        """Move the results since the last call into the response, in portions, so that none takes long."""
        self.response.MergeFromString(b"".join(self._written))
        self._written.clear()

    def _write(self, result: service.ScheduleResult) -> None:
        self._written.append(service.ScheduleBatchResponse(results=[result]).SerializeToString())


def timer(topic: str, stored: StoredTimer) -> pb.Timer:
    """Translate a stored timer."""
    return pb.Timer(
        topic=topic,
        timer_id=text(stored.timer_id),
        due_time=timestamp(stored.due),
        **Content.of(stored).fields(),
        state=STATES[stored.state],
        attempts=stored.attempts,
        next_claim_time=timestamp(stored.next_claim),
    )


def deliveries(leases: Iterable[Lease]) -> delivery.DeliveryBatch:
    """Return a message for each problem."""
    frame = delivery.DeliveryBatch()
    _fill(frame.deliveries, leases)
    return frame


def frame(
    parts: Sequence[Leases], *, columns: bool, header_columns: bool = False
) -> delivery.DeliverResponse:
    """Return the message for a stream: columns if the application reads them and the deliveries are alike.

    With `header_columns`, their headers may differ.
    """
    response = delivery.DeliverResponse()
    if columns and _alike(parts):
        headers = list(chain.from_iterable(part.timers.headers for part in parts))
        if headers.count(headers[0]) == len(headers):
            _fill_columns(response.columns, parts)
            response.columns.headers.update(headers[0])
            return response
        names = dict.fromkeys(chain.from_iterable(headers))
        if header_columns and len(names) <= MOST_HEADER_COLUMNS:
            _fill_columns(response.columns, parts)
            for name in names:
                _add_header(response.columns, name, headers)
            return response
    _fill(response.deliveries.deliveries, chain.from_iterable(parts))
    return response


def _alike(parts: Sequence[Leases]) -> bool:
    """Whether the deliveries differ only in what has a column, and perhaps in their headers."""
    topic, content_type = parts[0].topic, parts[0].timers.content_types[0]
    return all(
        part.topic == topic
        and part.timers.content_types.count(content_type) == len(part)
        and not any(part.timers.approximate)
        for part in parts
    )


def _fill_columns(columns: delivery.DeliveryColumns, parts: Sequence[Leases]) -> None:
    columns.topic = parts[0].topic
    columns.content_type = parts[0].timers.content_types[0]
    for part in parts:
        timers = part.timers
        columns.timer_ids.extend(timers.timer_ids)
        columns.payloads.extend(timers.payloads)
        columns.due_times_us.extend(timers.dues)
        columns.attempts.extend(timers.attempts)
        columns.lease_deadlines_us.extend([part.deadline_time] * len(part))
        columns.occurrence_ids.extend(timers.occurrence_ids)
        columns.tokens.extend(part.tokens)


def _add_header(columns: delivery.DeliveryColumns, name: str, headers: Sequence[Mapping[str, str]]) -> None:
    """Add one header of the deliveries, which have these `headers`: once if all have the same value."""
    without = [place for place, each in enumerate(headers) if name not in each]
    values = [each.get(name, "") for each in headers]
    if not without and values.count(values[0]) == len(values):
        columns.headers[name] = values[0]
    else:
        columns.header_columns.add(name=name, values=values, without=without)


def pushed(lease: Lease) -> handler.TimerHandlerDeliverRequest:
    """Return the request for the application's `TimerHandler`."""
    return handler.TimerHandlerDeliverRequest(delivery=deliveries([lease]).deliveries[0])


def pushed_batch(leases: Iterable[Lease]) -> handler.TimerHandlerDeliverBatchRequest:
    """Return the request with many deliveries."""
    request = handler.TimerHandlerDeliverBatchRequest()
    _fill(request.deliveries, leases)
    return request


def _fill(messages: Any, leases: Iterable[Lease]) -> None:
    """Add deliveries. One message is filled again for each, and copied: most of it stays the same."""
    message = delivery.Delivery()
    due_time, deadline_time = message.due_time, None
    for those, place in leases:
        timers = those.timers
        if those.deadline_time != deadline_time:
            deadline_time = those.deadline_time
            message.lease_deadline.CopyFrom(timestamp(deadline_time))
        message.topic = those.topic
        message.timer_id = timers.timer_ids[place]
        message.payload = timers.payloads[place]
        due_time.seconds, rest = divmod(timers.dues[place], SECOND)
        due_time.nanos = rest * 1000
        message.attempt = timers.attempts[place]
        message.occurrence_id = timers.occurrence_ids[place]
        message.token = those.tokens[place]
        messages.append(message)
        if timers.headers[place]:
            messages[-1].headers.update(timers.headers[place])
        if timers.content_types[place]:
            messages[-1].content_type = timers.content_types[place]
        if timers.approximate[place]:
            messages[-1].due_time_approximate = True


def shortened(text: str, limit: int) -> str:
    """Cut a text to at most `limit` bytes."""
    return text if 4 * len(text) <= limit else text.encode()[:limit].decode(errors="ignore")


def text(name: str) -> str:
    """Return a name that protobuf takes: one that is not UTF-8 is escaped."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
