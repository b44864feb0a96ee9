"""RRULEs drawn at random, and the dullest way to expand them: each date since DTSTART is asked whether it
fits, as the sentences of RFC 5545 say it. Shares nothing with dateutil."""

from __future__ import annotations

from calendar import isleap, monthrange
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import product
from random import Random

NAMES = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY = range(6)
FREQUENCIES = ["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY"]


@dataclass
class DrawnRrule:
    """A rule: the numbers of its BY parts, weekdays as (number or 0, 0 for Monday)."""

    frequency: int
    start: datetime
    interval: int = 1
    wkst: int = 0
    count: int | None = None
    until: datetime | None = None
    by: dict[str, list[int]] = field(default_factory=dict)
    days: list[tuple[int, int]] = field(default_factory=list)
    excluded: list[datetime] = field(default_factory=list)

    @property
    def rule(self) -> str:
        parts = [f"FREQ={FREQUENCIES[self.frequency]}"]
        if self.interval > 1:
            parts.append(f"INTERVAL={self.interval}")
        if self.wkst:
            parts.append(f"WKST={NAMES[self.wkst]}")
        if self.count is not None:
            parts.append(f"COUNT={self.count}")
        if self.until is not None:
            parts.append(f"UNTIL={self.until:%Y%m%dT%H%M%S}")
        parts.extend(f"{name}={','.join(map(str, numbers))}" for name, numbers in self.by.items())
        if self.days:
            parts.append("BYDAY=" + ",".join(f"{number or ''}{NAMES[day]}" for number, day in self.days))
        return ";".join(parts)

    @property
    def text(self) -> str:
        lines = [f"DTSTART:{self.start:%Y%m%dT%H%M%S}", f"RRULE:{self.rule}"]
        lines.extend(f"EXDATE:{each:%Y%m%dT%H%M%S}" for each in self.excluded)
        return "\n".join(lines)

    @property
    def elapsed(self) -> bool:
        return self.frequency >= HOURLY and "BYHOUR" not in self.by

    def walls(self, until: datetime, *, count: bool = True) -> list[datetime]:
        """All wall times from DTSTART to `until`, EXDATE left out, and those behind COUNT unless told
        otherwise."""
        periods: dict[tuple[int, ...], list[datetime]] = defaultdict(list)
        first = self._week(self.start.date()) if self.frequency == WEEKLY else self.start.date()
        if self.frequency == MONTHLY:
            first = first.replace(day=1)
        if self.frequency == YEARLY:
            first = first.replace(month=1, day=1)
        last = date(until.year + 1, 1, 1) if "BYSETPOS" in self.by else until.date()
        for n in range((last - first).days + 1):
            day = first + timedelta(days=n)
            if self._fits(day):
                for wall in self._times(day):
                    periods[self._period(wall)].append(wall)
        found = []
        for period in sorted(periods):
            found.extend(self._placed(sorted(periods[period])))
        found = [wall for wall in found if wall >= self.start and (self.until is None or wall <= self.until)]
        if count and self.count is not None:
            found = found[: self.count]
        return [wall for wall in found if wall <= until and wall not in self.excluded]

    def _placed(self, walls: list[datetime]) -> list[datetime]:
        places = self.by.get("BYSETPOS")
        if places is None:
            return walls
        indexes = {place - 1 if place > 0 else len(walls) + place for place in places}
        return [walls[index] for index in sorted(indexes) if 0 <= index < len(walls)]

    def _week(self, day: date) -> date:
        return day - timedelta(days=(day.weekday() - self.wkst) % 7)

    def _period(self, wall: datetime) -> tuple[int, ...]:
        if self.frequency == YEARLY:
            return (wall.year,)
        if self.frequency == MONTHLY:
            return wall.year, wall.month
        if self.frequency == WEEKLY:
            return (self._week(wall.date()).toordinal(),)
        return (
            wall.toordinal(),
            wall.hour * (self.frequency >= HOURLY),
            wall.minute * (self.frequency >= MINUTELY),
        )

    def _fits(self, day: date) -> bool:
        start = self.start.date()
        if self.frequency == YEARLY and (day.year - start.year) % self.interval:
            return False
        if (
            self.frequency == MONTHLY
            and ((day.year - start.year) * 12 + day.month - start.month) % self.interval
        ):
            return False
        if self.frequency == WEEKLY and (self._week(day) - self._week(start)).days // 7 % self.interval:
            return False
        if self.frequency == DAILY and (day - start).days % self.interval:
            return False
        months = self.by.get("BYMONTH")
        if months and day.month not in months:
            return False
        return self._fits_in_month(day)

    def _fits_in_month(self, day: date) -> bool:
        by, start = self.by, self.start.date()
        dated = by.keys() & {"BYWEEKNO", "BYYEARDAY", "BYMONTHDAY"} or self.days
        if not dated:
            if self.frequency == YEARLY:
                return day.day == start.day and ("BYMONTH" in by or day.month == start.month)
            if self.frequency == MONTHLY:
                return day.day == start.day
            return self.frequency != WEEKLY or day.weekday() == start.weekday()
        length = 366 if isleap(day.year) else 365
        of_year = day.timetuple().tm_yday
        if "BYYEARDAY" in by and not {of_year, of_year - length - 1} & set(by["BYYEARDAY"]):
            return False
        last = monthrange(day.year, day.month)[1]
        if "BYMONTHDAY" in by and not {day.day, day.day - last - 1} & set(by["BYMONTHDAY"]):
            return False
        if "BYWEEKNO" in by and not set(self._week_numbers(day)) & set(by["BYWEEKNO"]):
            return False
        return not self.days or any(self._is(day, number, weekday) for number, weekday in self.days)

    def _week_numbers(self, day: date) -> tuple[int, int]:
        """The number of its week from the beginning of the week's year, and from its end."""
        middle = self._week(day) + timedelta(days=3)
        number = (middle.timetuple().tm_yday - 1) // 7 + 1
        end = date(middle.year, 12, 28)  # lies in the last week, whatever weekday weeks begin with
        last_middle = self._week(end) + timedelta(days=3)
        if last_middle.year > middle.year:
            last_middle -= timedelta(weeks=1)
        if (last_middle + timedelta(weeks=1)).year == middle.year:
            last_middle += timedelta(weeks=1)
        last = (last_middle.timetuple().tm_yday - 1) // 7 + 1
        return number, number - last - 1

    def _is(self, day: date, number: int, weekday: int) -> bool:
        if day.weekday() != weekday:
            return False
        if not number:
            return True
        if self.frequency == MONTHLY or "BYMONTH" in self.by:
            place, length = day.day, monthrange(day.year, day.month)[1]
        else:
            place, length = day.timetuple().tm_yday, 366 if isleap(day.year) else 365
        return number in ((place - 1) // 7 + 1, -((length - place) // 7 + 1))

    def _times(self, day: date) -> list[datetime]:
        start = self.start
        hours = self.by.get("BYHOUR", [start.hour] if self.frequency < HOURLY else range(24))
        minutes = self.by.get("BYMINUTE", [start.minute] if self.frequency < MINUTELY else range(60))
        seconds = self.by.get("BYSECOND", [start.second])
        found = []
        for hour, minute, second in product(sorted(set(hours)), sorted(set(minutes)), sorted(set(seconds))):
            wall = datetime(day.year, day.month, day.day, hour, minute, second)
            if self.frequency == HOURLY:
                since = wall.replace(minute=0, second=0) - start.replace(minute=0, second=0)
                if since // timedelta(hours=1) % self.interval:
                    continue
            if self.frequency == MINUTELY:
                since = wall.replace(second=0) - start.replace(second=0)
                if since // timedelta(minutes=1) % self.interval:
                    continue
            found.append(wall)
        return found


def rrule(random: Random, near: datetime) -> DrawnRrule:  # noqa: C901 - one chance after another
    """A rule that has something to do with a wall time, which lies up to three years behind DTSTART."""
    frequency = random.choice([YEARLY, MONTHLY, WEEKLY, DAILY, DAILY, HOURLY, HOURLY, MINUTELY])
    back = timedelta(days=random.choice([0, 1, 3, 30, 400, 1_000]), hours=random.randint(0, 30))
    if frequency == MINUTELY:
        back = min(back, timedelta(days=4))
    start = (near - back).replace(second=0, microsecond=0)
    if random.random() < 0.5:
        start = start.replace(hour=near.hour, minute=near.minute)
    drawn = DrawnRrule(frequency, start, random.choice([1, 1, 1, 2, 3, 4]), random.choice([0, 0, 6, 2]))

    def some(name: str, low: int, high: int, near_value: int, chance: float, *, signed: bool = False) -> None:
        if random.random() < chance:
            values = {near_value if random.random() < 0.6 else random.randint(low, high) for _ in range(3)}
            drawn.by[name] = sorted(-v if signed and random.random() < 0.2 else v for v in values)

    day = near.date()
    some("BYMONTH", 1, 12, day.month, 0.2)
    if frequency in (YEARLY, HOURLY):
        some("BYYEARDAY", 1, 365, day.timetuple().tm_yday, 0.15, signed=True)
    if frequency != WEEKLY:
        some("BYMONTHDAY", 1, 31, day.day, 0.25, signed=True)
    if frequency == YEARLY and drawn.interval == 1 and not drawn.by:
        some("BYWEEKNO", 1, 52, day.isocalendar().week, 0.3, signed=True)
    if random.random() < 0.4:
        numbered = frequency <= MONTHLY and "BYWEEKNO" not in drawn.by and random.random() < 0.5
        days = {day.weekday() if random.random() < 0.5 else random.randint(0, 6) for _ in range(3)}
        drawn.days = [(random.choice([-2, -1, 1, 2, 3, 4]) if numbered else 0, each) for each in sorted(days)]
    dividing = frequency < HOURLY or drawn.interval in (1, 2, 3, 4)
    some("BYHOUR", 0, 23, near.hour, 0.4 if dividing else 0.0)
    some("BYMINUTE", 0, 59, near.minute, 0.2)
    if frequency <= DAILY and (drawn.days or len(drawn.by) > 1) and random.random() < 0.2:
        drawn.by["BYSETPOS"] = sorted({random.choice([1, 2, -1, -2]) for _ in range(2)})
    kind = random.random()
    if kind < 0.15:
        drawn.count = random.randint(1, 40)
    elif kind < 0.3:
        drawn.until = near + timedelta(hours=random.randint(-5, 50))
        drawn.until = max(drawn.until, start)
    if random.random() < 0.2:
        drawn.excluded = [near.replace(second=0) + timedelta(hours=n) for n in range(3)]
    return drawn
