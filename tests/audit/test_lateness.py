"""Percentiles are exact, whatever the values are."""

from __future__ import annotations

from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from relay.core.audit.lateness import Lateness
from tests.audit.test_histories import QUIET

VALUES = st.lists(st.integers(-(2**40), 2**60) | st.integers(0, 200_000), min_size=1, max_size=300)


@settings(QUIET)
@given(VALUES)
def test_by_nearest_rank(values: list[int]) -> None:
    """The least value that so many are not above."""
    lateness = Lateness()
    for value in values:
        lateness.add(value)
    ordered = sorted(values)
    wanted = {
        name: ordered[max(ceil(len(values) * share / 1000), 1) - 1]
        for name, share in (("p50", 500), ("p99", 990), ("p99.9", 999))
    }
    assert lateness.summary() == {**wanted, "max": ordered[-1]}


def test_of_nothing() -> None:
    """No delivery, no lateness."""
    assert Lateness().summary() == {}
