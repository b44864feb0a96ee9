"""`TimerService` in memory: the same checks, the same answers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from relay.client import errors, tracing
from relay.client.timers import STATES_ON_THE_WIRE, TimerState
from relay.client.wire import CANCEL, GET, LIST, SCHEDULE, SCHEDULE_BATCH, Method
from relay.core import validate
from relay.core.errors import InvalidField
from relay.core.timers import TimerState as StoredState
from relay.rpc import translate
from relay.store.memory import MemoryStore
from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as pb

_STATES = {
    timer_pb2.TIMER_STATE_UNSPECIFIED: None,
    STATES_ON_THE_WIRE[TimerState.PENDING]: StoredState.PENDING,
    STATES_ON_THE_WIRE[TimerState.LEASED]: StoredState.LEASED,
}
_T = TypeVar("_T")


def at_once(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that waits for nothing, as those of `MemoryStore` do."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} waited")


class MemoryService:
    """Answers calls from the store; for any number of threads at once."""

    def __init__(self, store: MemoryStore, lock: threading.RLock, max_payload_bytes: int) -> None:
        self._store = store
        self._lock = lock
        self._max_payload_bytes = max_payload_bytes
        self._answers: dict[str, Callable[[Any], Message]] = {
            SCHEDULE.name: self._schedule,
            SCHEDULE_BATCH.name: self._schedule_batch,
            CANCEL.name: self._cancel,
            GET.name: self._get,
            LIST.name: self._list,
        }

    def answer(self, method: Method[Any, Any], request: Message) -> Message:
        """Answer one call. Raises `CallError`."""
        with self._lock:
            try:
                return self._answers[method.name](request)
            except InvalidField as failure:
                raise errors.InvalidArgument(str(failure), field=failure.field) from None

    def _schedule(self, request: pb.ScheduleRequest) -> pb.ScheduleResponse:
        spec = request.timer
        topic = validate.name("topic", spec.topic)
        timer_id = spec.timer_id or uuid.uuid4().hex
        trace = dict(tracing.inject())
        new = translate.new_timer(spec, timer_id, self._max_payload_bytes, trace)
        (result,) = at_once(self._store.schedule(topic, [new]))
        return translate.scheduled(topic, timer_id, result)

    def _schedule_batch(self, request: pb.ScheduleBatchRequest) -> pb.ScheduleBatchResponse:
        return pb.ScheduleBatchResponse(results=[self._result(spec) for spec in request.timers])

    def _result(self, spec: timer_pb2.TimerSpec) -> pb.ScheduleResult:
        try:
            return pb.ScheduleResult(scheduled=self._schedule(pb.ScheduleRequest(timer=spec)))
        except InvalidField as failure:
            code: int = grpc.StatusCode.INVALID_ARGUMENT.value[0]
            error = pb.ItemError(code=code, message=str(failure), field=failure.field)
            return pb.ScheduleResult(error=error)

    def _cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        topic, timer_id = _names(request)
        (cancelled,) = at_once(self._store.cancel(topic, [timer_id]))
        return pb.CancelResponse(cancelled=cancelled)

    def _get(self, request: pb.GetTimerRequest) -> pb.GetTimerResponse:
        topic, timer_id = _names(request)
        stored = at_once(self._store.get(topic, timer_id))
        if stored is None:
            raise errors.NotFound(f"topic {topic!r} has no timer {timer_id!r}")
        return pb.GetTimerResponse(timer=translate.timer(topic, stored))

    def _list(self, request: pb.ListTimersRequest) -> pb.ListTimersResponse:
        topic = validate.name("topic", request.topic)
        found = at_once(
            self._store.list(
                topic, state=_STATES[request.state], limit=request.page_size, cursor=request.page_token
            )
        )
        timers = [translate.timer(topic, stored) for stored in found.timers]
        return pb.ListTimersResponse(timers=timers, next_page_token=found.cursor)


def _names(request: pb.CancelRequest | pb.GetTimerRequest) -> tuple[str, str]:
    return validate.name("topic", request.topic), validate.name("timer_id", request.timer_id)
