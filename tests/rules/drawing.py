"""Rules drawn at random: as text for Relay and the libraries, and as sets and predicates for the judge."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta
from random import Random
from typing import NamedTuple

from tests.rules.oracle import Drawn

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

On = Callable[[date], bool]


class Field(NamedTuple):
    text: str
    values: tuple[int, ...]


def field(random: Random, low: int, high: int, near: int, *, wild: float) -> Field:
    """A field of numbers; `near` is a value that it shall often have, `wild` the chance of a star."""
    if random.random() < wild:
        step = random.choice([1, 1, 1, 2, 3, 5, 7, 15])
        step = min(step, high)
        return Field("*" if step == 1 else f"*/{step}", tuple(range(low, high + 1, step)))
    terms = [_term(random, low, high, near) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    values = sorted({value for term in terms for value in term.values})
    return Field(",".join(term.text for term in terms), tuple(values))


def _term(random: Random, low: int, high: int, near: int) -> Field:
    start = near if random.random() < 0.5 else random.randint(low, high)
    kind = random.random()
    if kind < 0.6:
        return Field(f"{start}", (start,))
    step = random.choice([1, 2, 3, 10])
    step = min(step, high)
    if kind < 0.7:
        return Field(f"{start}/{step}", tuple(range(start, high + 1, step)))
    end = min(high, start + random.randint(0, 6))
    if step == 1 or random.random() < 0.9:
        return Field(f"{start}-{end}", tuple(range(start, end + 1)))
    return Field(f"{start}-{end}/{step}", tuple(range(start, end + 1, step)))


class Dates(NamedTuple):
    text: str
    on: On


def days_of_month(random: Random, near: date) -> Dates:
    kind = random.random()
    if kind < 0.6:
        return Dates("*", lambda _: True)
    if kind < 0.65:
        return Dates("*/2", lambda d: d.day % 2 == 1)
    terms = [_day_of_month(random, near) for _ in range(random.choice([1, 1, 2]))]
    return Dates(",".join(term.text for term in terms), lambda d: any(term.on(d) for term in terms))


def _day_of_month(random: Random, near: date) -> Dates:
    kind = random.random()
    day = near.day if random.random() < 0.6 else random.randint(1, 31)
    if kind < 0.4:
        return Dates(f"{day}", lambda d: d.day == day)
    if kind < 0.6:
        end = min(31, day + random.randint(0, 9))
        return Dates(f"{day}-{end}", lambda d: day <= d.day <= end)
    if kind < 0.7:
        return Dates("L", lambda d: d.day == monthrange(d.year, d.month)[1])
    if kind < 0.8:
        return Dates(
            "LW",
            lambda d: (
                d.isoweekday() < 6
                and all(later.month != d.month or later.isoweekday() > 5 for later in _next(d, 3))
            ),
        )
    return Dates(f"{day}W", lambda d: d == _nearest_working_day(d, day))


def _next(day: date, number: int) -> list[date]:
    return [day + timedelta(days=n) for n in range(1, number + 1)]


def _nearest_working_day(month: date, day: int) -> date | None:
    """Of the working days of the month the one with the smallest distance, if the month has the day."""
    last = monthrange(month.year, month.month)[1]
    if day > last:
        return None
    working = [d for n in range(1, last + 1) if (d := month.replace(day=n)).isoweekday() < 6]
    return min(working, key=lambda d: abs(d.day - day))


def days_of_week(random: Random, near: date) -> Dates:
    kind = random.random()
    if kind < 0.6:
        return Dates("*", lambda _: True)
    if kind < 0.63:
        return Dates("*/2", lambda d: d.isoweekday() % 7 % 2 == 0)
    terms = [_day_of_week(random, near) for _ in range(random.choice([1, 1, 2]))]
    return Dates(",".join(term.text for term in terms), lambda d: any(term.on(d) for term in terms))


def _day_of_week(random: Random, near: date) -> Dates:
    day = near.isoweekday() % 7 if random.random() < 0.6 else random.randint(0, 6)
    name = random.choice([str(day), WEEKDAYS[day], WEEKDAYS[day].lower(), "7" if day == 0 else str(day)])
    kind = random.random()
    if kind < 0.5:
        return Dates(name, lambda d: d.isoweekday() % 7 == day)
    if kind < 0.7:
        end = random.randint(day, 6)
        start = "0" if name == "7" else name
        return Dates(f"{start}-{end}", lambda d: day <= d.isoweekday() % 7 <= end)
    if kind < 0.85:
        number = random.randint(1, 5)
        return Dates(
            f"{name}#{number}", lambda d: d.isoweekday() % 7 == day and (d.day - 1) // 7 + 1 == number
        )
    return Dates(f"{name}L", lambda d: d.isoweekday() % 7 == day and (d + timedelta(days=7)).month != d.month)


def months(random: Random, near: date) -> Dates:
    if random.random() < 0.8:
        return Dates("*", lambda _: True)
    drawn = field(random, 1, 12, near.month, wild=0.1)
    text = drawn.text
    if random.random() < 0.5 and text.isdecimal():
        text = random.choice([MONTHS[int(text) - 1], MONTHS[int(text) - 1].lower()])
    return Dates(text, lambda d: d.month in drawn.values)


def cron(random: Random, near: datetime) -> Drawn:
    """A cron expression that has something to do with a wall time."""
    six = random.random() < 0.2
    second = field(random, 0, 59, near.second, wild=0.2) if six else Field("0", (0,))
    minute = field(random, 0, 59, near.minute, wild=0.25)
    hour = field(random, 0, 23, near.hour, wild=0.35)
    day, month, weekday = (draw(random, near.date()) for draw in (days_of_month, months, days_of_week))
    both = day.text.startswith("*") or weekday.text.startswith("*")

    def on(d: date) -> bool:
        by_day = (day.on(d) and weekday.on(d)) if both else (day.on(d) or weekday.on(d))
        return month.on(d) and by_day

    texts = [minute.text, hour.text, day.text, month.text, weekday.text]
    text = " ".join([second.text, *texts] if six else texts)
    return Drawn(text, second.values, minute.values, hour.values, on, elapsed=hour.text.startswith("*"))
