"""Writes what calls answer: results, errors and timers become protobuf messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay.api.errors import kind
from relay.api.times import timestamp
from relay.api.translate import text
from relay.core.durability import STORED, Durability
from relay.core.errors import InvalidField, ServiceError
from relay.core.instants import SECOND
from relay.core.recurring.expected_load import ExpectedLoad
from relay.core.recurring.forecast import Forecast, Window
from relay.core.timers import NO_CONTENT, Change, Content, Scheduled, StoredTimer, TimerState
from relay.v1 import timer_pb2 as pb
from relay.v1 import timer_service_pb2 as service
from relay.v1 import topic_service_pb2 as topics

RESULTS = {
    Change.CREATED: pb.CHANGE_RESULT_CREATED,
    Change.REPLACED: pb.CHANGE_RESULT_REPLACED,
    Change.UNCHANGED: pb.CHANGE_RESULT_UNCHANGED,
    Change.IN_FLIGHT: pb.CHANGE_RESULT_IN_FLIGHT,
    Change.CANCELLED: pb.CHANGE_RESULT_CANCELLED,
    Change.GONE: pb.CHANGE_RESULT_NOT_FOUND,
    Change.RUN: pb.CHANGE_RESULT_RUN,
}
STATES = {TimerState.PENDING: pb.TIMER_STATE_PENDING, TimerState.LEASED: pb.TIMER_STATE_LEASED}


def reached(level: Durability) -> str:
    """Say which durability an answer stands for."""
    return str(level) if level.waits else ""


def scheduled(
    topic: str, timer_id: str, result: Scheduled, level: Durability, seal_with: str = ""
) -> dict[str, Any]:
    """Return the fields of a ScheduleResponse as a dict: protobuf makes nested messages of it in place, which
    takes less than half as long as copying one message into the next. `seal_with` is the timer's subject."""
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
        "reached": reached(level),
        "sealed_with_subject": True if seal_with else None,
    }


def item_error(failure: ServiceError) -> service.ItemError:
    """Say why one item of many failed."""
    field = failure.field if isinstance(failure, InvalidField) else ""
    what = kind(failure)
    return service.ItemError(code=what.code, message=str(failure), field=field, reason=what.reason)


def forecast(topic: str, window: Window, found: Forecast) -> topics.ForecastResponse:
    """Say what falls due."""
    message = topics.ForecastResponse(
        topic=topic,
        as_of=timestamp(found.since),
        overdue=found.overdue,
        leased=found.leased,
        later=found.later,
        occurrences_until=None if found.until is None else timestamp(found.until),
        unread_recurrences=found.unread,
    )
    cold = found.cold
    if cold is not None:
        message.cold.MergeFrom(
            topics.ColdForecast(count_time=timestamp(cold.counted), overdue=cold.overdue, later=cold.later)
        )
    for number, (timers, occurrences) in enumerate(zip(found.timers, found.occurrences, strict=True)):
        start, end = window.bounds(found.since, number)
        message.intervals.add(
            start_time=timestamp(start),
            end_time=timestamp(end),
            timers=timers,
            occurrences=occurrences,
            cold=0 if cold is None else cold.timers[number],
        )
    return message


def expected_load(found: ExpectedLoad) -> service.ExpectedLoad:
    """Say what load is expected."""
    message = service.ExpectedLoad(
        rate=found.rate, timers_in_minute=found.in_minute, as_of=timestamp(found.read)
    )
    if found.lateness is not None:
        message.lateness.FromMicroseconds(found.lateness)
    return message


class ScheduleResults:
    """Makes a ScheduleBatchResponse, result by result.

    Each result is a response of its own, in bytes. Several responses in a row are one response with all their
    results (protobuf.dev, Encoding, "Last One Wins"). One message is filled again for each stored timer,
    since most of it stays the same: writing it takes less time than copying it into another message.
    """

    def __init__(self, level_of: Callable[[str], Durability] = lambda _: STORED) -> None:
        """`level_of` tells the durability that the results of a topic stand for."""
        self._level_of = level_of
        self.response = service.ScheduleBatchResponse()
        """The response with all results that were joined."""
        self._written: list[bytes] = []
        self._one = service.ScheduleBatchResponse()
        self._scheduled = self._one.results.add().scheduled
        self._timer = self._scheduled.timer
        self._timer.state = pb.TIMER_STATE_PENDING
        self._due, self._next_claim = self._timer.due_time, self._timer.next_claim_time
        self._said: tuple[str, int, Change, bool, bool] | None = None

    def add(self, topic: str, timer_id: str, result: Scheduled, seal_with: str = "") -> None:
        """Add the result of a stored timer, which has this subject."""
        if not result.stored or result.due is None:
            self._write(service.ScheduleResult(scheduled=self._whole(topic, timer_id, result, seal_with)))
            return
        said = topic, result.due, result.change, result.delivery_under_way, bool(seal_with)
        if said != self._said:  # timers with one delay are due at one instant
            self._said = said
            self._scheduled.reached = reached(self._level_of(topic))
            self._scheduled.replaced = result.change is Change.REPLACED
            self._scheduled.result = RESULTS[result.change]
            self._scheduled.delivery_under_way = result.delivery_under_way
            seconds, rest = divmod(result.due, SECOND)
            self._due.seconds = self._next_claim.seconds = seconds
            self._due.nanos = self._next_claim.nanos = rest * 1000
            self._timer.topic = topic
            if seal_with:
                self._scheduled.sealed_with_subject = True
            else:
                self._scheduled.ClearField("sealed_with_subject")
        self._timer.timer_id = timer_id
        self._written.append(self._one.SerializeToString())

    def _whole(
        self, topic: str, timer_id: str, result: Scheduled, seal_with: str
    ) -> service.ScheduleResponse:
        return service.ScheduleResponse(
            **scheduled(topic, timer_id, result, self._level_of(topic), seal_with)
        )

    def refuse(self, failure: ServiceError) -> None:
        """Add why a timer was not stored."""
        self._write(service.ScheduleResult(error=item_error(failure)))

    def join(self) -> None:
        """Move the results since the last call into the response, in portions, so that none takes long."""
        self.response.MergeFromString(b"".join(self._written))
        self._written.clear()

    def _write(self, result: service.ScheduleResult) -> None:
        self._written.append(service.ScheduleBatchResponse(results=[result]).SerializeToString())


def timer(topic: str, stored: StoredTimer, *, with_content: bool = True) -> pb.Timer:
    """Translate a stored timer; without its content if the caller may not see it."""
    content = Content.of(stored) if with_content else NO_CONTENT
    message = pb.Timer(
        topic=topic,
        timer_id=text(stored.timer_id),
        due_time=timestamp(stored.due),
        **content.fields(),
        state=STATES[stored.state],
        attempts=stored.attempts,
        next_claim_time=timestamp(stored.next_claim),
    )
    if not with_content:
        message.content_withheld = True
    return message
