"""A recurrence's instants as a calendar, and on a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo

from relay.console import shown
from relay.core.errors import InvalidField
from relay.rules.zones import find_zone
from relay.v1 import recurrence_service_pb2 as pb

WEEKS = 6
"""The weeks of a calendar: the last one, this one, and those that come."""

LINE_WIDTH = 1000
"""The width of a line, in its own units."""

BAD = {pb.OCCURRENCE_OUTCOME_DEAD, pb.OCCURRENCE_OUTCOME_EXPIRED, pb.OCCURRENCE_OUTCOME_REMOVED}


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A day in the rule's zone: how many instants come, and how many have come, were left out, and went
    wrong. `is_known` says whether the rule was computed up to its end."""

    day: date
    coming: int
    past: int
    left_out: int
    bad: int
    is_today: bool
    is_known: bool


@dataclass(frozen=True, slots=True)
class LineMark:
    """An instant on the line: where, what it is (`ok`, `warn`, `bad`, `next`), and its time."""

    at: float
    kind: str
    time: str


def days_of(
    zone: str,
    coming: Sequence[pb.NominalInstant],
    past: Sequence[pb.PastInstant],
    now: datetime,
    *,
    ends: bool,
) -> list[list[CalendarDay]]:
    """Weeks of days, from Monday on. `ends` says that nothing comes behind `coming`."""
    tz = _zone(zone)
    today = now.astimezone(tz).date()
    first = today - timedelta(days=today.weekday() + 7)
    ahead = Counter(_day(each.time.ToDatetime(UTC), tz) for each in coming if not each.left_out)
    skipped = Counter(_day(each.time.ToDatetime(UTC), tz) for each in coming if each.left_out)
    skipped.update(_day(each.time.ToDatetime(UTC), tz) for each in past if each.left_out)
    behind = Counter(_day(each.time.ToDatetime(UTC), tz) for each in past if not each.left_out)
    bad = Counter(_day(each.time.ToDatetime(UTC), tz) for each in past if each.outcome in BAD)
    known = date.max if ends or not coming else _day(coming[-1].time.ToDatetime(UTC), tz)
    days = [first + timedelta(days=number) for number in range(7 * WEEKS)]
    cells = [
        CalendarDay(each, ahead[each], behind[each], skipped[each], bad[each], each == today, each < known)
        for each in days
    ]
    return [cells[start : start + 7] for start in range(0, len(cells), 7)]


def line_of(
    coming: Sequence[pb.NominalInstant], past: Sequence[pb.PastInstant], now: datetime
) -> Mapping[str, object]:
    """The instants by their times, the oldest at 0, and where now is."""
    marks = [(each.time.ToDatetime(UTC), _kind(each)) for each in past]
    marks += [(each.time.ToDatetime(UTC), "warn" if each.left_out else "next") for each in coming]
    moments = [*(at for at, _ in marks), now]
    low, high = min(moments), max(moments)
    span = (high - low).total_seconds() or 1.0

    def place(moment: datetime) -> float:
        return round((moment - low).total_seconds() / span * LINE_WIDTH, 1)

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {
        "marks": [
            LineMark(place(at), kind, shown.utc((at - epoch) // timedelta(microseconds=1)))
            for at, kind in sorted(marks)
        ],
        "now": place(now),
    }


def _kind(each: pb.PastInstant) -> str:
    return "warn" if each.left_out else "bad" if each.outcome in BAD else "ok"


def _zone(name: str) -> tzinfo:
    try:
        return find_zone(name) or UTC
    except InvalidField:  # of a relay with newer zones
        return UTC


def _day(moment: datetime, zone: tzinfo) -> date:
    return moment.astimezone(zone).date()
