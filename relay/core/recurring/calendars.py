"""Calendars: dates under a name, on which rules that name it do not fire."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches

from relay.core.errors import InvalidField, UnknownCalendar

MOST_CALENDARS = 100
"""Calendars that there may be."""

MOST_DATES = 1_000
"""Dates that a calendar has, or that a rule leaves out by itself, at most."""

MOST_NAMED = 10
"""Calendars that one rule names at most."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class KnownCalendars:
    """All calendars as they were at one moment. `revision` is another text after each change."""

    revision: str = ""
    dates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the calendars' names; dates such as `2026-12-24`."""

    def named(self, names: Iterable[str]) -> list[frozenset[str]]:
        """The dates of these calendars; one that does not exist has none."""
        return [self.dates[name] for name in names if name in self.dates]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of the names that no calendar has."""
        return [name for name in names if name not in self.dates]

    def require(self, names: Sequence[str]) -> None:
        """Raises `UnknownCalendar` for a rule that names a calendar which does not exist."""
        for place, name in enumerate(names):
            if name not in self.dates:
                nearest = get_close_matches(name, self.dates, n=1, cutoff=0.6)
                hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
                raise UnknownCalendar(f"rule.calendars[{place}]", _unknown(name, hint), _unknown(name))


def _unknown(name: str, hint: str = "") -> str:
    return f"there is no calendar {name!r}{hint}; put it first, or leave it out"


NO_CALENDARS = KnownCalendars()


def is_name(text: str) -> bool:
    """Whether a text can be the name of a calendar."""
    return _NAME.fullmatch(text) is not None


def calendar_name(field: str, value: str) -> str:
    """Check the name of a calendar. Raises `InvalidField`."""
    if not is_name(value):
        problem = (
            "is not the name of a calendar: 1 to 100 letters, digits, '.', '_' and '-', such as de-holidays"
        )
        raise InvalidField(field, f"{value!r} {problem}")
    return value


def calendar_names(field: str, values: Sequence[str]) -> tuple[str, ...]:
    """Check the names that a rule has. Raises `InvalidField`."""
    if len(values) > MOST_NAMED:
        raise InvalidField(field, f"has {len(values):,} names; give at most {MOST_NAMED}")
    for place, value in enumerate(values):
        calendar_name(f"{field}[{place}]", value)
        if value in values[:place]:
            raise InvalidField(f"{field}[{place}]", f"{value!r} is there twice; name it once")
    return tuple(values)


def calendar_dates(field: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Check the dates of a calendar; return them ascending, each once. Raises `InvalidField`."""
    if len(texts) > MOST_DATES:
        raise InvalidField(field, f"has {len(texts):,} dates; give at most {MOST_DATES:,}")
    for place, text in enumerate(texts):
        check_date(f"{field}[{place}]", text)
    return tuple(sorted(set(texts)))


def check_date(field: str, text: str) -> None:
    """Raises `InvalidField` for what is not a date such as `2026-12-24`."""
    if not is_date(text):
        raise InvalidField(field, f"{text!r} is not a date such as 2026-12-24")


def is_date(text: str) -> bool:
    """Whether a text is a date such as `2026-12-24`."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
