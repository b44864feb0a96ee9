"""Time zones, by the tzdata of PyPI and never by the machine's own: all replicas compute alike.

Zones are read from the package by hand, since `ZoneInfo(name)` asks the machine first, and to turn that off
is a setting of the whole process.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata

from relay.core.errors import InvalidField

TZDATA: str = tzdata.IANA_VERSION
"""The version of the tzdata that computes, such as `2026b`."""


_LONGEST = 64
"""Characters of a name; the longest that there is has half of them. A search for the nearest name takes a
time that grows with the name."""

_DAY = 86_400
_WEEK = 7 * _DAY


@cache
def zone_names() -> frozenset[str]:
    """All names of zones, links included."""
    return frozenset(files(tzdata).joinpath("zones").read_text(encoding="ascii").split())


def find_zone(name: str) -> ZoneInfo | None:
    """The zone of an IANA name; None for UTC by any of its names. Raises `InvalidField`."""
    if name in ("", "UTC"):
        return None
    if len(name) > _LONGEST:
        problem = f"is {len(name)} characters long; the name of a time zone has at most {_LONGEST}"
        raise InvalidField("rule.zone", problem)
    if name not in zone_names():
        raise InvalidField("rule.zone", f"{name!r} is not a time zone{_nearest(name)}")
    return _read(name)


@cache
def _read(name: str) -> ZoneInfo:
    with files(tzdata).joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def offset_of(zone: ZoneInfo, wall: datetime) -> int:
    """The offset from UTC of a wall time, in seconds; its `fold` says by which clock where it is turned."""
    offset = zone.utcoffset(wall)
    assert offset is not None
    return offset.days * _DAY + offset.seconds


def offset_at(zone: ZoneInfo, second: int) -> int:
    """The offset from UTC, in seconds, at a second since 1970."""
    return offset_of(zone, datetime.fromtimestamp(second, zone))


def turn(zone: ZoneInfo, before: int, after: int) -> int:
    """The second at which the clock is turned: later than `before`, at the latest at `after`."""
    offset = offset_at(zone, before)
    while before + 1 < after:
        middle = (before + after) // 2
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def turns(zone: ZoneInfo, since: int, until: int) -> Iterator[int]:
    """The seconds between these two at which the clock is turned, as far as it shows a week later."""
    for second in range(since, until, _WEEK):
        if offset_at(zone, second) != offset_at(zone, second + _WEEK):
            yield turn(zone, second, second + _WEEK)


def _nearest(name: str) -> str:
    """A hint with the name that was probably meant: in other letters, without its continent, mistyped."""
    wanted = name.strip().replace(" ", "_").casefold()
    known = {each.casefold(): each for each in sorted(zone_names())}
    cities = {each.rpartition("/")[2]: each for each in known if "/" in each}
    if wanted in known:
        return f"; write {known[wanted]!r}"
    city = wanted.rpartition("/")[2]
    if city in cities:
        return f"; write {known[cities[city]]!r}"
    if found := get_close_matches(wanted, known, n=1, cutoff=0.6):
        return f"; the nearest name is {known[found[0]]!r}"
    if found := get_close_matches(city, cities, n=1, cutoff=0.6):
        return f"; the nearest name is {known[cities[found[0]]]!r}"
    return "; give an IANA name such as 'Europe/Berlin', or leave it empty for UTC"
