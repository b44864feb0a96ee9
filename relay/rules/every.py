"""Instants at one distance, and the lengths of time that people write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.rules.nominal import Nominal

MOST = 100 * 366 * 86_400 * SECOND
"""The longest distance, in microseconds: a hundred years."""

_LONGEST = 200
"""Characters of a length of time."""

_UNITS = {
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": SECOND,
    "sec": SECOND,
    "second": SECOND,
    "m": 60 * SECOND,
    "min": 60 * SECOND,
    "minute": 60 * SECOND,
    "h": 3_600 * SECOND,
    "hour": 3_600 * SECOND,
    "d": 86_400 * SECOND,
    "day": 86_400 * SECOND,
    "w": 604_800 * SECOND,
    "week": 604_800 * SECOND,
}

_PART = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([a-zµ]+)")


def length(field: str, text: str) -> int:
    """The microseconds of `90s`, `1h30m`, `1.5h` or `10 minutes`. Raises `InvalidField`."""
    if len(text) > _LONGEST:
        raise InvalidField(field, f"is {len(text)} characters long; at most {_LONGEST} are allowed")
    total, place = Fraction(0), 0
    while place < len(text):
        found = _PART.match(text, place)
        unit = found and (_UNITS.get(found[2]) or _UNITS.get(found[2].removesuffix("s")))
        if not found or not unit:
            total = Fraction(0)
            break
        total += Fraction(found[1]) * unit
        place = found.end()
    if not total or total.denominator != 1:
        raise InvalidField(
            field, f'"{text}" is not a length of time: write one such as 90s, 1h30m or 10 minutes'
        )
    return int(total)


@dataclass(frozen=True, slots=True)
class EveryInstants:
    """Instants at one distance, in microseconds, counted from `anchor` in both directions."""

    distance: int
    anchor: int

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        following = instant + self.distance - (instant - self.anchor) % self.distance
        while following <= LATEST:
            yield Nominal(following, 0)
            following += self.distance
