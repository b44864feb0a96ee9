"""`TimerService` and `RecurrenceService` in memory, with the same checks and the same answers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from relay.api import replies, translate
from relay.api.columns import RequestColumns, tell
from relay.api.intents import on_conflict
from relay.client import errors, trace_context
from relay.client.calls.channel import (
    CANCEL,
    GET,
    LIST,
    RECURRENCE_METHODS,
    RUN,
    SCHEDULE,
    SCHEDULE_BATCH,
    SCHEDULE_COLUMNS,
    Method,
)
from relay.client.calls.timer_values import STATES_ON_THE_WIRE, TimerState
from relay.core import validate
from relay.core.errors import ServiceError, TimerNotFound, TopicFull
from relay.core.partitions import Layout
from relay.core.policy import TopicPolicy
from relay.core.timers import Change, NewTimer, Scheduled
from relay.core.timers import TimerState as StoredState
from relay.store.memory import MemoryStore
from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as pb

if TYPE_CHECKING:
    from relay.client.testing.recurring import MemoryRecurring

_STATES = {
    timer_pb2.TIMER_STATE_UNSPECIFIED: None,
    STATES_ON_THE_WIRE[TimerState.PENDING]: StoredState.PENDING,
    STATES_ON_THE_WIRE[TimerState.LEASED]: StoredState.LEASED,
}
_T = TypeVar("_T")

RULES = "recurrences in memory need cronsim, python-dateutil and tzdata: pip install 'relay-timers[rules]'"
_RECURRING = {method.name for method in RECURRENCE_METHODS}


def at_once(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Return the result of a coroutine that never waits, as those of `MemoryStore`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} waited")


@dataclass(slots=True)
class MemoryState:
    """What the parts of a relay in memory share: its clock (microseconds), the timers, the policy of every
    topic, and the lock under which they are used."""

    clock: int
    store: MemoryStore
    policy: TopicPolicy
    lock: threading.RLock
    recurring: MemoryRecurring | None = None
    """The recurrences, from the first call about one on."""


class MemoryService:
    """Answers calls from the store. Any number of threads may use it at once."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._store = state.store
        self._lock = state.lock
        self._policy = state.policy
        self._answers: dict[str, Callable[[Any], Message]] = {
            SCHEDULE.name: self._schedule,
            SCHEDULE_BATCH.name: self._schedule_batch,
            SCHEDULE_COLUMNS.name: self._schedule_columns,
            RUN.name: self._run,
            CANCEL.name: self._cancel,
            GET.name: self._get,
            LIST.name: self._list,
        }

    def answer(self, method: Method[Any, Any], request: Message) -> Message:
        """Answer one call. Raises `CallError`, or `UsageError` where it is about recurrences and what their
        rules need is not installed."""
        with self._lock:
            answer = self._answers.get(method.name) or self._recurring(method.name)
            if answer is None:
                raise errors.make(StatusCode.UNIMPLEMENTED, f"the relay in memory has no {method.name}")
            try:
                return answer(request)
            except ServiceError as failure:
                raise _error(failure) from None

    def _recurring(self, name: str) -> Callable[[Any], Message] | None:
        """What answers a call about recurrences; None if it is about something else."""
        if name not in _RECURRING:
            return None
        if self._state.recurring is None:
            try:
                from relay.client.testing.recurring import MemoryRecurring
            except ImportError as missing:
                raise errors.UsageError(f"{RULES} ({missing})") from missing
            self._state.recurring = MemoryRecurring(self._state)
        answer = self._state.recurring.answers.get(name)
        return None if answer is None else lambda request: at_once(answer(request))

    def _schedule(self, request: pb.ScheduleRequest) -> pb.ScheduleResponse:
        spec, said = request.timer, on_conflict(request)
        topic = validate.topic("topic", spec.topic)
        timer_id = spec.timer_id or uuid.uuid4().hex
        trace = dict(trace_context.inject())
        condition = translate.condition(request.condition)
        limit = self._policy.max_payload_bytes
        level = translate.durability(request.durability)
        new = translate.new_timer(spec, timer_id, limit, trace, said=said, condition=condition, sealed=True)
        result = self._put(topic, new)
        return pb.ScheduleResponse(**replies.scheduled(topic, timer_id, result, level, spec.seal_with))

    def _put(self, topic: str, new: NewTimer) -> Scheduled:
        (result,) = at_once(self._store.schedule(topic, [new], max_waiting=self._policy.max_waiting))
        if result.change is Change.GONE:
            raise TimerNotFound.of(topic, new.timer_id)
        if result.change is Change.FULL:
            raise TopicFull.of(topic, self._policy.max_waiting)
        return result

    def _schedule_batch(self, request: pb.ScheduleBatchRequest) -> pb.ScheduleBatchResponse:
        return pb.ScheduleBatchResponse(
            results=[
                self._result(
                    pb.ScheduleRequest(
                        timer=spec,
                        mode=request.mode,
                        on_conflict=request.on_conflict,
                        durability=request.durability,
                    )
                )
                for spec in request.timers
            ]
        )

    def _result(self, request: pb.ScheduleRequest) -> pb.ScheduleResult:
        try:
            return pb.ScheduleResult(scheduled=self._schedule(request))
        except ServiceError as failure:
            return pb.ScheduleResult(error=replies.item_error(failure))

    def _schedule_columns(self, request: pb.ScheduleColumnsRequest) -> pb.ScheduleColumnsResponse:
        topic = validate.topic("topic", request.topic)
        limit = self._policy.max_payload_bytes
        columns = RequestColumns(request, limit, dict(trace_context.inject()), sealed=True)
        level = translate.durability(request.durability)
        response = pb.ScheduleColumnsResponse(reached=replies.reached(level))
        if request.seal_with:
            response.sealed_with_subject = True
        columns.read(slice(0, len(request.timer_ids)))
        tell(response, columns.outcomes([self._outcome(topic, new) for new in columns.timers]))
        return response

    def _outcome(self, topic: str, new: NewTimer) -> Scheduled | ServiceError:
        try:
            return self._put(topic, new)
        except ServiceError as failure:
            return failure

    def _cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        topic, timer_id = _names(request)
        condition, level = translate.condition(request.condition), translate.durability(request.durability)
        (changed,) = at_once(self._store.cancel(topic, [timer_id], condition))
        change, under_way = changed
        return pb.CancelResponse(
            cancelled=change is Change.CANCELLED,
            result=replies.RESULTS[change],
            delivery_under_way=under_way,
            reached=replies.reached(level),
        )

    def _run(self, request: pb.RunTimerRequest) -> pb.RunTimerResponse:
        topic, timer_id = _names(request)
        level = translate.durability(request.durability)
        (changed,) = at_once(self._store.run(topic, [timer_id]))
        change, under_way = changed
        if change is Change.GONE:
            raise TimerNotFound.of(topic, timer_id)
        return pb.RunTimerResponse(
            result=replies.RESULTS[change], delivery_under_way=under_way, reached=replies.reached(level)
        )

    def _get(self, request: pb.GetTimerRequest) -> pb.GetTimerResponse:
        topic, timer_id = _names(request)
        stored = at_once(self._store.get(topic, timer_id))
        if stored is None:
            raise TimerNotFound.of(topic, timer_id)
        return pb.GetTimerResponse(timer=replies.timer(topic, stored))

    def _list(self, request: pb.ListTimersRequest) -> pb.ListTimersResponse:
        topic = validate.topic("topic", request.topic)
        found = at_once(
            self._store.list(
                Layout(topic),
                state=_STATES[request.state],
                limit=request.page_size,
                cursor=request.page_token,
            )
        )
        timers = [replies.timer(topic, stored) for stored in found.timers]
        return pb.ListTimersResponse(timers=timers, next_page_token=found.cursor)


def _names(request: pb.CancelRequest | pb.GetTimerRequest | pb.RunTimerRequest) -> tuple[str, str]:
    return validate.topic("topic", request.topic), validate.name("timer_id", request.timer_id)


def _error(failure: ServiceError) -> errors.CallError:
    """Return the error with which a call would end."""
    told = replies.item_error(failure)
    return errors.make(told.code, told.message, field=told.field, reason=told.reason)
