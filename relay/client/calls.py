"""The calls of TimerService, with retries and with errors of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import grpc
import grpc.aio

from relay.client import arguments, errors, tracing
from relay.client.backoff import Backoff
from relay.client.timers import (
    STATES_ON_THE_WIRE,
    NewTimer,
    ScheduledTimer,
    ScheduleResult,
    Timer,
    TimerInfo,
    TimerState,
)
from relay.client.wire import Metadata, Unary, Wire, _Request, _Response
from relay.v1 import timer_pb2
from relay.v1 import timer_service_pb2 as pb

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
MAX_BATCH_TIMERS = 1_000
MAX_BATCH_BYTES = 2 * 1024 * 1024
"""A call of `schedule_batch` holds at most this many bytes, or one timer: servers refuse big
messages (gRPC's default is 4 MiB)."""


async def call(
    method: Unary[_Request, _Response], request: _Request, timeout: float, metadata: Metadata = ()
) -> _Response:
    """Call, and again while the relay is UNAVAILABLE, for `timeout` seconds in all.

    All our calls may be repeated: they name the timer. Raises `CallError`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
    while True:
        try:
            return await _call_once(method, request, max(deadline - loop.time(), 0.001), metadata)
        except errors.Unavailable as error:
            pause = max(backoff.next(), error.retry_after or 0.0)
            if loop.time() + pause >= deadline:
                raise
        await asyncio.sleep(pause)


async def _call_once(
    method: Unary[_Request, _Response], request: _Request, timeout: float, metadata: Metadata
) -> _Response:
    try:
        return await method(request, timeout=timeout, metadata=metadata)
    except grpc.aio.AioRpcError as error:
        raise errors.from_rpc(error) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # gRPC says it in this way when the channel closes; nobody cancelled this task.
        raise errors.make(grpc.StatusCode.CANCELLED, "the client was closed") from None


async def schedule(wire: Wire, new: NewTimer, timeout: float) -> ScheduledTimer:
    """Store one timer."""
    request = pb.ScheduleRequest(timer=new.to_proto())
    return ScheduledTimer.from_response(await call(wire.schedule, request, timeout, tracing.inject()))


async def schedule_batch(wire: Wire, timers: Sequence[NewTimer], timeout: float) -> list[ScheduleResult]:
    """Store many timers, in as many calls as their size asks for; `timeout` is for each."""
    results: list[ScheduleResult] = []
    for chunk in _chunks([new.to_proto() for new in timers]):
        request = pb.ScheduleBatchRequest(timers=chunk)
        response = await call(wire.schedule_batch, request, timeout, tracing.inject())
        asked = timers[len(results) : len(results) + len(chunk)]
        results += [
            ScheduleResult.from_proto(new, result)
            for new, result in zip(asked, response.results, strict=True)
        ]
    return results


def _chunks(specs: Sequence[timer_pb2.TimerSpec]) -> Iterator[list[timer_pb2.TimerSpec]]:
    chunk: list[timer_pb2.TimerSpec] = []
    size = 0
    for spec in specs:
        weight = spec.ByteSize() + 8
        if chunk and (len(chunk) >= MAX_BATCH_TIMERS or size + weight > MAX_BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(spec)
        size += weight
    if chunk:
        yield chunk


async def cancel(wire: Wire, topic: str, timer_id: str, timeout: float) -> bool:
    """Remove a timer; tell whether there was one."""
    _check_names(topic, timer_id)
    request = pb.CancelRequest(topic=topic, timer_id=timer_id)
    return (await call(wire.cancel, request, timeout)).cancelled


async def get(wire: Wire, topic: str, timer_id: str, timeout: float) -> Timer | None:
    """Read a timer, or None."""
    _check_names(topic, timer_id)
    request = pb.GetTimerRequest(topic=topic, timer_id=timer_id)
    try:
        return Timer.from_proto((await call(wire.get, request, timeout)).timer)
    except errors.NotFound:
        return None


async def list_timers(
    wire: Wire, topic: str, state: TimerState | None, page_size: int, timeout: float
) -> AsyncIterator[TimerInfo]:
    """Read a topic page by page; `timeout` is for each page."""
    token = ""
    while True:
        request = pb.ListTimersRequest(
            topic=topic,
            state=timer_pb2.TIMER_STATE_UNSPECIFIED if state is None else STATES_ON_THE_WIRE[state],
            page_size=page_size,
            page_token=token,
        )
        page = await call(wire.list, request, timeout)
        for timer in page.timers:
            yield TimerInfo.from_proto(timer)
        token = page.next_page_token
        if not token:
            return


def check_list(topic: str, state: TimerState | None, page_size: int) -> None:
    """Refuse what is plainly wrong before the first page is asked for."""
    arguments.check_name(topic, "topic")
    arguments.check_count(page_size, "page_size", 1, 500)
    if state is not None and state not in STATES_ON_THE_WIRE:
        raise errors.InvalidArgument("state must be PENDING, LEASED or None", field="state")


def _check_names(topic: str, timer_id: str) -> None:
    arguments.check_name(topic, "topic")
    arguments.check_name(timer_id, "timer_id")
