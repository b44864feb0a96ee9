"""How long to wait between tries. This is pure: the randomness is passed in."""

from __future__ import annotations

import random
from collections.abc import Callable


class RetryBackoff:
    """Makes exponential pauses with jitter: each is drawn from the upper half of a span that doubles.

    `first` and `longest` are in seconds; `draw` returns a number in [0, 1).

    >>> pauses = Backoff(0.1, 5.0, draw=lambda: 0.0)
    >>> pauses.next(), pauses.next(), pauses.next()
    (0.05, 0.1, 0.2)
    """

    def __init__(self, first: float, longest: float, *, draw: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = longest
        self._draw = draw
        self._span = first

    def next(self) -> float:
        """Return the next pause in seconds."""
        span = self._span
        self._span = min(span * 2, self._longest)
        return span * (0.5 + self._draw() / 2)

    def reset(self) -> None:
        """Start over with the first pause, after a success."""
        self._span = self._first
