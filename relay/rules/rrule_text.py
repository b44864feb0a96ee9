"""The text of a recurrence rule of RFC 5545: read, and held to what the RFC allows."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from dateutil import rrule as dateutil

from relay.core.errors import InvalidField

FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
"""Where a name stands is dateutil's number for it."""

_MONTHLY, _DAILY = 1, 3
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_LONGEST = 10_000
"""Characters of a rule."""

MOST_COUNT = 100_000
"""The largest COUNT: all of them are computed when the rule is compiled."""

_MOST_INTERVAL = 1_000_000

_DATE = re.compile(r"(\d{8})(?:T(\d{6})(Z)?)?", re.ASCII)
_BYDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)


class _Numbers(NamedTuple):
    """A part whose value is a list of numbers."""

    option: str
    low: int
    high: int
    signed: bool = False

    @property
    def right(self) -> str:
        """What would be right."""
        back = f", or -{self.high} to -{self.low}" if self.signed else ""
        return f"{self.low} to {self.high}{back}"


_NUMBERS = {
    "BYSECOND": _Numbers("bysecond", 0, 59),
    "BYMINUTE": _Numbers("byminute", 0, 59),
    "BYHOUR": _Numbers("byhour", 0, 23),
    "BYMONTHDAY": _Numbers("bymonthday", 1, 31, signed=True),
    "BYYEARDAY": _Numbers("byyearday", 1, 366, signed=True),
    "BYWEEKNO": _Numbers("byweekno", 1, 53, signed=True),
    "BYMONTH": _Numbers("bymonth", 1, 12),
    "BYSETPOS": _Numbers("bysetpos", 1, 366, signed=True),
}

_NOT_WITH = {
    "BYWEEKNO": ("MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"),
    "BYYEARDAY": ("MONTHLY", "WEEKLY", "DAILY"),
    "BYMONTHDAY": ("WEEKLY",),
}
"""Which part makes no sense with which frequency, by the RFC."""

_PARTS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)


@dataclass(slots=True)
class RruleText:
    """What a rule's text says. Wall times have no zone."""

    text: str
    frequency: int = -1
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    """The last wall time, if the rule has a local UNTIL."""
    until_instant: datetime | None = None
    """The last instant, if the rule has an UNTIL in UTC."""
    wkst: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of dateutil's rrule: `byhour` and its like."""
    start: datetime | None = None
    excluded: set[date] = field(default_factory=set)
    """Wall times, and whole dates, on which it does not fire."""

    @property
    def elapsed(self) -> bool:
        """Whether it goes by elapsed time: by the hour or shorter, and at no hours in particular."""
        return self.frequency > _DAILY and "byhour" not in self.options


def read_rrule(text: str, zone: ZoneInfo | None) -> RruleText:
    """Read `FREQ=…`, or lines with DTSTART, RRULE and EXDATE. Instants in UTC become wall times of the zone.
    Raises `InvalidField`."""
    if len(text) > _LONGEST:
        raise _wrong(f"is {len(text)} characters long; at most {_LONGEST} are allowed")
    read = RruleText(text)
    rules = 0
    for line in re.sub(r"\r?\n[ \t]", "", text.strip()).splitlines():
        head, colon, value = line.strip().partition(":")
        name, *parameters = (head if colon else "RRULE").split(";")
        name = name.upper()
        if name == "RRULE":
            rules += 1
            _read_rule(read, value if colon else head)
        elif name == "DTSTART":
            _check_parameters(name, parameters, zone)
            read.start = _wall(name, value.strip(), zone)
        elif name == "EXDATE":
            _check_parameters(name, parameters, zone)
            read.excluded.update(_excluded(each.strip(), zone) for each in value.split(","))
        else:
            raise _wrong(f"{name} in a rule: write RRULE, DTSTART or EXDATE")
    if rules != 1:
        raise _wrong(f"{rules} lines with RRULE: give exactly one")
    _check_parts(read)
    return read


def _wrong(problem: str) -> InvalidField:
    return InvalidField("rule.rrule", problem)


def _read_rule(read: RruleText, rule: str) -> None:
    given: set[str] = set()
    for part in rule.upper().removesuffix(";").split(";"):
        name, equals, value = part.partition("=")
        if name not in _PARTS or not equals:
            raise _wrong(f'"{part}" in "{rule}": write {", ".join(_PARTS)}, each with = and its value')
        if name in given:
            raise _wrong(f'{name} comes twice in "{rule}": give one, with commas')
        given.add(name)
        try:
            _read_part(read, name, value)
        except ValueError as error:
            raise _wrong(f'{name} {value or "is empty"} in "{rule}": {error}') from None
    if "FREQ" not in given:
        raise _wrong(f'no FREQ in "{rule}": give {", ".join(FREQUENCIES)}')
    if {"COUNT", "UNTIL"} <= given:
        raise _wrong(f'COUNT and UNTIL in "{rule}": give one of them')


def _read_part(read: RruleText, name: str, value: str) -> None:
    """Raises `ValueError` with what would be right."""
    if name == "FREQ":
        if value not in FREQUENCIES:
            raise ValueError(", ".join(FREQUENCIES))
        read.frequency = FREQUENCIES.index(value)
    elif name == "INTERVAL":
        read.interval = _number(value, 1, _MOST_INTERVAL)
    elif name == "COUNT":
        read.count = _number(value, 1, MOST_COUNT)
    elif name == "UNTIL":
        _read_until(read, value)
    elif name == "WKST":
        if value not in _WEEKDAYS:
            raise ValueError(", ".join(_WEEKDAYS))
        read.wkst = _WEEKDAYS.index(value)
    elif name == "BYDAY":
        read.options["byweekday"] = tuple(_weekday(each) for each in value.split(","))
    else:
        part = _NUMBERS[name]
        read.options[part.option] = tuple(_listed(each, part) for each in value.split(","))


def _number(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not low <= int(text) <= high:
        raise ValueError(f"{low} to {high}")
    return int(text)


def _listed(text: str, part: _Numbers) -> int:
    if not re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII):
        raise ValueError(part.right)
    number = int(text)
    if not part.low <= (abs(number) if part.signed else number) <= part.high:
        raise ValueError(part.right)
    return number


def _weekday(text: str) -> Any:
    found = _BYDAY.fullmatch(text)
    if not found or (found[1] and not 1 <= abs(int(found[1])) <= 53):
        raise ValueError(
            f"{', '.join(_WEEKDAYS)}, and before it a number from 1 to 53 or from -53 to -1, such as 2MO"
        )
    day = dateutil.weekday(_WEEKDAYS.index(found[2]))
    return day(int(found[1])) if found[1] else day


def _read_until(read: RruleText, value: str) -> None:
    when, universal, whole_day = _parsed(value)
    if universal:
        read.until_instant = when
    else:
        read.until = when + timedelta(days=1, seconds=-1) if whole_day else when


def _parsed(value: str) -> tuple[datetime, bool, bool]:
    """The time, whether it is in UTC, and whether it is a whole date."""
    found = _DATE.fullmatch(value.upper())
    try:
        if found is None:
            raise ValueError
        when = datetime.strptime(found[1] + (found[2] or "000000"), "%Y%m%d%H%M%S")  # noqa: DTZ007
    except ValueError:
        raise ValueError(
            "a time such as 20261231T235959Z in UTC, 20261231T235959 on the wall, or 20261231"
        ) from None
    if when.year < 1970:
        raise ValueError("1970 or later")
    return when, found[3] is not None, found[2] is None


def _excluded(value: str, zone: ZoneInfo | None) -> date:
    when = _wall("EXDATE", value, zone)
    return when if "T" in value.upper() else when.date()


def _wall(name: str, value: str, zone: ZoneInfo | None) -> datetime:
    try:
        when, universal, _ = _parsed(value)
    except ValueError as error:
        raise _wrong(f"{name} {value}: {error}") from None
    if universal and zone is not None:
        return when.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None, fold=0)
    return when


def _check_parameters(name: str, parameters: list[str], zone: ZoneInfo | None) -> None:
    """Hold the parameters of a line to what can be meant: a zone that is the rule's."""
    named = zone.key if zone is not None else "UTC"
    for given in parameters:
        parameter, _, value = given.partition("=")
        if parameter.upper() == "VALUE" and value.upper() in ("DATE", "DATE-TIME"):
            continue
        if parameter.upper() != "TZID":
            raise _wrong(f"{name};{given}: write TZID, or leave it out")
        if value != named:
            problem = f"{name} is in {value!r} and the rule in {named!r}: give {value!r} as the zone"
            raise InvalidField("rule.zone", problem)


def _check_parts(read: RruleText) -> None:
    """What the RFC forbids, and dateutil would ignore."""
    frequency = FREQUENCIES[read.frequency]
    for name, others in _NOT_WITH.items():
        if _NUMBERS[name].option in read.options and frequency in others:
            raise _wrong(f'{name} with FREQ={frequency} in "{read.text}": leave it out')
    numbered = [day for day in read.options.get("byweekday", ()) if day.n]
    if numbered and (read.frequency > _MONTHLY or "byweekno" in read.options):
        right = "a number before a weekday goes with FREQ=MONTHLY, or YEARLY without BYWEEKNO"
        raise _wrong(f'BYDAY {numbered[0].n}{_WEEKDAYS[numbered[0].weekday]} in "{read.text}": {right}')
    _check_times(read, frequency)
    if "bysetpos" in read.options and len(read.options) == 1:
        raise _wrong(f'BYSETPOS alone in "{read.text}": it chooses among what another BY… part names')


_OF_A_DAY = {"HOURLY": 24, "MINUTELY": 1_440, "SECONDLY": 86_400}
_FILTERS = {
    "HOURLY": ("BYHOUR",),
    "MINUTELY": ("BYHOUR", "BYMINUTE"),
    "SECONDLY": ("BYHOUR", "BYMINUTE", "BYSECOND"),
}


def _check_times(read: RruleText, frequency: str) -> None:
    """Refuse what would be searched for long: times that the interval meets on some days and not on others,
    and places in a set that never has as much."""
    if frequency not in _FILTERS:
        return
    filters = [name for name in _FILTERS[frequency] if _NUMBERS[name].option in read.options]
    if filters and _OF_A_DAY[frequency] % read.interval:
        right = f"beside {filters[0]}, one that divides a day ({_OF_A_DAY[frequency]})"
        raise _wrong(f'INTERVAL {read.interval} in "{read.text}": {right}')
    size = 1
    for option in ("byminute", "bysecond"):
        if option not in [_NUMBERS[name].option for name in _FILTERS[frequency]]:
            size *= len(set(read.options.get(option, (0,))))
    if all(abs(place) > size for place in read.options.get("bysetpos", ())) and "bysetpos" in read.options:
        raise _wrong(
            f'BYSETPOS in "{read.text}": 1 to {size}, or -{size} to -1, since there are no more times'
        )
