"""Recurrence rules of RFC 5545: which wall times they have.

The library dateutil expands a rule. Three things it does not do stand here. Its messages don't say what would
be right, and it ignores what the RFC forbids. It begins at DTSTART each time, so here it is given a later
one, by whole periods of the rule. It looks for dates until the year 9999, and is stopped here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from dateutil import rrule as dateutil

from relay.core.errors import InvalidField
from relay.rules.rrule_text import RruleText

_MOST_DAYS = 36_525
"""Days that are looked at for the next date: a hundred years of them."""

_MOST_DATES = 500
"""Dates on which no time is found, for rules by the hour and shorter, since each of them costs more."""


class RruleWalls:
    """The wall times of a rule from its DTSTART on, without its COUNT. Raises `InvalidField`."""

    def __init__(self, text: RruleText, start: datetime) -> None:
        self._start = start.replace(microsecond=0)
        self._frequency = text.frequency
        self._interval = text.interval
        self._options = _options(text, self._start)
        self._wkst = text.wkst
        self._excluded = text.excluded
        self._until = text.until
        dates = {name: self._options[name] for name in _BY_DATE if name in self._options}
        self._dates = (
            dates if text.frequency >= dateutil.HOURLY and dates.keys() & text.options.keys() else {}
        )
        self._check(text)

    def __call__(self, start: datetime) -> Iterator[datetime]:
        """See `Walls`."""
        for wall in self.with_excluded(start):
            if wall not in self._excluded and wall.date() not in self._excluded:
                yield wall

    def with_excluded(self, start: datetime) -> Iterator[datetime]:
        """The same, without a look at EXDATE."""
        start = max(start, self._start)
        for wall in self._expanded(start):
            if self._until is not None and wall > self._until:
                return
            if wall >= start:
                yield wall

    def stop_after(self, count: int) -> None:
        """Let the wall time with this number, from DTSTART on, be the last; EXDATE does not matter for it."""
        for wall in islice(self.with_excluded(self._start), count - 1, count):
            self._until = wall

    def _expanded(self, start: datetime) -> Iterator[datetime]:
        try:
            if self._dates:
                yield from self._date_by_date(start)
            else:
                yield from self._from(start)
        except (OverflowError, ValueError):
            return  # beyond the year 9999, or times of the day that the interval never meets

    def _date_by_date(self, start: datetime) -> Iterator[datetime]:
        """The times of a rule by the hour or shorter, on its dates. dateutil would look for times on each day
        before it asks whether the day is one: for 19 s where a rule fires in an hour of every fourth year."""
        midnight = start.replace(hour=0, minute=0, second=0)
        in_vain, last = 0, midnight
        for day in _Expansion(dateutil.DAILY, midnight, _MOST_DAYS, **self._dates):
            if self._period_before(day + _LAST_SECOND) < day:  # its interval is longer than a day
                if (day - last).days > _MOST_DAYS:
                    return
                continue
            in_vain += 1
            for wall in self._from(day):
                if wall >= day + _DAY:
                    break
                if wall >= day:
                    in_vain, last = 0, day
                    yield wall
            if in_vain > _MOST_DATES:
                return

    def _period_before(self, start: datetime) -> datetime:
        """The beginning of the rule's last period that begins at `start` or earlier, so that what the rule
        says about whole periods holds."""
        origin = self._start
        if self._frequency == dateutil.YEARLY:
            return datetime(origin.year + self._whole(start.year - origin.year), 1, 1)
        if self._frequency == dateutil.MONTHLY:
            periods = (start.year - origin.year) * 12 + start.month - origin.month
            year, month = divmod(origin.year * 12 + origin.month - 1 + self._whole(periods), 12)
            return datetime(year, month + 1, 1)
        length, truncated = self._period(origin)
        return truncated + self._whole((start - truncated) // length) * length

    def _period(self, origin: datetime) -> tuple[timedelta, datetime]:
        """The length of a period of a week or less, and the beginning of the one that has `origin`."""
        if self._frequency == dateutil.SECONDLY:
            return timedelta(seconds=1), origin
        if self._frequency == dateutil.MINUTELY:
            return timedelta(minutes=1), origin.replace(second=0)
        if self._frequency == dateutil.HOURLY:
            return timedelta(hours=1), origin.replace(minute=0, second=0)
        midnight = origin.replace(hour=0, minute=0, second=0)
        if self._frequency == dateutil.DAILY:
            return timedelta(days=1), midnight
        return timedelta(weeks=1), midnight - timedelta(days=(midnight.weekday() - self._wkst) % 7)

    def _from(self, start: datetime) -> _Expansion:
        """An expansion that begins with the period of `start`."""
        options = {name: value for name, value in self._options.items() if name not in self._dates}
        first = self._period_before(start)
        return _Expansion(
            self._frequency, first, _MOST_DAYS, interval=self._interval, wkst=self._wkst, **options
        )

    def _whole(self, periods: int) -> int:
        return periods // self._interval * self._interval

    def _check(self, text: RruleText) -> None:
        """Raise `InvalidField` for a rule that never fires."""
        if next(self(self._start), None) is None:
            why = "all its dates are excluded or behind UNTIL, or none comes"
            problem = f'"{text.text}" never fires: {why} within a hundred years of DTSTART'
            raise InvalidField("rule.rrule", problem)


_DAY = timedelta(days=1)
_LAST_SECOND = timedelta(days=1, seconds=-1)
_ALL_MONTHS = tuple(range(1, 13))

_BY_DATE = ("bymonth", "bymonthday", "byyearday", "byweekday")


def _options(text: RruleText, start: datetime) -> dict[str, Any]:
    """What the rule says, and what it takes from DTSTART: explicitly, since dateutil is given another one."""
    options = dict(text.options)
    dates = {"byweekno", "byyearday", "bymonthday", "byweekday"}
    if not dates & options.keys():
        if text.frequency == dateutil.YEARLY:
            options.setdefault("bymonth", (start.month,))
        if text.frequency in (dateutil.YEARLY, dateutil.MONTHLY):
            options["bymonthday"] = (start.day,)
        if text.frequency == dateutil.WEEKLY:
            options["byweekday"] = (start.weekday(),)
    if text.frequency < dateutil.HOURLY:
        options.setdefault("byhour", (start.hour,))
    if text.frequency < dateutil.MINUTELY:
        options.setdefault("byminute", (start.minute,))
    if text.frequency < dateutil.SECONDLY:
        options.setdefault("bysecond", (start.second,))
    return options


class _Expansion(dateutil.rrule):
    """dateutil's rrule, which ends when it has looked at `most` days and found nothing.

    It asks of each day first whether its month is one of the rule's: that is where it can be stopped. A rule
    that never fires would otherwise cost 10 s, and a caller could ask for it.
    """

    def __init__(self, frequency: int, start: datetime, most: int, **options: Any) -> None:
        super().__init__(frequency, start, **options)  # type: ignore[arg-type]
        self._most = most
        self._months = _Months(options.get("bymonth", _ALL_MONTHS))
        numbered = any(not isinstance(day, int) and day.n for day in options.get("byweekday", ()))
        if "bymonth" in options or not numbered:  # with months, 20MO would be of a month and not of the year
            self._bymonth: Any = self._months

    def __iter__(self) -> Iterator[datetime]:
        months = self._months
        months.left = self._most
        try:
            for wall in super().__iter__():
                months.left = self._most
                yield wall
        except _LookedLongEnough:
            return


class _LookedLongEnough(Exception):
    """No date was found."""


class _Months:
    """Months that can be asked only `left` times."""

    def __init__(self, months: tuple[int, ...]) -> None:
        self._months = months
        self.left = 0

    def __iter__(self) -> Iterator[int]:
        return iter(self._months)

    def __contains__(self, month: object) -> bool:
        self.left -= 1
        if self.left < 0:
            raise _LookedLongEnough
        return month in self._months
