"""What a rule's instants are, computed in the dullest way: the judge of `relay.rules`, with which it shares
nothing.

Zones are read from the bytes of tzdata by a reader of RFC 8536 of its own. Rules are drawn as sets and
predicates, and as their text: Relay gets the text, the judge the sets. Wall times become instants by trying
every offset that the zone has about that time.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache
from importlib.resources import files
from itertools import product

EPOCH = datetime(1970, 1, 1)
DAY = 86_400

# ------------------------------------------------------------------- zones


@dataclass(frozen=True)
class Clock:
    """A zone: since which second which offset is in force; `offsets` has one more, for the time before."""

    name: str
    turns: tuple[int, ...]
    offsets: tuple[int, ...]

    def offset(self, second: int) -> int:
        return self.offsets[bisect_right(self.turns, second)]

    def turned(self, since: int, until: int) -> list[tuple[int, int, int]]:
        """When it is turned between two seconds: (second, offset before, offset after)."""
        found = []
        for place, second in enumerate(self.turns):
            before, after = self.offsets[place], self.offsets[place + 1]
            if since <= second < until and before != after:
                found.append((second, before, after))
        return found


def zone_names() -> list[str]:
    return files("tzdata").joinpath("zones").read_text().split()


@cache
def clock(name: str) -> Clock:
    data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    counts = struct.unpack(">6l", data[20:44])
    isut, isstd, leap, times, types, chars = counts
    at = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    assert data[at : at + 4] == b"TZif"
    isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[at + 20 : at + 44])
    at += 44
    turns = list(struct.unpack(f">{times}q", data[at : at + times * 8]))
    at += times * 8
    kinds = list(data[at : at + times])
    at += times
    offsets = [struct.unpack(">l", data[at + 6 * n : at + 6 * n + 4])[0] for n in range(types)]
    footer = data[at + types * 6 + chars + leap * 12 + isstd + isut :].strip(b"\n").decode()
    all_offsets = [offsets[0], *(offsets[kind] for kind in kinds)]
    last = turns[-1] if turns else -(2**40)
    for second, offset in _future(footer):
        if second > last:
            turns.append(second)
            all_offsets.append(offset)
    return Clock(name, tuple(turns), tuple(all_offsets))


def _future(footer: str) -> Iterator[tuple[int, int]]:
    """What the POSIX rule at a file's end says, for the years 1990 to 2060."""
    if "," not in footer:
        return
    names, starts, ends = footer.split(",")
    found = re.fullmatch(r"(?:<[^>]+>|[A-Za-z]+)([-+\d:]+)(?:<[^>]+>|[A-Za-z]+)([-+\d:]*)", names)
    assert found, footer
    standard = -_clock_time(found[1])
    summer = -_clock_time(found[2]) if found[2] else standard + 3600
    turns = []
    for year in range(1990, 2061):
        turns.append((_rule_day(year, starts) - standard, summer))
        turns.append((_rule_day(year, ends) - summer, standard))
    yield from sorted(turns)


def _clock_time(text: str) -> int:
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def _rule_day(year: int, rule: str) -> int:
    """The wall second at which a rule such as `M3.5.0/2` turns the clock."""
    day, _, time = rule.partition("/")
    at = _clock_time(time) if time else 7200
    if day.startswith("M"):
        month, week, weekday = map(int, day[1:].split("."))
        dates = [d for d in _dates_of(year, month) if d.isoweekday() % 7 == weekday]
        on = dates[-1] if week == 5 else dates[week - 1]
    elif day.startswith("J"):
        on = date(2001, 1, 1) + timedelta(days=int(day[1:]) - 1)
        on = on.replace(year=year)
    else:
        on = date(year, 1, 1) + timedelta(days=int(day))
    return (on - EPOCH.date()).days * DAY + at


def _dates_of(year: int, month: int) -> list[date]:
    first = date(year, month, 1)
    return [day for n in range(31) if (day := first + timedelta(days=n)).month == month]


# ------------------------------------------------------------------- rules


@dataclass(frozen=True)
class Drawn:
    """A rule as sets: on the dates that `on` names, at each time of the day of these."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    on: Callable[[date], bool]
    elapsed: bool

    def walls(self, since: datetime, until: datetime) -> list[datetime]:
        """The wall times between two, both included."""
        found = []
        day = since.date()
        while day <= until.date():
            if self.on(day):
                for hour, minute, second in product(self.hours, self.minutes, self.seconds):
                    wall = datetime(day.year, day.month, day.day, hour, minute, second)
                    if since <= wall <= until:
                        found.append(wall)
            day += timedelta(days=1)
        return found


Expected = tuple[int, int, str, int]
"""Second, offset, why left out, shift."""


def expected(
    rule: Drawn, zone: Clock, since: int, until: int, gap: str, fold: str, *, reach: int = 27 * 3600
) -> list[Expected]:
    """The nominal instants after `since`, up to `until`, both in seconds."""
    low, high = EPOCH + timedelta(seconds=since - reach), EPOCH + timedelta(seconds=until + reach)
    return judged(rule.walls(low, high), zone, since, until, gap, fold, elapsed=rule.elapsed)


def judged(
    walls: list[datetime], zone: Clock, since: int, until: int, gap: str, fold: str, *, elapsed: bool
) -> list[Expected]:
    """The same for wall times. Of two that fall together the one that fires, by its own time, counts."""
    best: dict[int, Expected] = {}
    for each in unmerged(walls, zone, since, until, gap, fold, elapsed=elapsed):
        other = best.get(each[0])
        if other is None or (each[2], each[3]) < (other[2], other[3]):
            best[each[0]] = each
    return sorted(each for each in best.values() if since < each[0] <= until)


def unmerged(
    walls: list[datetime], zone: Clock, since: int, until: int, gap: str, fold: str, *, elapsed: bool
) -> Iterator[Expected]:
    """What becomes of each wall time by itself."""
    turned = zone.turned(since - 4 * DAY, until + 4 * DAY)
    offsets = {zone.offset(since), *(each for turn in turned for each in turn[1:])}
    for wall in walls:
        local = int((wall - EPOCH).total_seconds())
        shown = sorted(local - offset for offset in offsets if zone.offset(local - offset) == offset)
        if elapsed or fold == "both":
            chosen = shown
        elif fold == "first":
            chosen = shown[:1]
        else:
            chosen = shown[-1:]
        for second in chosen:
            yield second, zone.offset(second), "", 0
        if not shown and not elapsed:
            ((before, width),) = {
                (before, after - before) for at, before, after in turned if at + before <= local < at + after
            }
            second, skips = local - before, gap == "skip"
            yield second, zone.offset(second), "gap" if skips else "", 0 if skips else width
