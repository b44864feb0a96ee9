"""Quantiles of what was measured one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

QUANTILES = {"p50": 0.50, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Each is a value that was measured: the least one that so many are not above."""
    ordered = sorted(values)
    return {name: ordered[max(0, math.ceil(share * len(ordered)) - 1)] for name, share in QUANTILES.items()}


def milliseconds(values: Sequence[float]) -> dict[str, float]:
    """The quantiles of seconds, in milliseconds."""
    return quantiles([value * 1000 for value in values])
