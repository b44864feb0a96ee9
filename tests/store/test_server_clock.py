"""The lower bound of a server's clock: never beyond it, and never a wall clock's."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from relay.core.instants import SECOND
from relay.store.server.server_clock import KEPT, RENEW, ServerClock

AHEAD = 1_767_225_600 * SECOND
"""By how much the server's clock is ahead of the monotonic one."""


def exchanged(clock: ServerClock, asked: float, there: float, back: float, ahead: int = AHEAD) -> bool:
    """One question: it travels `there` seconds, its answer `back`."""
    told = math.floor((asked + there) * SECOND) + ahead
    return clock.heard(told, asked, asked + there + back)


@given(
    trips=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 2)), min_size=1, max_size=20),
    later=st.floats(0, 100),
)
def test_it_is_a_lower_bound(trips: list[tuple[float, float]], later: float) -> None:
    """Whatever the answers' travels take, and it is as near as the best of the last ones."""
    clock, now = ServerClock(), 10.0
    for there, back in trips:
        assert not exchanged(clock, now, there, back)
        now += there + back
    at = now + later
    assert clock.at(at) <= at * SECOND + AHEAD
    best = min(back for _, back in trips[-KEPT:])
    assert clock.at(at) >= (at - best) * SECOND + AHEAD - 3, "each rounding is downwards"


def test_a_step_back_is_noticed() -> None:
    """At the next question the bound is right again. A clock that is slewed does not count as stepped."""
    clock = ServerClock()
    assert not exchanged(clock, 10.0, 0.001, 0.001), "the first time is no step"
    assert not exchanged(clock, 20.0, 0.001, 0.001, AHEAD - 5_000), "5 ms in 10 s"
    assert clock.at(30.0) <= 30 * SECOND + AHEAD - 5_000, "and yet the bound follows"
    assert exchanged(clock, 30.0, 0.001, 0.001, AHEAD - 3 * SECOND)
    assert clock.at(40.0) <= 40 * SECOND + AHEAD - 3 * SECOND


def test_a_step_forward_makes_calls_fail_early_and_never_late() -> None:
    clock = ServerClock()
    exchanged(clock, 10.0, 0.001, 0.001)
    assert clock.at(20.0) <= 20 * SECOND + AHEAD + 3 * SECOND
    assert not exchanged(clock, 20.0, 0.001, 0.001, AHEAD + 3 * SECOND)
    assert clock.at(20.0) >= 20 * SECOND + AHEAD + 3 * SECOND - 2_000, "known from now on"


def test_when_the_server_is_asked() -> None:
    """Before the first use, after `RENEW` seconds, and whenever what is known may be wrong."""
    clock = ServerClock()
    assert clock.is_old(0.0)
    exchanged(clock, 10.0, 0.0, 0.0)
    assert not clock.is_old(10.0 + RENEW)
    assert clock.is_old(10.5 + RENEW)
    clock.forget()
    assert clock.is_old(10.0)
