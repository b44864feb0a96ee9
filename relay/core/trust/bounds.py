"""What a principal may cost a relay, and how much of it is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.core.trust.globs import Glob, is_meant

ROUNDED = 1e-6
"""How much of a token may be missing: rounding must not refuse a caller that has waited as it was told."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What each of these principals may cost; None where nothing is bounded. `name` is how people find it in
    the file."""

    name: str
    principals: Sequence[Glob]
    max_streams: int | None = None
    max_calls: int | None = None
    """The most calls at a time."""
    calls_per_second: float | None = None
    bytes_per_second: float | None = None
    burst_seconds: float = 1.0
    """How many seconds' worth of a rate may come at once."""

    def means(self, principal: str) -> bool:
        """Whether it is about a principal."""
        return any(is_meant(glob, principal) for glob in self.principals)


class TokenBucket:
    """Gains `rate` tokens a second up to a burst's worth, and begins full. Times are monotonic, in seconds.

    It may be in debt: what a call costs is known only when it has ended, and the next one waits for it. So
    a message that is larger than the burst goes through, and takes its time afterwards.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._most = max(rate * burst, 1.0)  # less would never have room for one call
        self._level = self._most
        self._at = now

    def wait(self, now: float) -> float:
        """The seconds until it has a token; 0 if it has one."""
        level = self._refilled(now)
        return 0.0 if level >= 1.0 - ROUNDED else (1.0 - level) / self._rate

    def take(self, tokens: float, now: float) -> float:
        """Take tokens; return the seconds until the debt is paid, 0 if there is none."""
        self._level = self._refilled(now) - tokens
        return max(-self._level / self._rate, 0.0)

    def owe(self, tokens: float, now: float, most: float) -> None:
        """Take tokens for which nothing was given, up to a debt of `most` seconds."""
        level = self._refilled(now)
        self._level = max(level - tokens, min(level, -most * self._rate))

    def is_full(self, now: float) -> bool:
        """Whether a new bucket would be the same."""
        return self._refilled(now) >= self._most - ROUNDED

    def _refilled(self, now: float) -> float:
        self._level = min(self._level + (now - self._at) * self._rate, self._most)
        self._at = now
        return self._level
