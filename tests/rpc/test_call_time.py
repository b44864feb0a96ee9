"""Unary calls over gRPC end before their callers give them up."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest
from google.rpc import error_details_pb2

from relay.api.call_time import CallTime
from relay.core.errors import StoreUnavailable
from relay.rpc import errors
from relay.v1.timer_service_pb2 import CancelRequest, GetTimerRequest, RunTimerRequest, ScheduleRequest
from tests.worlds.engine.served import Served, served
from tests.worlds.engine.stubs import refused, spec
from tests.worlds.waiting import PATIENCE

CALLS: dict[str, tuple[str, Any]] = {
    "Schedule": ("schedule", ScheduleRequest(timer=spec())),
    "Cancel": ("cancel", CancelRequest(topic="t", timer_id="a")),
    "RunTimer": ("run", RunTimerRequest(topic="t", timer_id="a")),
    "GetTimer": ("get", GetTimerRequest(topic="t", timer_id="a")),
}
"""Calls, each with the store's verb and a request."""


async def out_of_time(relay: Served, method: str, timeout: float | None = None) -> None:
    """The call is answered UNAVAILABLE, with a pause after which it may be repeated."""
    call = getattr(relay.timers, method)(CALLS[method][1], timeout=timeout)
    code, message, (pause,) = await refused(call)
    assert code is grpc.StatusCode.UNAVAILABLE, message
    assert "no effect from now on" in message
    assert isinstance(pause, error_details_pb2.RetryInfo)
    assert pause.retry_delay.seconds == 1


@pytest.mark.parametrize("method", CALLS)
async def test_a_call_ends_although_the_store_does_not_answer(method: str) -> None:
    """Its caller set no deadline, so the relay's own counts."""
    async with served(call_time=CallTime(0.2, lambda: 0.0)) as relay:
        door = relay.store.hold(CALLS[method][0])
        for _ in range(20):  # on a busy machine the time may be over before the store is asked
            await out_of_time(relay, method)
            if door.reached:
                break
        assert door.reached == 1
        door.open()


@pytest.mark.parametrize("method", CALLS)
async def test_a_call_that_may_be_older_than_its_callers_deadline_has_no_effect(method: str) -> None:
    """The relay was frozen, and reads the call only now. The caller's deadline, as gRPC tells it, is in two
    minutes, but the call may have waited for longer than that."""
    async with served(call_time=CallTime(PATIENCE, lambda: 2 * PATIENCE)) as relay:
        await out_of_time(relay, method, timeout=PATIENCE)
        assert await relay.engine.get("t", "a") is None


async def test_an_error_for_a_caller_that_has_just_gone_is_no_trouble() -> None:
    """The race: gRPC's core knows already that the caller has given the call up, and refuses to send the
    status, but has not told the handler yet. A call that ends as cancelled is not logged as a failure."""

    class Gone:
        async def abort(self, *_: Any, **__: Any) -> None:
            raise grpc.aio.InternalError

    with pytest.raises(asyncio.CancelledError):
        await errors.abort(cast("errors.Context", Gone()), StoreUnavailable())


async def test_the_callers_deadline_counts_and_not_the_relays(relay: Served) -> None:
    """The answer comes before it: else this would be DEADLINE_EXCEEDED. However slow the machine is, one of
    the tries has its answer in a tenth of a second."""
    door = relay.store.hold("schedule", times=100)
    for _ in range(20):
        code, _, _ = await refused(relay.timers.Schedule(CALLS["Schedule"][1], timeout=2.0))
        if code is grpc.StatusCode.UNAVAILABLE:
            break
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    else:
        pytest.fail("no answer came before the caller's deadline")
    door.open()
