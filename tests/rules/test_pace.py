"""A rule that fires too often, or never, is refused with the reason."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date, timedelta

import pytest

from relay.core.errors import InvalidField, RuleOver
from relay.core.recurring.rule import Fold, Rule
from relay.rules import check_pace, compile_rule
from tests.rules.test_turned_clocks import micros

NOW = micros("2026-01-01T00:00:00+00:00")
MINUTE = 60_000_000


def check(rule: Rule, shortest: int = MINUTE, calendar: tuple[str, ...] = ()) -> str:
    try:
        check_pace(rule, compile_rule(rule, calendars=[set(calendar)]), NOW, shortest)
    except InvalidField as error:
        return str(error)
    return ""


def test_neighbours_that_are_too_close() -> None:
    allowed = "the topic allows 60 s and more: see its min_recurrence_interval"
    pair = f"2026-01-01T00:00:30Z and 2026-01-01T00:01:00Z, 30 s apart; {allowed}"
    assert check(Rule(cron="*/30 * * * * *")) == f"rule.cron: fires at {pair}"
    assert check(Rule(every=30_000_000)) == f"rule.every: fires at {pair}"
    assert check(Rule(cron="@every 30s")) == f"rule.cron: fires at {pair}"
    assert "rule.rrule: fires at" in check(Rule(rrule="FREQ=SECONDLY;INTERVAL=20"))
    assert check(Rule(cron="* * * * *")) == check(Rule(every=MINUTE)) == ""


def test_neighbours_that_only_a_turned_clock_brings_together() -> None:
    twice = Rule(cron="30 2 * * *", zone="Europe/Berlin", fold=Fold.BOTH)
    assert "2026-10-25T00:30:00Z and 2026-10-25T01:30:00Z, 3600 s apart" in check(twice, 120 * MINUTE)
    assert check(Rule(cron="30 2 * * *", zone="Europe/Berlin"), 120 * MINUTE) == ""


def test_neighbours_that_a_turned_clock_brings_together_after_thousands_of_others() -> None:
    """Half an hour is left out: 02:20 becomes 02:50, and 03:00 is a time of its own."""
    rule = Rule(cron="0,20 0-23 * * *", zone="Australia/Lord_Howe")
    assert "fires at 2026-10-03T15:50:00Z and 2026-10-03T16:00:00Z, 600 s apart" in check(rule, 15 * MINUTE)
    assert check(Rule(cron="0,20 0-23 * * *", zone="Asia/Tokyo"), 15 * MINUTE) == ""


def test_dates_that_are_left_out_are_no_neighbours() -> None:
    rule = Rule(
        cron="0,1 0 * * *",
        leave_out=tuple(f"2026-01-{day:02}" for day in range(1, 32)),
        ends=NOW + 35 * 86_400_000_000,
    )
    assert "2026-02-01T00:00:00Z" in check(rule, 2 * MINUTE)


def test_a_rule_that_never_fires_from_now_on() -> None:
    over = Rule(cron="0 0 * * *", ends=NOW)
    assert check(over) == "rule.cron: never fires from now on: rule.ends is over"
    until = Rule(rrule="DTSTART:20200101\nRRULE:FREQ=DAILY;UNTIL=20251231")
    assert check(until) == "rule.rrule: never fires from now on: all its instants are over"
    yearly = Rule(cron="0 0 1 2 *", leave_out=("2026-02-01",), ends=NOW + 300 * 86_400_000_000)
    left = "rule.cron: never fires from now on: all that are left of its instants are left out by dates, or"
    assert check(yearly).startswith(left)
    for each in (over, until, yearly):
        with pytest.raises(RuleOver):
            check_pace(each, compile_rule(each), NOW, MINUTE)


def test_a_rule_that_fires_in_no_hundred_years() -> None:
    """Its next instant is in 2112."""
    rule = Rule(rrule="DTSTART:19700103\nRRULE:FREQ=HOURLY;INTERVAL=1000000;BYDAY=SA")
    assert check(rule) == "rule.rrule: does not fire within a hundred years of 2026-01-01T00:00:00Z"


def test_a_rule_that_never_fires_at_all() -> None:
    """It is not over: nobody could have meant it."""
    day = 86_400_000_000
    days = tuple(str(date(2025, 12, 1) + timedelta(n)) for n in range(11_000))
    daily = Rule(cron="0 0 * * *", starts=NOW - 30 * day, leave_out=days)
    for rule, why in (
        (
            Rule(cron="0 0 1 2 *", starts=NOW - 300 * day, ends=NOW - 10 * day),
            "never fires: it has no instants",
        ),
        (replace(daily, ends=NOW), "never fires: all its instants are left out by dates, or lie in gaps"),
        (replace(daily, ends=NOW + 9 * day), "never fires: all its instants are left out by dates, or lie"),
        (daily, "its next 10000 instants are left out by dates, or lie in gaps"),
    ):
        assert why in check(rule)
        with pytest.raises(InvalidField) as refused:
            check_pace(rule, compile_rule(rule), NOW, MINUTE)
        assert not isinstance(refused.value, RuleOver)


@pytest.mark.parametrize(
    "rule", [Rule(cron="0 0 29 2 *"), Rule(rrule="FREQ=YEARLY", anchor=NOW), Rule(every=10**15)]
)
def test_a_rule_that_fires_seldom_is_right(rule: Rule) -> None:
    assert check(rule) == ""


@pytest.mark.parametrize(
    "rrule",
    [
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SU",
        "FREQ=HOURLY;BYYEARDAY=366;BYHOUR=5;BYDAY=SU",
        "FREQ=SECONDLY;INTERVAL=99991;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO",
        "FREQ=SECONDLY;BYMONTHDAY=29;BYMONTH=2;BYHOUR=3;BYMINUTE=3;BYSECOND=7",
    ],
)
def test_a_rule_that_fires_every_28_years_is_soon_judged(rrule: str) -> None:
    """Whoever puts another one waits meanwhile. A thousand of its instants took 17 s and more."""
    began = time.process_time()
    rule = Rule(rrule=rrule, zone="Europe/Berlin")
    check_pace(rule, compile_rule(rule), NOW, 1_000_000)
    assert time.process_time() - began < 8
