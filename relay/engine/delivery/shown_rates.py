"""How fast this relay has delivered the timers of each topic."""

from __future__ import annotations

from dataclasses import dataclass, field

SLICE = 0.25
"""Seconds of work over which a rate is taken. Where less was ever done, that counts."""

MINUTES = 15
"""For how many minutes a rate is remembered."""


@dataclass(slots=True)
class _Shown:
    """`until` is up to when work is counted, `busy` and `ended` are those of the slice that is under way;
    `best` has the best rate of each minute."""

    until: float = float("-inf")
    busy: float = 0.0
    ended: int = 0
    best: dict[int, float] = field(default_factory=dict)


class ShownRates:  # see 0127
    """The best rate that each topic has shown: ended deliveries, a second of the time in which any was
    under way. Costs a few steps for each message with outcomes, and a number for each minute. Times are the
    engine's clock, in seconds."""

    def __init__(self) -> None:
        self._topics: dict[str, _Shown] = {}

    def ended(self, topic: str, count: int, began: float, now: float) -> None:
        """Note that deliveries have ended which went out together. Work that overlaps counts once."""
        shown = self._topics.setdefault(topic, _Shown())
        shown.busy += max(now - max(began, shown.until), 0.0)
        shown.until = max(now, shown.until)
        shown.ended += count
        if shown.busy >= SLICE:
            minute, rate = int(now // 60), shown.ended / shown.busy
            shown.best[minute] = max(shown.best.get(minute, 0.0), rate)
            shown.busy, shown.ended = 0.0, 0
            for old in [each for each in shown.best if each <= minute - MINUTES]:
                del shown.best[old]

    def rate(self, topic: str, now: float) -> float | None:
        """Timers a second; None if none was delivered lately."""
        shown = self._topics.get(topic)
        if shown is None or now - shown.until > 60 * MINUTES:
            return None
        best = [rate for minute, rate in shown.best.items() if minute > int(now // 60) - MINUTES]
        if best:
            return max(best)
        return shown.ended / shown.busy if shown.busy > 0 else None
