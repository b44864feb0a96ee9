"""The calls of TimerService: what is asked, what the answer means, and when to try again.

Each is a generator of steps that knows neither an event loop nor a thread: `run` takes the steps on
asyncio, `run_blocking` takes them in a thread. So both clients do the same by construction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, Unpack

from google.protobuf.message import Message

from relay.client import arguments, errors
from relay.client.calls.backoff import RetryBackoff
from relay.client.calls.change_values import (
    ChangeResult,
    OnConflict,
    TimerChange,
    check_sealed,
    condition,
    meeting,
    read_reached,
    read_result,
)
from relay.client.calls.channel import (
    CANCEL,
    GET,
    LIST,
    RUN,
    SCHEDULE,
    Method,
    Request,
    Response,
    SyncWire,
    Wire,
)
from relay.client.calls.timer_values import (
    MAY_BE_NONE,
    STATES_ON_THE_WIRE,
    NewTimer,
    ScheduledTimer,
    Timer,
    TimerFields,
    TimerInfo,
    TimerState,
)
from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as pb

TRY_TIMEOUT = 1.0
"""Seconds that the first try of a call that changes something may take. If a relay is so slow that it does
not answer within them, the next try may take twice as long."""

DURABLE_TRY_TIMEOUT = 3.0
"""The same of a call that names a durability: a server syncs its disk once a second, or more often."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """Make this call. Its answer is the response, or the `CallError` that is raised."""

    method: Method[Any, Any]
    request: Message
    timeout: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait this number of seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Together:
    """Take these, which begin in this order, `at_once` at a time where that is possible. The answer is the
    list of their results, or the first `CallError`, which is raised once none is under way any more."""

    steps: Iterable[Steps[Any]]
    at_once: int


Steps: TypeAlias = Generator[Attempt | Pause | Together, Any, _T]  # see 0025


async def run(wire: Wire, steps: Steps[_T]) -> _T:
    """Take the steps on the running event loop."""
    answer: Any = None
    failure: errors.CallError | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as end:
            result: _T = end.value
            return result
        answer, failure = None, None
        try:
            if isinstance(step, Attempt):
                answer = await wire.call(step.method, step.request, step.timeout)
            elif isinstance(step, Together):
                answer = await _together(wire, step)
            else:
                await asyncio.sleep(step.seconds)
        except errors.CallError as error:
            failure = error


async def _together(wire: Wire, step: Together) -> list[Any]:
    """Return the results of all.

    This has a race: one call fails, the caller is told so and goes on to something else, and then a call
    beside it acts. So after the first error none begins, and the error is raised once those that are under
    way have ended.
    """
    numbered = enumerate(step.steps)
    results: dict[int, Any] = {}
    failures: list[Exception] = []

    async def work() -> None:
        try:
            while not failures and (following := next(numbered, None)) is not None:
                number, steps = following
                results[number] = await run(wire, steps)
        except Exception as failure:  # noqa: BLE001  (it is raised below)
            failures.append(failure)

    workers = [asyncio.create_task(work()) for _ in range(step.at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(results))]


def run_blocking(wire: SyncWire, steps: Steps[_T]) -> _T:
    """Take the steps in the calling thread."""
    answer: Any = None
    failure: errors.CallError | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as end:
            result: _T = end.value
            return result
        answer, failure = None, None
        try:
            if isinstance(step, Attempt):
                answer = wire.call(step.method, step.request, step.timeout)
            elif isinstance(step, Together):
                answer = [run_blocking(wire, each) for each in step.steps]
            else:
                time.sleep(step.seconds)
        except errors.CallError as error:
            failure = error


def schedule(
    topic: str,
    payload: bytes,
    *,
    timeout: float,
    create_only: bool = False,
    on_conflict: OnConflict | None = None,
    only_if_pending: bool = False,
    only_if_due_at: datetime | None = None,
    durability: str = "",
    expected_load: bool = False,
    **fields: Unpack[TimerFields],
) -> Steps[ScheduledTimer]:
    """Store one timer. Raises `InvalidArgument` or another `CallError`."""
    required = condition(only_if_pending=only_if_pending, only_if_due_at=only_if_due_at)
    said = meeting(create_only=create_only, on_conflict=on_conflict)
    if required is not None and (create_only or on_conflict is OnConflict.KEEP_EXISTING):
        raise errors.InvalidArgument(
            "create_only can't be combined with only_if_pending or only_if_due_at",
            field="create_only",
        )
    if required is not None and fields.get("timer_id") is None:
        raise errors.InvalidArgument(
            "timer_id must be given with only_if_pending or only_if_due_at", field="timer_id"
        )
    given: dict[str, Any] = {
        name: value for name, value in fields.items() if value is not None or name not in MAY_BE_NONE
    }
    new = NewTimer(topic=topic, payload=payload, **given)
    if new.debounce is not None:
        _check_debounce(fields, alone=required is None and not create_only and on_conflict is None)
    request = pb.ScheduleRequest(
        timer=new.to_proto(),
        condition=required,
        durability=durability,
        expected_load=expected_load,
        **said,
    )
    response = yield from call(SCHEDULE, request, timeout)
    read_reached(durability, response.reached)
    check_sealed(new.seal_with, told=response.sealed_with_subject)
    return ScheduledTimer.from_response(response)


def cancel(
    topic: str,
    timer_id: str,
    *,
    only_if_pending: bool,
    only_if_due_at: datetime | None,
    only_if_leased: bool = False,
    durability: str,
    timeout: float,
) -> Steps[TimerChange]:
    """Remove a timer."""
    _check_names(topic, timer_id)
    required = condition(
        only_if_pending=only_if_pending, only_if_due_at=only_if_due_at, only_if_leased=only_if_leased
    )
    request = pb.CancelRequest(topic=topic, timer_id=timer_id, condition=required, durability=durability)
    response = yield from call(CANCEL, request, timeout)
    return TimerChange(
        result=read_result(response.result),
        delivery_under_way=response.delivery_under_way,
        durability=read_reached(durability, response.reached),
    )


def run_timer(topic: str, timer_id: str, note: str, durability: str, timeout: float) -> Steps[TimerChange]:
    """Make a timer due now."""
    _check_names(topic, timer_id)
    request = pb.RunTimerRequest(
        topic=topic, timer_id=timer_id, note=arguments.check_note(note), durability=durability
    )
    try:
        response = yield from call(RUN, request, timeout)
    except errors.NotFound:
        return TimerChange(result=ChangeResult.NOT_FOUND, delivery_under_way=False)
    return TimerChange(
        result=read_result(response.result),
        delivery_under_way=response.delivery_under_way,
        durability=read_reached(durability, response.reached),
    )


def get(topic: str, timer_id: str, timeout: float) -> Steps[Timer | None]:
    """Read a timer, or None."""
    _check_names(topic, timer_id)
    try:
        response = yield from call(GET, pb.GetTimerRequest(topic=topic, timer_id=timer_id), timeout)
    except errors.NotFound:
        return None
    return Timer.from_proto(response.timer)


def page(
    topic: str, state: TimerState | None, page_size: int, token: str, timeout: float
) -> Steps[tuple[list[TimerInfo], str]]:
    """Read one page of a topic, and the token of the next page. An empty token ends the listing."""
    request = pb.ListTimersRequest(
        topic=topic,
        state=timer_pb2.TIMER_STATE_UNSPECIFIED if state is None else STATES_ON_THE_WIRE[state],
        page_size=page_size,
        page_token=token,
    )
    response = yield from call(LIST, request, timeout)
    return [TimerInfo.from_proto(timer) for timer in response.timers], response.next_page_token


def check_list(topic: str, state: TimerState | None, page_size: int) -> None:
    """Refuse what is plainly wrong before the first page is requested. Raises `InvalidArgument`."""
    arguments.check_name(topic, "topic")
    arguments.check_count(page_size, "page_size", 1, 500)
    if state is not None and state not in STATES_ON_THE_WIRE:
        raise errors.InvalidArgument("state must be PENDING, LEASED or None", field="state")


def call(
    method: Method[Request, Response], request: Request, timeout: float, *, patience: int = 1
) -> Steps[Response]:
    """Call, and call again while the relay is UNAVAILABLE or silent, or names a pause since this caller is
    over a bound, for `timeout` seconds in all. The first try takes `patience` times as long as usual, where
    it changes something.

    All our calls may be repeated: they name the timer. This has a race: a try is held up on its way, a second
    one is answered, and its caller goes on to something else. Then the first one acts. So no try of a call
    that changes something begins while an earlier one may still act, and no error is raised before: each try
    has a short deadline of its own, and the next one waits for a relay's answer or for that deadline.
    Raises `CallError`.
    """
    end = time.monotonic() + timeout
    life = patience * _try_timeout(request) if method.changes else timeout
    backoff = retry_backoff()
    missed: errors.NotDurable | None = None  # it says more than a last try that had no time
    while True:
        limit = min(life, max(end - time.monotonic(), 0.001))
        over = time.monotonic() + limit
        try:
            response: Response = yield Attempt(method, request, limit)
        except errors.Unavailable as error:
            pause = max(backoff.next(), error.retry_after or 0.0)
            missed = error if isinstance(error, errors.NotDurable) else missed
            life *= 1 + isinstance(error, errors.NotDurable)
            if method.changes and error.unanswered:
                yield Pause(max(over - time.monotonic(), 0.0))
                pause = 0.0
            if time.monotonic() + pause >= end:
                raise missed or error from None
        except errors.ResourceExhausted as error:
            pause = pause_after(error, backoff, end, missed)
        except errors.DeadlineExceeded:
            if not method.changes:
                raise
            yield Pause(max(over - time.monotonic(), 0.0))
            pause = 0.0
            if over >= end:
                raise
            life *= 2
        else:
            return response
        yield Pause(pause)


def retry_backoff() -> RetryBackoff:
    """The pauses between the tries of a call."""
    return RetryBackoff(_FIRST_PAUSE, _LONGEST_PAUSE)


def pause_after(
    refused: errors.ResourceExhausted,
    backoff: RetryBackoff,
    end: float,
    missed: errors.NotDurable | None = None,
) -> float:
    """How long to wait after a refusal, which had no effect. Raises it if it names no pause, or there is no
    time for one; or what an earlier try `missed`, which may stand."""
    pause = max(backoff.next(), refused.retry_after or 0.0)
    if refused.retry_after is None or time.monotonic() + pause >= end:
        raise missed or refused from None
    return pause


def _try_timeout(request: Message) -> float:
    return DURABLE_TRY_TIMEOUT if getattr(request, "durability", "") else TRY_TIMEOUT


def _check_debounce(fields: TimerFields, *, alone: bool) -> None:
    if fields.get("timer_id") is None:
        raise errors.InvalidArgument("timer_id must be given with debounce", field="timer_id")
    if not alone:
        raise errors.InvalidArgument(
            "debounce can't be combined with create_only, on_conflict, only_if_pending or only_if_due_at",
            field="debounce",
        )


def _check_names(topic: str, timer_id: str) -> None:
    arguments.check_name(topic, "topic")
    arguments.check_name(timer_id, "timer_id")
