"""How late timers of a topic will be, from what falls due and from the rate at which it is delivered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay.core.instants import SECOND
from relay.core.recurring.forecast import Forecast, Window

MINUTE = 60 * SECOND

BEFORE = 2 * MINUTE
"""How long before the minute of an instant what falls due is looked at second by second."""

LOOKED_AT = Window(horizon=BEFORE + MINUTE, resolution=SECOND)


@dataclass(frozen=True, slots=True)
class ExpectedLoad:
    """What is expected at an instant. `lateness` is in microseconds, `rate` in timers a second; both are None
    where no rate was shown. `in_minute` are the timers that fall due in the instant's minute, `read` is when
    that was read."""

    lateness: int | None
    rate: float | None
    in_minute: int
    read: int


def window_of(instant: int) -> int:
    """When the window begins that is looked at for an instant: the same one for a whole minute."""
    return instant // MINUTE * MINUTE - BEFORE


def arrivals(found: Forecast) -> list[int]:
    """What falls due in each interval, also of what rests in cold stores."""
    return [n + more for n, more in zip(found.timers, _cold(found), strict=True)]


def standing(found: Forecast) -> int:
    """What has fallen due when a forecast begins."""
    return found.overdue + (0 if found.cold is None else found.cold.overdue)


def waiting(standing: int, arrivals: Sequence[int], place: int, after: int, rate: float) -> float:
    """How many timers wait at an instant, which is `after` microseconds behind the beginning of the interval
    of this place, if `standing` wait at the first one's.

    All that is due in an interval of a second is taken to be due at its beginning: most timers are due at
    whole seconds. So the lateness of a topic that keeps up is too long by a second at most.
    """
    found = float(standing)
    for count in arrivals[:place]:
        found = max(found + count - rate, 0.0)
    return max(found + arrivals[place] - rate * after / SECOND, 0.0)


def _cold(found: Forecast) -> Sequence[int]:
    return [0] * len(found.timers) if found.cold is None else found.cold.timers
