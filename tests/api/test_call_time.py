"""For how long a call may act."""

from __future__ import annotations

import math

import anyio
import pytest

from relay.api.call_time import CallTime
from relay.core.errors import OutOfTime, TimerNotFound
from relay.core.loop.call_ends import call_deadline

pytestmark = pytest.mark.anyio

DEFAULT = 500.0


@pytest.mark.parametrize(
    ("left", "stall", "time"),
    [
        (None, 0.0, DEFAULT - 5.1),
        (100.0, 0.0, 98.9),
        (0.5, 0.0, 0.395),
        (0.15, 0.0, 0.0735),
        (100.0, 60.0, 38.9),
        (None, 60.0, DEFAULT - 65.1),
    ],
)
async def test_a_call_has_its_callers_time_less_what_nobody_can_see(
    left: float | None, stall: float, time: float
) -> None:
    """A tenth of a second, half of the time at most, by which gRPC may have read it late; a hundredth, by
    which gRPC rounds a length up; and the longest recent stall."""
    before = anyio.current_time()
    with CallTime(DEFAULT, lambda: stall).bound(left):
        deadline = call_deadline()
    assert before + time - 1e-6 <= deadline <= anyio.current_time() + time + 1e-6


async def test_a_call_that_may_be_older_than_its_time_does_nothing() -> None:
    """The relay was frozen for longer than the caller waits."""
    steps: list[str] = []

    async def call() -> None:
        with CallTime(DEFAULT, lambda: 5.0).bound(4.0):
            steps.append("begun")

    with pytest.raises(OutOfTime):
        await call()
    assert steps == []


async def test_at_its_end_the_caller_is_told_that_it_may_repeat_the_call() -> None:
    over = pytest.raises(OutOfTime, match=r"no effect from now on.*may be repeated")
    with over, CallTime(0.01, lambda: 0.0).bound(None):
        await anyio.sleep(math.inf)


async def test_an_error_goes_on_its_way() -> None:
    with pytest.raises(TimerNotFound), CallTime(DEFAULT, lambda: 0.0).bound(None):
        raise TimerNotFound


async def test_whoever_cancels_a_call_sees_that_it_was_cancelled() -> None:
    """The caller has gone: it is not told anything."""
    with anyio.CancelScope() as gone, CallTime(DEFAULT, lambda: 0.0).bound(None):
        gone.cancel()
        await anyio.sleep(math.inf)
    assert gone.cancelled_caught
