"""What falls due in a topic in the coming intervals. All instants and lengths are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import add

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.core.recurring.recurrence import StoredRecurrence

MOST_INTERVALS = 200
"""The most intervals of a forecast. Each is a ZCOUNT in every partition, and those of one partition are one
script call, for which the claims of others wait."""

SHORTEST, LONGEST = SECOND, 3_653 * 86_400 * SECOND
"""The bounds of a horizon."""

FINEST = SECOND // 1_000
"""The shortest interval."""

WINDOWS = (60 * SECOND, 3_600 * SECOND, 86_400 * SECOND)
"""How far ahead metrics look."""

USUAL_HORIZON = 3_600 * SECOND
"""The horizon that nobody has chosen."""

USUAL_INTERVALS = 60
"""The number of intervals that nobody has chosen."""


@dataclass(frozen=True, slots=True)
class Window:
    """How far to look ahead, and how finely. The last interval ends with the horizon."""

    horizon: int = USUAL_HORIZON
    resolution: int = USUAL_HORIZON // USUAL_INTERVALS

    @classmethod
    def checked(cls, horizon: int | None, resolution: int | None) -> Window:
        """Make one of what a caller gave; None stands for what is usual. Raises `InvalidField`."""
        horizon = USUAL_HORIZON if horizon is None else horizon
        if not SHORTEST <= horizon <= LONGEST:
            raise InvalidField("horizon", f"is {horizon / SECOND:g} s; give 1 s to 10 years")
        if resolution is None:
            resolution = max(-(-horizon // USUAL_INTERVALS), FINEST)
        if resolution < FINEST:
            raise InvalidField("resolution", f"is {resolution / SECOND:g} s; give 1 ms or more")
        window = cls(horizon, resolution)
        if window.intervals > MOST_INTERVALS:
            least = -(-horizon // MOST_INTERVALS) / SECOND
            problem = (
                f"cuts the horizon into {window.intervals:,} intervals, and {MOST_INTERVALS} are the most"
            )
            raise InvalidField("resolution", f"{problem}; give {least:g} s or more, or a shorter horizon")
        return window

    @property
    def intervals(self) -> int:
        """The number of intervals."""
        return -(-self.horizon // self.resolution)

    def bounds(self, since: int, number: int) -> tuple[int, int]:
        """The first instant of an interval, which are numbered from 0, and the first one behind it. Relay's
        time ends with the year 9999."""
        first = since + number * self.resolution
        return min(first, LATEST), min(first + self.resolution, since + self.horizon, LATEST)


@dataclass(frozen=True, slots=True)
class Cold:
    """What rests in cold stores, as sweeps have counted it, the oldest of them at `counted`: none of these
    timers is among those of the forecast that has this.

    `overdue` have been due since before the forecast begins, and no sweep has brought them.
    """

    counted: int
    overdue: int
    timers: Sequence[int]
    later: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What falls due from `since` on. Each timer is counted once: as overdue, as leased, in one of the
    intervals, or as later.

    `leased` is None where leases are not told apart: a leased timer is counted then where its lease ends.
    `occurrences` are what recurrences will make in each interval, up to `until` where that is not None; none
    is among `timers`. `unread` recurrences can't be read. `cold` is None where no sweep has left counts.
    """

    since: int
    overdue: int
    leased: int | None
    timers: Sequence[int]
    later: int
    recurrences: Sequence[StoredRecurrence] = ()
    """Those that come within the horizon; see `occurrences_of`."""
    until: int | None = None
    unread: int = 0
    occurrences: Sequence[int] = ()
    cold: Cold | None = None

    def joined(self, other: Forecast) -> Forecast:
        """The forecast of two partitions of a topic, since one instant."""
        untils = [each.until for each in (self, other) if each.until is not None]
        return replace(
            self,
            overdue=self.overdue + other.overdue,
            leased=None if self.leased is None or other.leased is None else self.leased + other.leased,
            timers=tuple(map(add, self.timers, other.timers)),
            later=self.later + other.later,
            recurrences=(*self.recurrences, *other.recurrences),
            until=min(untils, default=None),
            unread=self.unread + other.unread,
        )
