"""Time as Relay counts it: whole microseconds since 1970, as integers.

Redis keeps scores as doubles, in seconds. A whole microsecond and its nearest double convert into
each other without loss until the year 2242; beyond, doubles are coarser than a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

SECOND = 1_000_000
"""Microseconds in a second."""

LATEST = 253_402_300_799 * SECOND
"""9999-12-31T23:59:59Z, the last due time that Relay takes."""

_LOSSLESS = 2**33
"""Seconds. From here on two doubles are further apart than a microsecond."""

EXACT = _LOSSLESS * SECOND
"""Microseconds. Before this instant the score of a due time is the double that is nearest to it."""

_QUICK = 2**32
"""Seconds. Below, the errors of a division and a multiplication sum up to less than half a microsecond."""


def to_score(instant: int) -> float:
    """The score of a due time: the least double that is not before `instant` (microseconds).

    Where a double holds whole microseconds, its nearest one is taken: Redis' own clock is
    converted in the same way, so that comparing the two is comparing the microseconds.
    """
    score = instant / SECOND
    if score >= _LOSSLESS:
        numerator, denominator = score.as_integer_ratio()
        if numerator * SECOND < instant * denominator:
            score = math.nextafter(score, math.inf)
    return score


def from_score(score: float) -> int:
    """The last whole microsecond that is not after `score`, within 1970 to 9999.

    Foreign writers may have stored anything, infinities too.
    """
    (instant,) = from_scores((score,))
    return instant


def from_scores(scores: Iterable[float]) -> list[int]:
    """The same of many, without a call for each."""
    return [
        (instant - 1 if (instant := round(score * SECOND)) / SECOND > score else instant)
        if 0 < score < _QUICK
        else _from_odd_score(score)
        for score in scores
    ]


def _from_odd_score(score: float) -> int:
    if not score > 0:  # also NaN
        return 0
    if score >= LATEST / SECOND:
        return LATEST
    numerator, denominator = score.as_integer_ratio()
    instant = numerator * SECOND // denominator
    # Where no microsecond is lost, the nearest double stands for it, even if it lies just before.
    return instant + 1 if score < _LOSSLESS and (instant + 1) / SECOND <= score else instant


def micros(seconds: float) -> int:
    """A length of time in seconds as whole microseconds, rounded up."""
    return math.ceil(seconds * SECOND)
