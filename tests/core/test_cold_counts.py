"""What rests in cold stores, by when it is due: spans of hours, days and months."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from relay.core.recurring.cold_counts import DAILY, DAY, HOUR, HOURLY, ColdCounts, Span, cold_forecast
from relay.core.recurring.forecast import Window

NOW = 1_767_225_605_000_000
HERE = NOW // HOUR

HOURS = st.dictionaries(
    st.one_of(
        st.integers(HERE - 50, HERE + 300), st.integers(HERE, HERE + 24 * 500), st.integers(0, 70_000_000)
    ),
    st.integers(1, 10**7),
)


@given(HOURS)
def test_spans_follow_one_another_and_lose_nothing(hours: dict[int, int]) -> None:
    """Each hour is in one span, and what is due before a border is what the hours before it have."""
    counts = ColdCounts.of_hours(hours, NOW)
    assert counts.timers == sum(hours.values())
    spans = list(counts.spans)
    assert all(before.end <= after.start for before, after in pairwise(spans))
    assert all(span.timers > 0 for span in spans)
    ends = [span.end for span in spans]
    assert counts.before(ends) == [sum(n for hour, n in hours.items() if hour * HOUR < end) for end in ends]


def test_the_spans_get_longer() -> None:
    """By the hour for 8 days, by the day for 400, then by 30 days: few spans, whatever rests."""
    counts = ColdCounts.of_hours(dict.fromkeys(range(HERE - 100, HERE + 24 * 3_653), 1), NOW)
    assert counts.spans[0] == Span(0, HERE * HOUR, 100)
    lengths = [span.end - span.start for span in counts.spans[1:]]
    assert lengths[: HOURLY // HOUR] == [HOUR] * (HOURLY // HOUR)
    assert lengths.count(DAY) == (DAILY - HOURLY) // DAY
    assert set(lengths[-100:-1]) == {30 * DAY}
    assert len(counts.spans) < 750


@given(HOURS, st.integers(1, 40 * 365).map(lambda days: days * DAY), st.integers(0, HOUR))
def test_a_forecast_counts_each_timer_once(hours: dict[int, int], horizon: int, later: int) -> None:
    """Whatever borders it has, the numbers add up to all that rests."""
    window = Window(horizon, -(-horizon // random.Random(horizon).randint(1, 200)))
    found = cold_forecast([ColdCounts.of_hours(hours, NOW)], window, NOW + later)
    assert found is not None
    assert len(found.timers) == window.intervals
    assert min(found.timers, default=0) >= 0
    assert found.overdue + sum(found.timers) + found.later == sum(hours.values())


def test_an_hour_is_spread_over_its_minutes() -> None:
    found = cold_forecast(
        [ColdCounts(NOW, [Span(HERE * HOUR, (HERE + 1) * HOUR, 120)])], Window(HOUR, HOUR // 4), HERE * HOUR
    )
    assert found is not None
    assert found.timers == (30, 30, 30, 30)


@given(HOURS, st.lists(st.integers(HERE * HOUR - 100 * HOUR, HERE * HOUR + 500 * DAY), max_size=20))
def test_what_is_due_before_some_instants(hours: dict[int, int], instants: list[int]) -> None:
    """Each span adds what is due of it, whatever the order of the instants."""
    counts = ColdCounts.of_hours(hours, NOW)

    def of(span: Span, instant: int) -> int:
        passed = min(max(instant - span.start, 0), span.end - span.start)
        return span.timers * passed // (span.end - span.start)

    assert counts.before(instants) == [sum(of(span, each) for span in counts.spans) for each in instants]


@given(HOURS, st.integers(-50, 24 * 500))
def test_without_what_is_taken(hours: dict[int, int], ahead: int) -> None:
    """What is left is what was due from there on."""
    counts, until = ColdCounts.of_hours(hours, NOW), (HERE + ahead) * HOUR
    left = counts.without(until)
    assert [left.timers] == [counts.timers - n for n in counts.before([until])]
    assert all(span.start >= until for span in left.spans)
