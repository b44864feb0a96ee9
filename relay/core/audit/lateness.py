"""Exact percentiles of very many lengths of time, at eight bytes each."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

_BUCKET = 16
"""The number of low bits that a value loses to become its bucket."""

PERCENTILES = (("p50", Fraction(50, 100)), ("p99", Fraction(99, 100)), ("p99.9", Fraction(999, 1000)))


class Lateness:
    """Collects microseconds as they come. They are counted into buckets first, and only one bucket is sorted,
    so little memory is needed beside the values themselves."""

    def __init__(self) -> None:
        self._values = array("q")

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: int) -> None:
        """Add one value."""
        self._values.append(value)

    def summary(self) -> dict[str, int]:
        """Return p50, p99, p99.9 and max by nearest rank; empty if there are no values."""
        count = len(self._values)
        if not count:
            return {}
        ranks = {name: -(-count * share.numerator // share.denominator) for name, share in PERCENTILES}
        found = self._at(ranks.values())
        return {**{name: found[rank] for name, rank in ranks.items()}, "max": max(self._values)}

    def _at(self, ranks: Iterable[int]) -> dict[int, int]:
        """Return the values at these places of the sorted whole; the first place is 1."""
        sizes = Counter(value >> _BUCKET for value in self._values)
        found: dict[int, int] = {}
        waiting = sorted(set(ranks))
        before = 0
        for bucket in sorted(sizes):
            inside = [rank for rank in waiting if before < rank <= before + sizes[bucket]]
            if inside:
                values = sorted(value for value in self._values if value >> _BUCKET == bucket)
                found.update({rank: values[rank - before - 1] for rank in inside})
            before += sizes[bucket]
        return found
