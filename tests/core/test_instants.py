"""Whole microseconds and doubles."""

from __future__ import annotations

import json
import math
import zlib
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.core.instants import LATEST, SECOND, from_score, from_scores, micros, spread_of, to_score

LOSSLESS = 2**33 * SECOND  # the year 2242: from here on doubles are coarser than a microsecond
SURE = 2**32 * SECOND  # 2106: until here half a microsecond can be told apart

instants = st.integers(0, LATEST)
near_now = st.integers(1_700_000_000 * SECOND, 1_900_000_000 * SECOND)


@given(st.integers(0, LOSSLESS - 1))
@example(4_475_056_427_101_953)
@example(LOSSLESS - 1)
@example(2**32 * SECOND)
def test_lossless_until_2242(instant: int) -> None:
    """A due time and its score convert into each other."""
    assert from_score(to_score(instant)) == instant


@given(st.integers(0, LOSSLESS - 2))
def test_scores_keep_the_order(instant: int) -> None:
    """One microsecond later is a greater score, so that comparing scores is comparing instants."""
    assert to_score(instant) < to_score(instant + 1)


@given(st.integers(LOSSLESS, LATEST))
@example(9_738_090_086_075_718)
@example(LATEST)
@example(LATEST - 1)
def test_never_early_beyond(instant: int) -> None:
    """Where doubles are coarser the score is the least that is not before the instant."""
    score = to_score(instant)
    assert Fraction(score) * SECOND >= instant
    assert Fraction(math.nextafter(score, 0)) * SECOND < instant


@given(st.integers(LOSSLESS, LATEST - SECOND))
def test_reading_back_beyond(instant: int) -> None:
    """What is read is the last whole microsecond that is not after the score, and none before the instant."""
    score = to_score(instant)
    assert instant <= from_score(score) <= Fraction(score) * SECOND < from_score(score) + 1


@given(st.integers(0, SURE - 1))
def test_our_own_scores(instant: int) -> None:
    """2^-21 s on top of a microsecond is another score, and read as that microsecond."""
    own = to_score(instant) + 2**-21
    assert to_score(instant) < own < to_score(instant + 1)
    assert from_score(own) == instant


@given(near_now, st.integers(0, 3))
def test_scores_off_the_grid(instant: int, quarters: int) -> None:
    """A clock of nanoseconds writes between microseconds; those are rounded down."""
    score = instant / SECOND + quarters * 2**-22
    assert from_score(score) in (instant, instant + (quarters == 3))
    assert from_score(score) / SECOND <= score


@given(st.floats())
@example(math.nan)
@example(math.inf)
@example(-math.inf)
@example(5e-324)
@example(-0.0)
def test_anything_is_read(score: float) -> None:
    """Whatever a foreign writer stored comes out between 1970 and 9999, and never later than it is."""
    instant = from_score(score)
    assert 0 <= instant <= LATEST
    if 0 <= score < math.inf:
        assert instant / SECOND <= score


@pytest.mark.parametrize(
    ("score", "instant"),
    [
        (math.nan, 0),
        (-math.inf, 0),
        (-1.5, 0),
        (0.0, 0),
        (1.5, 1_500_000),
        (1e-7, 0),
        (253_402_300_799.0, LATEST),
        (253_402_300_800.0, LATEST),
        (math.inf, LATEST),
    ],
)
def test_odd_scores(score: float, instant: int) -> None:
    """Infinities, NaN, negatives and what lies past 9999 have their place."""
    assert from_score(score) == instant


@given(st.floats(0, 1e9))
def test_lengths_are_rounded_up(seconds: float) -> None:
    """A wait is never shorter than asked."""
    length = micros(seconds)
    assert length >= seconds * SECOND > length - 1


def test_many_scores() -> None:
    """An odd one among them is read as it is alone."""
    odd = [math.nan, math.inf, -math.inf, -1.0, 0.0, 5e-324, 2.0**32, 2.0**33 + 0.3, 1e300]
    scores = [each for one in odd for each in (1_767_225_600.000_001, one)]
    assert from_scores(scores) == [from_score(score) for score in scores]
    assert from_scores(scores)[1::2][:5] == [0, LATEST, 0, 0, 0]
    assert from_scores(()) == []


VECTORS = json.loads((Path(__file__).parent / "spread.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "vector", VECTORS, ids=lambda vector: f"{vector['timer_id'][:9]} {vector['window_us']}"
)
def test_published_places(vector: dict[str, Any]) -> None:
    """Other languages compute the same, in numbers of 64 bits with a sign."""
    timer_id, window = vector["timer_id"], vector["window_us"]
    half, (whole, rest) = zlib.crc32(timer_id.encode()) >> 1, divmod(window, 1 << 31)
    assert max(whole * half, rest * half) < 1 << 63
    assert spread_of(timer_id, window) == vector["place_us"] == whole * half + (rest * half >> 31)


@given(st.text(), st.integers(1, LATEST))
def test_a_place_lies_within_the_window(timer_id: str, window: int) -> None:
    assert 0 <= spread_of(timer_id, window) < window
    assert spread_of(timer_id, 0) == 0


def test_places_are_spread_evenly() -> None:
    """Of ids that differ in their ends only, as most do, and of those of one partition of eight."""
    ids = [f"tenant-{n}" for n in range(80_000)]
    some = [each for each in ids if zlib.crc32(each.encode()) % 8 == 3]
    for group in (ids, some):
        places = Counter(spread_of(each, 100) for each in group)
        assert len(places) == 100
        assert max(places.values()) < 1.3 * len(group) / 100
