"""Timers as an application sees them: what it schedules, and what stands in Redis."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Self, TypeAlias, TypedDict

from relay.client import arguments, errors
from relay.client.arguments import Seconds
from relay.client.calls.change_values import ChangeResult, OnConflict, not_sealed, read_result
from relay.v1 import timer_pb2, timer_service_pb2


def make_timer_id() -> str:
    """Return a fresh random timer_id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


class TimerState(enum.Enum):
    """Where a timer is in its life."""

    PENDING = "pending"
    """Waiting for its due time, for capacity or for its next attempt."""
    LEASED = "leased"
    """Held by a relay that delivers it right now."""
    UNKNOWN = "unknown"
    """A state that a newer relay knows and this client doesn't. It can't be asked for."""


_STATES = {
    timer_pb2.TIMER_STATE_PENDING: TimerState.PENDING,
    timer_pb2.TIMER_STATE_LEASED: TimerState.LEASED,
}
STATES_ON_THE_WIRE = {state: number for number, state in _STATES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTimer:
    """A timer to be scheduled. It is checked when it is made; `InvalidArgument` names the field.

    Give one of `delay`, `due_time` and `debounce`. A missing `timer_id` is made here and not at the call, so
    scheduling the same `NewTimer` again replaces the timer instead of adding one.

    >>> reminder = NewTimer(topic="invoices", payload=b"42", delay=5.0)
    """

    topic: str
    """1 to 256 bytes of UTF-8 without control characters and braces."""
    payload: bytes = field(repr=False)
    """The content; a str is refused."""
    delay: Seconds | None = None
    """The due time as a distance from now, by the clock of Redis: seconds or a timedelta."""
    due_time: datetime | None = None
    """The instant before which the timer is never delivered; an aware datetime."""
    timer_id: str = field(default_factory=make_timer_id)
    """The timer's name within its topic, under the rules of `topic`."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What travels beside the payload. Names and values have at most 64 KiB together."""
    content_type: str = ""
    """The media type of the payload, such as `application/json`."""
    expire_time: datetime | None = None
    """When the timer becomes useless: no delivery begins from then on. An aware datetime."""
    expire_after: Seconds | None = None
    """The same as a distance from the due time. Give at most one of the two."""
    debounce: Seconds | None = None
    """A delay that begins again with each timer of this id: seconds or a timedelta, more than 0. Without an
    expiry."""
    at_most: Seconds | None = None
    """How long after the first of such timers the last one is due at the latest. Only with `debounce`."""
    spread: Seconds | None = None
    """The length from the due time on over which timers are spread by their ids. Not with `debounce`."""
    seal_with: str = field(default="", repr=False)
    """Whom the payload is about, in a sealed topic: once this subject is forgotten, payload and headers never
    open again. Under the rules of `topic`; empty: nobody."""
    occurrence_id: str = ""
    """Your own name for this life of the timer: the `timer_id`, a slash, and the 32 hexadecimal digits of a
    UUID. Deliveries carry it. While it lives, the same name once more changes nothing. Not with `debounce`;
    empty: the relay makes one."""
    time_us: int = field(init=False, repr=False, compare=False)
    """`delay`, `due_time` or `debounce`, whichever is given, in microseconds."""
    apart_us: tuple[int, int, int] | None = field(init=False, repr=False, compare=False, default=None)
    """`debounce`, `at_most` and `spread` in microseconds, 0 for what is not given; None if all are not."""
    _expiry_us: int = field(init=False, repr=False, compare=False)
    _spec: timer_pb2.TimerSpec | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        """Refuse what is plainly wrong. Raises `InvalidArgument`."""
        # These are copies of its own, so that nobody changes them after the check.
        object.__setattr__(self, "payload", arguments.check_payload(self.payload))
        object.__setattr__(self, "headers", arguments.check_headers(self.headers))
        arguments.check_name(self.topic, "topic")
        arguments.check_name(self.timer_id, "timer_id")
        arguments.check_text(self.content_type, "content_type")
        if self.seal_with:
            arguments.check_name(self.seal_with, "seal_with")
        if self.occurrence_id:
            arguments.check_occurrence_id(self.occurrence_id, self.timer_id)
        if self.debounce is not None or self.at_most is not None or self.spread is not None:
            object.__setattr__(self, "apart_us", self._apart())
        object.__setattr__(self, "time_us", self._time())
        object.__setattr__(self, "_expiry_us", self._expiry())

    def to_proto(self) -> timer_pb2.TimerSpec:
        """Return the message for the wire, which is made once: most timers go by columns and need none.
        Callers must not change it."""
        spec = self._spec
        if spec is None:
            spec = self._message()
            object.__setattr__(self, "_spec", spec)
        return spec

    def _apart(self) -> tuple[int, int, int]:
        debounce, at_most, spread = (
            0 if value is None else arguments.to_micros(value, name)
            for name, value in (
                ("debounce", self.debounce),
                ("at_most", self.at_most),
                ("spread", self.spread),
            )
        )
        if self.debounce is None:
            if self.at_most is not None:
                raise errors.InvalidArgument("at_most must be given with debounce", field="at_most")
            return debounce, at_most, spread
        for name in ("delay", "due_time", "spread", "expire_time", "expire_after"):
            if getattr(self, name) is not None:
                raise errors.InvalidArgument(f"debounce can't be combined with {name}", field="debounce")
        if not debounce:
            raise errors.InvalidArgument("debounce must be more than 0", field="debounce")
        if self.at_most is not None and at_most < debounce:
            raise errors.InvalidArgument("at_most must not be less than debounce", field="at_most")
        return debounce, at_most, spread

    def _time(self) -> int:
        if self.delay is not None and self.due_time is None:
            return arguments.to_micros(self.delay, "delay")
        if self.due_time is not None and self.delay is None:
            return arguments.to_instant(self.due_time, "due_time")
        if self.apart_us is not None and self.debounce is not None:
            return self.apart_us[0]
        raise errors.InvalidArgument(
            "one of due_time, delay and debounce must be given, and only one", field="due_time"
        )

    def _expiry(self) -> int:
        """Return `expire_time` or `expire_after` in microseconds; 0 if neither is given."""
        if self.expire_time is not None:
            if self.expire_after is not None:
                raise errors.InvalidArgument(
                    "expire_time or expire_after may be given, and not both", field="expire_time"
                )
            expiry = arguments.to_instant(self.expire_time, "expire_time")
            if self.due_time is not None and expiry <= self.time_us:
                raise errors.InvalidArgument("expire_time must be after due_time", field="expire_time")
            return expiry
        if self.expire_after is None:
            return 0
        expiry = arguments.to_micros(self.expire_after, "expire_after")
        if not expiry:
            raise errors.InvalidArgument("expire_after must be more than 0", field="expire_after")
        return expiry

    def _message(self) -> timer_pb2.TimerSpec:
        spec = timer_pb2.TimerSpec(
            topic=self.topic,
            timer_id=self.timer_id,
            payload=self.payload,
            headers=self.headers,
            content_type=self.content_type,
            seal_with=self.seal_with,
            occurrence_id=self.occurrence_id,
        )
        if self.apart_us is not None:
            say_apart(spec, self.apart_us)
        if self.delay is not None:
            spec.delay.CopyFrom(arguments.duration(self.time_us))
        elif self.due_time is not None:
            spec.due_time.CopyFrom(arguments.timestamp(self.time_us))
        if self.expire_time is not None:
            spec.expire_time.CopyFrom(arguments.timestamp(self._expiry_us))
        elif self.expire_after is not None:
            spec.expire_after.CopyFrom(arguments.duration(self._expiry_us))
        return spec


def say_apart(
    message: timer_pb2.TimerSpec | timer_service_pb2.ScheduleColumnsRequest, apart_us: tuple[int, int, int]
) -> None:
    """Set `debounce`, `at_most` and `spread`."""
    for field_of, length in zip((message.debounce, message.at_most, message.spread), apart_us, strict=True):
        if length:
            field_of.CopyFrom(arguments.duration(length))


class TimerFields(TypedDict, total=False):
    """The fields of a `NewTimer` beside topic and payload, as arguments."""

    delay: Seconds | None
    due_time: datetime | None
    timer_id: str | None
    headers: Mapping[str, str] | None
    content_type: str
    expire_time: datetime | None
    expire_after: Seconds | None
    debounce: Seconds | None
    at_most: Seconds | None
    spread: Seconds | None
    seal_with: str
    occurrence_id: str


MAY_BE_NONE = ("timer_id", "headers")
"""The arguments for which None means that they are not given."""


class ScheduleOptions(TimerFields, total=False):
    """The keyword arguments of `schedule`, which both clients take; see `RelayClient.schedule`."""

    create_only: bool
    on_conflict: OnConflict | None
    only_if_pending: bool
    only_if_due_at: datetime | None
    durability: str
    expected_load: bool


class _InfoFields(TypedDict):
    topic: str
    timer_id: str
    due_time: datetime
    state: TimerState
    attempts: int
    next_claim_time: datetime


def _read_info(timer: timer_pb2.Timer) -> _InfoFields:
    claim = timer.next_claim_time if timer.HasField("next_claim_time") else timer.due_time
    return {
        "topic": timer.topic,
        "timer_id": timer.timer_id,
        "due_time": arguments.to_datetime(timer.due_time),
        "state": _STATES.get(timer.state, TimerState.UNKNOWN),
        "attempts": timer.attempts,
        "next_claim_time": arguments.to_datetime(claim),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerInfo:
    """A timer as it stands in Redis, without its content."""

    topic: str
    timer_id: str
    due_time: datetime
    """An aware datetime in UTC. Claims, retries and releases keep it."""
    state: TimerState
    attempts: int
    """How many attempts have counted so far."""
    next_claim_time: datetime
    """When it can be claimed next: the due time, the end of the lease or of the back-off. Aware, in UTC."""

    @classmethod
    def from_proto(cls, timer: timer_pb2.Timer) -> Self:
        """Read the message from the wire."""
        return cls(**_read_info(timer))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer(TimerInfo):
    """A timer as it stands in Redis, with its content."""

    payload: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content_type: str = ""
    content_withheld: bool = False
    """Whether the content is left out because the relay's policy does not let the caller see it."""

    @classmethod
    def from_proto(cls, timer: timer_pb2.Timer) -> Self:
        """Read the message from the wire."""
        return cls(
            **_read_info(timer),
            payload=timer.payload,
            headers=dict(timer.headers),
            content_type=timer.content_type,
            content_withheld=timer.content_withheld,
        )


_Told: TypeAlias = tuple[str, int, timer_pb2.ChangeResult, bool, str]
"""One timer of an answer by columns, as it came over the wire: its topic, its due time in microseconds, its
result, whether a delivery was under way, the durability. It is a plain tuple: one is made for each timer of a
batch."""


_STATE_AFTER = {
    ChangeResult.CREATED: TimerState.PENDING,
    ChangeResult.REPLACED: TimerState.PENDING,
    ChangeResult.IN_FLIGHT: TimerState.LEASED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLoad:
    """What a relay expects of a topic when a timer is due. It is a forecast: what is scheduled later, and
    what recurrences will make, is not in it."""

    lateness: timedelta | None
    """How late the first delivery is expected to begin. None while `rate` is."""
    rate: float | None
    """The best rate at which this relay has delivered the topic in the last 15 minutes: ended deliveries, a
    second of the time in which any was under way. None if it has delivered none."""
    timers_in_minute: int
    """The timers that fall due in the minute (of UTC) in which this one is due, and not before `as_of`."""
    as_of: datetime
    """When this was read, by the clock of Redis; aware and in UTC."""

    @classmethod
    def from_proto(cls, found: timer_service_pb2.ExpectedLoad) -> Self:
        """Read the message from the wire."""
        return cls(
            lateness=found.lateness.ToTimedelta() if found.HasField("lateness") else None,
            rate=found.rate if found.HasField("rate") else None,
            timers_in_minute=found.timers_in_minute,
            as_of=arguments.to_datetime(found.as_of),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTimer(TimerInfo):
    """A timer that was just stored. If `result` says so, it is the one that was left as it is.

    Only the `due_time` of a timer that was left is known; `get` reads the rest.
    """

    result: ChangeResult
    """CREATED, REPLACED, UNCHANGED or IN_FLIGHT; true if the timer was stored."""
    replaced: bool = False
    """Whether a timer with that id existed before. After a retried call that may be this one."""
    delivery_under_way: bool = False
    """Whether a relay was delivering the timer that existed before: its handler may still be running."""
    durability: str = "stored"
    """What the answer stands for: `stored`, `fsync`, `replicas:1`, `fsync+replicas:1`."""
    expected_load: ExpectedLoad | None = None
    """What load is expected when it is due, if that was asked for and the relay can tell."""

    @classmethod
    def from_response(cls, response: timer_service_pb2.ScheduleResponse) -> Self:
        """Read the message from the wire."""
        result = read_result(response.result)
        return cls(
            **_read_info(response.timer),
            result=result,
            replaced=response.replaced,
            delivery_under_way=response.delivery_under_way,
            durability=response.reached or "stored",
            expected_load=ExpectedLoad.from_proto(response.expected_load)
            if response.HasField("expected_load")
            else None,
        )

    @classmethod
    def from_columns(cls, timer_id: str, told: _Told) -> Self:
        """Read it from an answer by columns."""
        topic, due_us, number, under_way, durability = told
        result, due = read_result(number), arguments.from_micros(due_us)
        return cls(
            topic=topic,
            timer_id=timer_id,
            due_time=due,
            state=_STATE_AFTER.get(result, TimerState.UNKNOWN),
            attempts=0,
            next_claim_time=due,
            result=result,
            replaced=result is ChangeResult.REPLACED,
            delivery_under_way=under_way,
            durability=durability,
        )


class ScheduleResult(NamedTuple):
    """The fate of one timer of a batch: `timer` is set if it exists now, otherwise `error` is.

    >>> for result in await client.schedule_batch(timers):      # doctest: +SKIP
    ...     if result.error is not None:
    ...         print(result.timer_id, result.error)

    It is a tuple because tuples are quick to make. Read it by its names: the rest of it may change.
    """

    timer_id: str
    error: errors.CallError | None = None
    told: timer_service_pb2.ScheduleResponse | _Told | None = None
    """What `timer` is read from. It is private to this class."""

    def __repr__(self) -> str:
        return f"ScheduleResult(timer_id={self.timer_id!r}, error={self.error!r})"

    @property
    def timer(self) -> ScheduledTimer | None:
        """What was stored, or was there. It is read on demand, since nobody looks at most results."""
        told = self.told
        if isinstance(told, tuple):
            return ScheduledTimer.from_columns(self.timer_id, told)
        return None if told is None else ScheduledTimer.from_response(told)

    @property
    def ok(self) -> bool:
        """Whether the timer exists: it was stored, or the one that was there stands."""
        return self.error is None

    @classmethod
    def from_proto(cls, new: NewTimer, result: timer_service_pb2.ScheduleResult) -> Self:
        """Read the message from the wire."""
        if result.WhichOneof("result") == "scheduled":
            if new.seal_with and not result.scheduled.sealed_with_subject:
                return cls(new.timer_id, not_sealed())
            return cls(new.timer_id, None, result.scheduled)
        return cls.refused(new, result.error)

    @classmethod
    def refused(cls, new: NewTimer, failure: timer_service_pb2.ItemError) -> Self:
        """Read why it was not stored."""
        return cls(
            new.timer_id,
            errors.make(failure.code, failure.message, field=failure.field, reason=failure.reason),
        )
