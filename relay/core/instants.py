"""Time as Relay counts it: whole microseconds since 1970, as integers.

Redis keeps scores as doubles, in seconds. A whole microsecond and its nearest double convert into
each other without loss until the year 2242; beyond, doubles are coarser than a microsecond.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

SECOND = 1_000_000
"""Microseconds in a second."""

CLOCK_STEP = SECOND // 20
"""Microseconds by which a server's clock has to jump to be told from one that is slewed."""

LATEST = 253_402_300_799 * SECOND
"""9999-12-31T23:59:59Z, the last due time that Relay accepts."""

_LOSSLESS = 2**33
"""A score in seconds. From here on two doubles are further apart than a microsecond."""

EXACT = _LOSSLESS * SECOND
"""An instant in microseconds. Before it the score of a due time is the nearest double."""

_QUICK = 2**32
"""A score in seconds. Below it the errors of a division and a multiplication sum up to less than half a
microsecond."""


def to_score(instant: int) -> float:
    """Return the score of a due time: the smallest double that is not before `instant` (microseconds).

    Where doubles hold whole microseconds, the nearest double is taken: Redis' own clock is
    converted in the same way, so comparing the two compares the microseconds.
    """
    score = instant / SECOND
    if score >= _LOSSLESS:
        numerator, denominator = score.as_integer_ratio()
        if numerator * SECOND < instant * denominator:
            score = math.nextafter(score, math.inf)
    return score


def from_score(score: float) -> int:
    """Return the last whole microsecond that is not after `score`, within 1970 to 9999.

    Foreign writers may have stored anything, even infinities.
    """
    (instant,) = from_scores((score,))
    return instant


def from_scores(scores: Iterable[float]) -> list[int]:
    """Return the same for many scores, without a call for each."""
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
    # Where no microsecond is lost, the nearest double stands for the instant, even if it lies just before it.
    return instant + 1 if score < _LOSSLESS and (instant + 1) / SECOND <= score else instant


def micros(seconds: float) -> int:
    """Turn a length of time in seconds into whole microseconds, rounded up."""
    return math.ceil(seconds * SECOND)


def spread_of(timer_id: str, window_us: int) -> int:
    """Return the place of a timer within a window, in microseconds: 0 to `window_us` - 1, or 0.

    This is `window_us * half >> 31`, of which `half` is the CRC-32 of the id's UTF-8 bytes without its last
    bit, so that signed numbers of 64 bits suffice: of a window of a * 2**31 + b it is
    `a * half + (b * half >> 31)`. `tests/core/spread.json` has examples for other languages.
    """
    return window_us * (zlib.crc32(timer_id.encode()) >> 1) >> 31
