"""How many timers rest outside Redis, in a cold store, by when they are due. Instants and lengths are
microseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

from relay.core.instants import SECOND
from relay.core.recurring.forecast import Cold, Window

HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND

HOURLY, DAILY = 8 * DAY, 400 * DAY
"""How far ahead timers are counted by the hour, and how far by the day; behind that by 30 days."""


class Span(NamedTuple):
    """The timers that are due from `start` on and before `end`."""

    start: int
    end: int
    timers: int


@dataclass(frozen=True, slots=True)
class ColdCounts:
    """What one cold store has of a topic, as counted at an instant. The spans follow one another, and none
    is empty."""

    counted: int
    spans: Sequence[Span]

    @classmethod
    def of_hours(cls, hours: Mapping[int, int], counted: int) -> Self:
        """Make spans of the counts of single hours since 1970: 700 at most, however many hours there are."""
        found: dict[tuple[int, int], int] = {}
        for hour, timers in sorted(hours.items()):
            span = _span(hour * HOUR, counted)
            found[span] = found.get(span, 0) + timers
        return cls(counted, tuple(Span(*span, timers) for span, timers in found.items() if timers))

    def without(self, until: int) -> Self:
        """Return this without what is due before an instant; of a span that has the instant within it, the
        part before it goes."""
        behind = [each for each in self.spans if each.end > until]
        spans = [
            each if each.start >= until else Span(until, each.end, each.timers - _part(each, until))
            for each in behind
        ]
        return type(self)(self.counted, tuple(spans))

    def before(self, instants: Sequence[int]) -> list[int]:
        """How many are due before each of these instants, as if the timers of a span were spread over it
        evenly. Rounded down, so that what differences say adds up. One pass over the spans, and a binary
        search for each instant."""
        starts = [each.start for each in self.spans]
        sums = [0, *accumulate(each.timers for each in self.spans)]

        def one(instant: int) -> int:
            begun = bisect_left(starts, instant)
            return sums[begun - 1] + _part(self.spans[begun - 1], instant) if begun else 0

        return [one(each) for each in instants]

    @property
    def timers(self) -> int:
        """All of them."""
        return sum(each.timers for each in self.spans)


def cold_forecast(found: Sequence[ColdCounts], window: Window, since: int) -> Cold | None:
    """What falls due of cold stores in the intervals of a window; None if none has left counts."""
    if not found:
        return None
    borders = [since, *(window.bounds(since, number)[1] for number in range(window.intervals))]
    counts = [sum(each) for each in zip(*(each.before(borders) for each in found), strict=True)]
    return Cold(
        counted=min(each.counted for each in found),
        overdue=counts[0],
        timers=tuple(after - first for first, after in pairwise(counts)),
        later=sum(each.timers for each in found) - counts[-1],
    )


def _span(start: int, counted: int) -> tuple[int, int]:
    """The span in which an hour is counted. What is overdue is one; the first day of those that are counted
    by the day, and the first month, may be shorter."""
    now = counted // HOUR * HOUR
    if start < now:
        return 0, now
    if start < now + HOURLY:
        return start, start + HOUR
    day = start // DAY * DAY
    if day < now + DAILY:
        return max(day, now + HOURLY), day + DAY
    month = start // (30 * DAY) * (30 * DAY)
    return max(month, -(-(now + DAILY) // DAY) * DAY), month + 30 * DAY


def _part(span: Span, instant: int) -> int:
    """How many of a span are due before an instant."""
    if instant >= span.end:
        return span.timers
    return max(span.timers * (instant - span.start) // (span.end - span.start), 0)
