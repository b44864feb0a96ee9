"""For how long a call may act."""

from __future__ import annotations

import math

import anyio
import pytest

from relay.api.call_time import CallTime
from relay.core.errors import OutOfTime, TimerNotFound

pytestmark = pytest.mark.anyio

DEFAULT = 500.0


def time_of(left: float | None, stall: float = 0.0) -> float:
    """Seconds that the body of a call has."""
    with CallTime(DEFAULT, lambda: stall).bound(left):
        return anyio.current_effective_deadline() - anyio.current_time()


@pytest.mark.parametrize(
    ("left", "stall", "time"),
    [
        (None, 0.0, DEFAULT - 0.1),
        (100.0, 0.0, 99.9),
        (0.5, 0.0, 0.45),
        (100.0, 60.0, 39.9),
        (None, 60.0, DEFAULT - 60.1),
    ],
)
async def test_a_call_has_its_callers_time_less_what_the_answer_needs(
    left: float | None, stall: float, time: float
) -> None:
    """A tenth, a tenth of a second at most; and less by what may have gone by before it was read."""
    assert time_of(left, stall) == pytest.approx(time, abs=0.1 * time)


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
