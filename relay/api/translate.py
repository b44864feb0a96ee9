"""What requests say, as values; and the texts and instants that both ways share."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from relay.api.intents import when
from relay.api.times import instant, length
from relay.core import validate
from relay.core.durability import STORED, Durability
from relay.core.errors import InvalidField
from relay.core.outcomes import ACKED, Again, Ending, Reason, Verb
from relay.core.timers import (
    NO_CONDITION,
    REPLACE,
    Condition,
    Content,
    Debounce,
    NewTimer,
    NewTimers,
    OnConflict,
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


def new_timer(
    spec: pb.TimerSpec,
    timer_id: str,
    max_payload_bytes: int,
    trace: Mapping[str, str],
    *,
    said: OnConflict | None = None,
    condition: Condition = NO_CONDITION,
    sealed: bool = False,
) -> NewTimer:
    """Check and translate a timer. `trace` is the caller's trace context, `said` what the request says of
    timers that meet, `sealed` whether the topic is. Raises `InvalidField`."""
    validate.name("timer_id", timer_id)
    due, delay, intent = when(spec, timer_id, said)
    if condition != NO_CONDITION:
        if isinstance(intent, Debounce):
            raise InvalidField("condition", "is set beside debounce, which takes any timer; leave it out")
        if intent is OnConflict.KEEP_EXISTING:
            what = "is set with CREATE or KEEP_EXISTING, where there is no timer to hold it against"
            raise InvalidField("condition", f"{what}; leave one of the two out")
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
        intent=intent,
        condition=condition,
        seal_with=validate.seal_with(spec.seal_with, sealed=sealed),
        occurrence=validate.occurrence_id(spec.occurrence_id, spec.timer_id),
    )


def new_timers(
    specs: Sequence[pb.TimerSpec],
    max_payload_bytes: int,
    trace: Mapping[str, str],
    *,
    said: OnConflict | None = None,
    sealed: bool = False,
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
    if any(_any_has(specs, name) for name in ("spread", "debounce", "at_most")):
        return None
    expiries: dict[str, Any] = {}
    if _any_has(specs, "expire_time") or _any_has(specs, "expire_after"):
        pairs = [expiry(spec, due) for spec, due in zip(specs, dues, strict=True)]
        expiries["expires"], expiries["expires_after"] = map(list, zip(*pairs, strict=True))
    subjects = [spec.seal_with for spec in specs]
    for each in set(subjects):
        validate.seal_with(each, sealed=sealed)
    bare = headers({}, trace)
    return NewTimers.filled(
        timer_ids,
        payloads=payloads,
        dues=dues,
        delays=delays,
        headers=[headers(own, trace) if (own := spec.headers) else bare for spec in specs],
        content_types=content_types,
        intents=[said or REPLACE] * len(specs),
        seal_with=subjects,
        occurrences=[validate.occurrence_id(spec.occurrence_id, spec.timer_id) for spec in specs],
        **expiries,
    )


def _any_has(specs: Sequence[pb.TimerSpec], name: str) -> bool:
    """Whether the field is set in any of them; a loop in Python would take several times as long."""
    return any(map(pb.TimerSpec.HasField, specs, repeat(name)))


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
    """Translate the condition of a change. Raises `InvalidField` for one that never holds."""
    due = instant("condition.due_time", message.due_time) if message.HasField("due_time") else None
    if message.only_if_pending and message.only_if_leased:
        raise InvalidField(
            "condition.only_if_leased", "can't be given with only_if_pending; give one of them"
        )
    return Condition(message.only_if_pending, due, message.only_if_leased)


Ended = delivery.Settlement | handler.TimerHandlerDeliverResponse


def durability(text: str) -> Durability:
    """Check and translate the durability that a request asks for. Raises `InvalidField`."""
    try:
        return Durability.parse(text) if text else STORED
    except ValueError as problem:
        raise InvalidField("durability", str(problem)) from None


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
