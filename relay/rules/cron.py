"""Cron expressions: which wall times they have.

The library cronsim parses, and says which days match. What it does not do stands here: it says only
*Bad minute*, and knows no `15W`, no `FRIL` and no `@daily`; and it searches field by field, which is slow.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from datetime import MAXYEAR, date, datetime
from functools import lru_cache
from typing import NamedTuple

from cronsim import CronSim

from relay.core.errors import InvalidField

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_LONGEST = 1_000
"""Characters of an expression."""


class _Field(NamedTuple):
    """A field of an expression: its bounds, its names from `names_from` on, and what is right in it."""

    name: str
    low: int
    high: int
    right: str
    names: tuple[str, ...] = ()
    names_from: int = 0


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

_FIELDS = (
    _Field("second", 0, 59, "0 to 59"),
    _Field("minute", 0, 59, "0 to 59"),
    _Field("hour", 0, 23, "0 to 23"),
    _Field("day", 1, 31, "1 to 31, L, LW, or a number with W"),
    _Field("month", 1, 12, "1 to 12, or JAN to DEC", _MONTHS, 1),
    _Field("weekday", 0, 7, "0 to 7, or SUN to SAT, such a day with L, or with # and 1 to 5", _WEEKDAYS),
)
_DAY, _WEEKDAY = 3, 5

_TERM = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?", re.ASCII)
_OF_MONTH = re.compile(r"(?P<day>\w+?)(?:L|#(?P<number>[1-5]))", re.ASCII)
_NEAREST = re.compile(r"(\d{1,2})W", re.ASCII)

_NEVER_SEEN = datetime(2000, 1, 1)
"""A search from here on meets every kind of year within `_MOST_YEARS`."""


class CronWalls:
    """The wall times of a cron expression of five or six fields, or of a macro. Raises `InvalidField`."""

    def __init__(self, expression: str) -> None:
        fields = [_checked(expression, *each) for each in zip(_FIELDS, _split(expression), strict=True)]
        self.elapsed = fields[2].startswith("*")
        """Whether it has a wildcard in hours, and so goes by elapsed time."""
        self._days = _CronDays(fields)
        self._hours, self._minutes, self._seconds = map(
            sorted, (self._days.hours, self._days.minutes, self._days.seconds)
        )
        if next(self(_NEVER_SEEN), None) is None:
            raise _never(expression)

    def __call__(self, start: datetime) -> Iterator[datetime]:
        """See `Walls`."""
        for day in self._days.since(start):
            yield from self._times(day, max(start, day))

    def _times(self, day: datetime, start: datetime) -> Iterator[datetime]:
        """The times of a day, from one of its own on."""
        for hour in self._hours[bisect_left(self._hours, start.hour) :]:
            first = start.minute if hour == start.hour else 0
            for minute in self._minutes[bisect_left(self._minutes, first) :]:
                first = start.second if (hour, minute) == (start.hour, start.minute) else 0
                for second in self._seconds[bisect_left(self._seconds, first) :]:
                    yield datetime(day.year, day.month, day.day, hour, minute, second)


_MOST_MONTHS = 120
"""Months whose days are kept for each expression."""

_MOST_YEARS = 50
"""Years without a day after which a search ends. Dates have their weekdays again after 28 years, or after 40
where a year like 2100 is among them."""


class _CronDays(CronSim):
    """An expression as cronsim reads it, with weekdays that are the nearest to a day. cronsim's own search
    goes from field to field for each time: it would take most of the CPU of a forecast."""

    def __init__(self, fields: list[str]) -> None:
        self._known: dict[tuple[int, int], list[int]] = {}
        days = fields[_DAY].split(",")
        self._nearest = [int(found[1]) for each in days if (found := _NEAREST.fullmatch(each))]
        plain = [each for each in days if not _NEAREST.fullmatch(each)]
        # With L cronsim does not refuse days that no month has: others of the list may fire.
        super().__init__(
            " ".join([*fields[:_DAY], ",".join([*plain, "L"]), *fields[_DAY + 1 :]]), _NEVER_SEEN
        )
        if "L" not in plain:
            self.days.discard(self.LAST)
        self.day_and = fields[_DAY].startswith("*") or fields[_WEEKDAY].startswith("*")

    def since(self, start: datetime) -> Iterator[datetime]:
        """The midnights of the days from that of `start` on."""
        year, month, first, last = start.year, start.month, start.day, start.year
        while year <= min(last + _MOST_YEARS, MAXYEAR):
            days = self._of(year, month) if month in self.months else []
            for day in days[bisect_left(days, first) :]:
                last = year
                yield datetime(year, month, day)
            year, month, first = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)

    def _of(self, year: int, month: int) -> list[int]:
        """The days of a month: it is asked once, and remembered."""
        days = self._known.get((year, month))
        if days is None:
            if len(self._known) >= _MOST_MONTHS:
                self._known.clear()
            number = monthrange(year, month)[1]
            days = [day for day in range(1, number + 1) if self.match_day(date(year, month, day))]
            self._known[year, month] = days
        return days

    def match_dom(self, d: date) -> bool:
        if super().match_dom(d):
            return True
        return any(d.day == _nearest_weekday(d.year, d.month, each) for each in self._nearest)


@lru_cache(1_024)
def _nearest_weekday(year: int, month: int, day: int) -> int:
    """The working day nearest to a day, in the same month; 0 where the month lacks the day."""
    _, last = monthrange(year, month)
    if day > last:
        return 0
    weekday = date(year, month, day).weekday()
    if weekday == 5:
        return day - 1 if day > 1 else 3
    if weekday == 6:
        return day + 1 if day < last else day - 2
    return day


def _split(expression: str) -> list[str]:
    """The six fields."""
    if len(expression) > _LONGEST:
        problem = f"is {len(expression)} characters long; at most {_LONGEST} are allowed"
        raise InvalidField("rule.cron", problem)
    text = expression.strip()
    if text.startswith("@"):
        text = MACROS.get(text.lower(), "")
        if not text:
            known = ", ".join(MACROS)
            raise InvalidField("rule.cron", f'unknown "{expression}": {known}, or @every 90s')
    fields = text.upper().split()
    if len(fields) not in (5, 6):
        right = "minute hour day month weekday, or six with the second first"
        number = f"{len(fields)} field{'s' * (len(fields) != 1)}"
        raise InvalidField("rule.cron", f'{number} in "{expression}": give five, {right}')
    return fields if len(fields) == 6 else ["0", *fields]


def _checked(expression: str, field: _Field, text: str) -> str:
    """The field as cronsim takes it: with numbers for the names of days."""
    terms = []
    for term in text.split(","):
        try:
            terms.append(_term(field, term))
        except ValueError as error:
            problem = f'{field.name} {term or "is empty"} in "{expression}": {error}'
            raise InvalidField("rule.cron", problem) from None
    return ",".join(terms)


def _term(field: _Field, term: str) -> str:
    """Raises `ValueError` with what would be right."""
    if field is _FIELDS[_DAY] and _is_special_day(term):
        return term
    if field is _FIELDS[_WEEKDAY] and (special := _special_weekday(field, term)):
        return special
    found = _TERM.fullmatch(term)
    if not found:
        raise ValueError(f"* where any will do, {field.right}" if term == "?" else field.right)
    span = _span(field, found["first"], found["last"])
    step = found["step"]
    if step and not 1 <= int(step) <= field.high:
        raise ValueError(f"a step is 1 to {field.high}")
    if found["last"] and "-" not in span:  # 5-5/2 is 5, and cronsim takes it for 5/2
        return span
    return f"{span}/{step}" if step else span


def _span(field: _Field, first: str | None, last: str | None) -> str:
    if first is None:
        return "*"
    low = _number(field, first)
    high = low if last is None else _number(field, last)
    if low is None or high is None:
        raise ValueError(field.right)
    if last is None:
        return f"{low}"
    if last == "SUN" and low:
        high = 7
    if high < low:
        raise ValueError(f"a range ascends; write two, {low}-{field.high},{field.low}-{high}")
    return f"{low}-{high}" if low < high else f"{low}"


def _number(field: _Field, text: str) -> int | None:
    """The number of a value or of its name; None for what the field does not have."""
    if text in field.names:
        return field.names.index(text) + field.names_from
    if text.isdecimal() and field.low <= int(text) <= field.high:
        return int(text)
    return None


def _is_special_day(term: str) -> bool:
    found = _NEAREST.fullmatch(term)
    return term in ("L", "LW") or (found is not None and 1 <= int(found[1]) <= 31)


def _special_weekday(field: _Field, term: str) -> str:
    """`FRIL` as `5L`, `MON#2` as `1#2`; empty for anything else."""
    found = _OF_MONTH.fullmatch(term)
    day = _number(field, found["day"]) if found else None
    return "" if found is None or day is None else f"{day}{term[found.end('day') :]}"


def _never(expression: str) -> InvalidField:
    return InvalidField("rule.cron", f'"{expression}" never fires: no month that it names has such a day')
