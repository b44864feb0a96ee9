"""What principals may cost: buckets, and the use of each bound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import OverBound
from relay.core.trust import usage as module
from relay.core.trust.access import AccessPolicy
from relay.core.trust.bounds import Bound, TokenBucket
from relay.core.trust.globs import Glob
from relay.core.trust.principals import Principal, caller
from relay.core.trust.usage import MOST_OWED, UNTIL_ONE_ENDS, Bounds
from tests.worlds.engine.fake_clock import FakeClock

A, B = "token:a", "token:b"


class Held:
    """Bounds by a clock in the test's hand; `over` and `waits` have what they told."""

    def __init__(self, *bounds: Bound) -> None:
        self.clock = FakeClock()
        self.over: list[tuple[str, str]] = []
        self.bounds = Bounds(self.clock.now, lambda *told: self.over.append(told))
        self.use(*bounds)

    def use(self, *bounds: Bound) -> None:
        self.bounds.use(AccessPolicy(bounds=bounds))

    def call(self, name: str, size: int = 0, *, goes_on: bool = False) -> float:
        """Make a call; the seconds after which to try again if it is refused, else 0."""
        with by(name):
            try:
                usage = self.bounds.begin(size)
            except OverBound as over:
                return over.retry_after
            if usage is not None and not goes_on:
                usage.end()
            return 0.0


@contextmanager
def by(name: str) -> Iterator[None]:
    before = caller.set(Principal(name))
    try:
        yield
    finally:
        caller.reset(before)


def bound(*patterns: str, burst: float = 1.0, **numbers: float) -> Bound:
    return Bound("it", [Glob(each) for each in patterns or ("*",)], burst_seconds=burst, **numbers)  # type: ignore[arg-type]


async def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    held = Held(bound(calls_per_second=10, burst=0.5))
    assert [held.call(A) for _ in range(5)] == [0.0] * 5
    assert held.call(A) == pytest.approx(0.1)
    await held.clock.advance(0.05)
    assert held.call(A) == pytest.approx(0.05)
    await held.clock.advance(0.05)
    assert held.call(A) == 0.0
    await held.clock.advance(3600)
    assert [held.call(A) for _ in range(6)] == [0.0] * 5 + [pytest.approx(0.1)]
    assert held.over == [(A, "calls_per_second")] * 3


@given(
    st.floats(0.01, 1000),
    st.floats(0.01, 10),
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 100)), max_size=50),
)
def test_a_bucket_never_gives_more_than_burst_and_rate(
    rate: float, burst: float, tries: list[tuple[float, float]]
) -> None:
    """Only the last call may have cost more than there was; and whoever waits as told is let in."""
    bucket, now, taken, last = TokenBucket(rate, burst, 0.0), 0.0, 0.0, 0.0
    for pause, cost in tries:
        now += pause
        if wait := bucket.wait(now):
            assert bucket.wait(now + wait * 1.000001 + 1e-9) == 0.0
            continue
        bucket.take(cost, now)
        taken, last = taken + cost, cost
        assert taken - last <= max(rate * burst, 1.0) + rate * now + 1e-6


async def test_a_call_larger_than_the_burst_goes_through_and_the_next_one_waits_for_it() -> None:
    held = Held(bound(bytes_per_second=1000))
    assert held.call(A, 5000) == 0.0
    assert held.call(A, 1) == pytest.approx(4.002)
    await held.clock.advance(4.0)
    assert held.call(A, 1) == pytest.approx(0.003)
    await held.clock.advance(0.003)
    assert held.call(A, 1) == 0.0


def test_what_is_refused_costs_its_bytes_and_nothing_else() -> None:
    """A call over one bound leaves the others as they are, but for the bytes that it has brought: the caller
    is told to wait for them, too."""
    held = Held(bound(calls_per_second=1, bytes_per_second=100, burst=2))
    assert held.call(A, 1000) == 0.0
    for _ in range(5):
        assert held.call(A) == pytest.approx(8.01)
    assert held.over == [(A, "bytes_per_second")] * 5
    held = Held(bound(calls_per_second=1, bytes_per_second=100))
    assert held.call(A) == 0.0
    assert held.call(A, 5_000) == pytest.approx(49.01)
    held = Held(bound(max_calls=0, bytes_per_second=100))
    assert held.call(A, 5_000) == pytest.approx(49.01)
    assert held.over == [(A, "max_calls")]


async def test_a_caller_that_did_not_wait_is_let_in_a_minute_after_it_has_stopped() -> None:
    """Its pods repeated a call for an hour, ten times as fast as its bound allows."""
    held = Held(bound(bytes_per_second=100, burst=1))
    for _ in range(3600):
        held.call(A, 1000)
        await held.clock.advance(1.0)
    await held.clock.advance(MOST_OWED)
    assert held.call(A) == 0.0
    assert held.call(A, 100_000) == 0.0  # what is let in costs all that it has
    assert held.call(A) > MOST_OWED


def test_calls_at_a_time() -> None:
    held = Held(bound(max_calls=1))
    with by(A):
        usage = held.bounds.begin()
    assert held.call(A) == UNTIL_ONE_ENDS
    assert held.call(B) == 0.0
    assert usage is not None
    usage.end()
    assert held.call(A) == 0.0
    assert held.over == [(A, "max_calls")]


def test_the_first_bound_that_means_a_principal_holds() -> None:
    """Each principal has its own; `*` is not `anonymous`, and whom no bound means has none."""
    held = Held(bound("token:a", max_calls=0), bound(max_calls=1))
    assert held.call(A)
    assert held.call(B, goes_on=True) == 0.0
    assert held.call("token:c") == 0.0
    assert held.call(B)
    assert held.call("anonymous") == 0.0


def test_bytes_of_streams_are_apart_from_those_of_calls() -> None:
    """A backlog of deliveries keeps neither calls nor outcomes."""
    held = Held(bound(bytes_per_second=100))
    with by(A):
        usage = held.bounds.open()
    assert usage.delivered(1000) == pytest.approx(9.0)
    assert usage.delivered(100) == pytest.approx(10.0)
    assert usage.said(50) == 0.0
    assert held.call(A, 1000) == 0.0
    assert held.call(A)


async def test_a_policy_that_changes_keeps_what_is_open_and_what_is_spent() -> None:
    """Streams are counted before there are bounds; a bound that stays keeps its bucket."""
    held = Held()
    with by(A):
        usage = held.bounds.open()
        held.use(bound(max_streams=1, calls_per_second=1))
        with pytest.raises(OverBound, match="over its max_streams of 1"):
            held.bounds.open()
        usage.close()
        held.bounds.open()
        assert held.call(A)
        held.use(bound(max_streams=1, calls_per_second=1))
        assert held.call(A)
        held.use()
        assert held.call(A) == 0.0


def test_only_those_who_use_something_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 10)
    held = Held(bound(calls_per_second=1000, max_calls=1, burst=0.001))
    held.bounds._enough = 10
    assert held.call(A, goes_on=True) == 0.0
    for number in range(1000):
        held.clock._now += 1.0
        assert held.call(f"token:{number}") == 0.0
    assert len(held.bounds._users) <= 11
    assert held.call(A) == UNTIL_ONE_ENDS
