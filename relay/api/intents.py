"""When a request's timers are due, and what becomes of those that have their ids."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from relay.api.times import instant, length
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.instants import SECOND, spread_of
from relay.core.timers import REPLACE, Debounce, Intent, OnConflict
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service

Asking = service.ScheduleRequest | service.ScheduleBatchRequest | service.ScheduleColumnsRequest
Said = pb.TimerSpec | service.ScheduleColumnsRequest

MODES = {
    service.SCHEDULE_MODE_UNSPECIFIED: None,
    service.SCHEDULE_MODE_REPLACE: None,
    service.SCHEDULE_MODE_CREATE: OnConflict.KEEP_EXISTING,
}
ON_CONFLICT = {
    service.ON_CONFLICT_UNSPECIFIED: None,
    service.ON_CONFLICT_REPLACE: REPLACE,
    service.ON_CONFLICT_KEEP_EARLIEST: OnConflict.KEEP_EARLIEST,
    service.ON_CONFLICT_KEEP_LATEST: OnConflict.KEEP_LATEST,
    service.ON_CONFLICT_KEEP_EXISTING: OnConflict.KEEP_EXISTING,
}
LONGEST = 1_000 * 366 * 86_400 * SECOND
"""The longest run of debounced timers, in microseconds: none ends after the year 9999."""

EXCLUDED = (
    *("due_time", "delay", "due_times_us", "delays_us", "spread", "expire_time", "expire_after"),
    *("occurrence_id", "occurrence_ids"),
)
"""What a debounced timer does not go with."""


def on_conflict(request: Asking) -> OnConflict | None:
    """Return which timer is to stand where two meet; None if the request does not say. Raises
    `InvalidField`."""
    if request.mode not in MODES:
        raise InvalidField("mode", f"{request.mode} is not a mode; send REPLACE or CREATE")
    if request.on_conflict not in ON_CONFLICT:
        what = f"{request.on_conflict} is not known here; send REPLACE, KEEP_EARLIEST, KEEP_LATEST or "
        raise InvalidField("on_conflict", f"{what}KEEP_EXISTING")
    said = ON_CONFLICT[request.on_conflict]
    if said is not None and request.mode:
        raise InvalidField("on_conflict", "is set beside mode; leave mode out: CREATE is KEEP_EXISTING")
    return MODES[request.mode] if said is None else said


def when(spec: pb.TimerSpec, timer_id: str, said: OnConflict | None) -> tuple[int | None, int | None, Intent]:
    """Return when a timer is due, as an instant or as a delay, and what becomes of one that has its id.
    Raises `InvalidField`."""
    debounce = debounced(spec, said)
    if debounce is not None:
        if not spec.timer_id:
            raise InvalidField(
                "timer_id", "is empty; give one with debounce, which is about timers of one id"
            )
        return None, *debounce
    place = spread_of(timer_id, spread(spec))
    intent = said or REPLACE
    if spec.HasField("due_time"):
        if spec.HasField("delay"):
            raise InvalidField("due_time", "is set beside delay; set one of the two")
        return validate.due(validate.due(instant("due_time", spec.due_time)) + place), None, intent
    if spec.HasField("delay"):
        return None, validate.delay(validate.delay(length("delay", spec.delay)) + place), intent
    raise InvalidField("due_time", "is not set, and neither are delay and debounce; set one of the three")


def debounced(message: Said, said: OnConflict | None) -> tuple[int, Debounce] | None:
    """Return the delay of debounced timers, and the limit that they set for their run; None for other timers.
    Raises `InvalidField`."""
    if not message.HasField("debounce"):
        if message.HasField("at_most"):
            raise InvalidField("at_most", "is set without debounce; set both, or leave it out")
        return None
    for field in EXCLUDED:
        if _has(message, field):
            raise InvalidField("debounce", f"is set beside {field}; leave one of the two out")
    if said is not None:
        raise InvalidField("debounce", "is set beside on_conflict or CREATE; leave one of the two out")
    delay = _positive("debounce", message.debounce)
    if not message.HasField("at_most"):
        return delay, Debounce()
    at_most = _positive("at_most", message.at_most)
    if at_most < delay:
        raise InvalidField("at_most", "is shorter than debounce; give at least as much")
    return delay, Debounce(at_most)


def spread(message: Said) -> int:
    """Return the window over which timers are spread, in microseconds. Raises `InvalidField`."""
    return validate.delay(length("spread", message.spread), "spread") if message.HasField("spread") else 0


def _has(message: Said, field: str) -> bool:
    known = message.DESCRIPTOR.fields_by_name.get(field)
    if known is None:
        return False
    return message.HasField(field) if known.has_presence else bool(getattr(message, field))


def _positive(field: str, message: Duration) -> int:
    value = validate.delay(length(field, message), field)
    if not value:
        raise InvalidField(field, "is 0; give more")
    if value > LONGEST:
        raise InvalidField(field, "is longer than 1000 years; give less")
    return value
