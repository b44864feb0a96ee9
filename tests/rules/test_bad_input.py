"""Each field of each rule wrong in turn: the message names the field, the place, and what would be right."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import LATEST
from relay.core.recurring.rule import Rule
from relay.rules import compile_rule

DAYS = "1 to 31, L, LW, or a number with W"
WEEKDAYS = "0 to 7, or SUN to SAT, such a day with L, or with # and 1 to 5"
FREQUENCIES = "YEARLY, MONTHLY, WEEKLY, DAILY, HOURLY, MINUTELY, SECONDLY"
TIMES = "a time such as 20261231T235959Z in UTC, 20261231T235959 on the wall, or 20261231"
LENGTH = "is not a length of time: write one such as 90s, 1h30m or 10 minutes"
NEVER = "all its dates are excluded or behind UNTIL, or none comes within a hundred years of DTSTART"
MACROS = "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, or @every 90s"


def refused(**fields: Any) -> str:
    with pytest.raises(InvalidField) as error:
        compile_rule(Rule(**fields))
    return str(error.value)


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("61 * * * *", 'minute 61 in "61 * * * *": 0 to 59'),
        ("0,61 * * * *", 'minute 61 in "0,61 * * * *": 0 to 59'),
        ("0, * * * *", 'minute is empty in "0, * * * *": 0 to 59'),
        ("-1 * * * *", 'minute -1 in "-1 * * * *": 0 to 59'),
        ("1.5 * * * *", 'minute 1.5 in "1.5 * * * *": 0 to 59'),
        ("٣ * * * *", 'minute ٣ in "٣ * * * *": 0 to 59'),
        ("10-5 * * * *", 'minute 10-5 in "10-5 * * * *": a range ascends; write two, 10-59,0-5'),
        ("*/0 * * * *", 'minute */0 in "*/0 * * * *": a step is 1 to 59'),
        ("*/90 * * * *", 'minute */90 in "*/90 * * * *": a step is 1 to 59'),
        ("H * * * *", 'minute H in "H * * * *": 0 to 59'),
        ("0 24 * * *", 'hour 24 in "0 24 * * *": 0 to 23'),
        ("0 */24 * * *", 'hour */24 in "0 */24 * * *": a step is 1 to 23'),
        ("0 0 32 * *", f'day 32 in "0 0 32 * *": {DAYS}'),
        ("0 0 0 * *", f'day 0 in "0 0 0 * *": {DAYS}'),
        ("0 0 L-3 * *", f'day L-3 in "0 0 L-3 * *": {DAYS}'),
        ("0 0 32W * *", f'day 32W in "0 0 32W * *": {DAYS}'),
        ("0 0 ? * *", f'day ? in "0 0 ? * *": * where any will do, {DAYS}'),
        ("0 0 * 13 *", 'month 13 in "0 0 * 13 *": 1 to 12, or JAN to DEC'),
        ("0 0 * JANUARY *", 'month JANUARY in "0 0 * JANUARY *": 1 to 12, or JAN to DEC'),
        ("0 0 * * 8", f'weekday 8 in "0 0 * * 8": {WEEKDAYS}'),
        ("0 0 * * MON#6", f'weekday MON#6 in "0 0 * * MON#6": {WEEKDAYS}'),
        ("0 0 * * L", f'weekday L in "0 0 * * L": {WEEKDAYS}'),
        ("0 0 * * FRI-MON", 'weekday FRI-MON in "0 0 * * FRI-MON": a range ascends; write two, 5-7,0-1'),
        ("60 0 0 * * *", 'second 60 in "60 0 0 * * *": 0 to 59'),
        (
            "0 3 * *",
            '4 fields in "0 3 * *": give five, minute hour day month weekday, or six with the second first',
        ),
        (
            "* * * * * * 2026",
            '7 fields in "* * * * * * 2026": give five, minute hour day month weekday, or six',
        ),
        ("   ", '0 fields in "   ": give five'),
        ("@dayly", f'unknown "@dayly": {MACROS}'),
        ("@reboot", f'unknown "@reboot": {MACROS}'),
        ("*" * 1001, "is 1001 characters long; at most 1000 are allowed"),
        ("0 0 30 2 *", '"0 0 30 2 *" never fires: no month that it names has such a day'),
        ("0 0 31W 2,4,6 *", '"0 0 31W 2,4,6 *" never fires: no month that it names has such a day'),
        ("0 0 */29 2 MON#2", '"0 0 */29 2 MON#2" never fires: no month that it names has such a day'),
        ("@every", f'"" {LENGTH}'),
        ("@every 90", f'"90" {LENGTH}'),
        ("@every -5s", f'"-5s" {LENGTH}'),
        ("@every 0s", f'"0s" {LENGTH}'),
        ("@every 1 fortnight", f'"1 fortnight" {LENGTH}'),
        ("@every 0.5us", f'"0.5us" {LENGTH}'),
        ("@every 5300 weeks", "is not between a microsecond and a hundred years"),
    ],
)
def test_cron(cron: str, problem: str) -> None:
    assert refused(cron=cron).startswith(f"rule.cron: {problem}")


@pytest.mark.parametrize(
    ("rrule", "problem"),
    [
        ("FREQ=DAYLY", f'FREQ DAYLY in "FREQ=DAYLY": {FREQUENCIES}'),
        ("BYHOUR=3", f'no FREQ in "BYHOUR=3": give {FREQUENCIES}'),
        ("FREQ=DAILY;INTERVAL=0", 'INTERVAL 0 in "FREQ=DAILY;INTERVAL=0": 1 to 1000000'),
        ("FREQ=DAILY;COUNT=many", 'COUNT MANY in "FREQ=DAILY;COUNT=many": 1 to 100000'),
        (
            "FREQ=DAILY;COUNT=3;UNTIL=20300101",
            'COUNT and UNTIL in "FREQ=DAILY;COUNT=3;UNTIL=20300101": give one',
        ),
        ("FREQ=DAILY;UNTIL=20260230", f'UNTIL 20260230 in "FREQ=DAILY;UNTIL=20260230": {TIMES}'),
        ("FREQ=DAILY;UNTIL=19600101", 'UNTIL 19600101 in "FREQ=DAILY;UNTIL=19600101": 1970 or later'),
        ("FREQ=DAILY;WKST=8", 'WKST 8 in "FREQ=DAILY;WKST=8": MO, TU, WE, TH, FR, SA, SU'),
        (
            "FREQ=DAILY;BYDAY=MON",
            'BYDAY MON in "FREQ=DAILY;BYDAY=MON": MO, TU, WE, TH, FR, SA, SU, and before it',
        ),
        (
            "FREQ=WEEKLY;BYDAY=2MO",
            'BYDAY 2MO in "FREQ=WEEKLY;BYDAY=2MO": a number before a weekday goes with',
        ),
        ("FREQ=DAILY;BYSECOND=60", 'BYSECOND 60 in "FREQ=DAILY;BYSECOND=60": 0 to 59'),
        ("FREQ=DAILY;BYMINUTE=-1", 'BYMINUTE -1 in "FREQ=DAILY;BYMINUTE=-1": 0 to 59'),
        ("FREQ=DAILY;BYHOUR=", 'BYHOUR is empty in "FREQ=DAILY;BYHOUR=": 0 to 23'),
        ("FREQ=DAILY;BYMONTHDAY=32", 'BYMONTHDAY 32 in "FREQ=DAILY;BYMONTHDAY=32": 1 to 31, or -31 to -1'),
        ("FREQ=YEARLY;BYYEARDAY=0", 'BYYEARDAY 0 in "FREQ=YEARLY;BYYEARDAY=0": 1 to 366, or -366 to -1'),
        ("FREQ=YEARLY;BYWEEKNO=54", 'BYWEEKNO 54 in "FREQ=YEARLY;BYWEEKNO=54": 1 to 53, or -53 to -1'),
        ("FREQ=DAILY;BYMONTH=13", 'BYMONTH 13 in "FREQ=DAILY;BYMONTH=13": 1 to 12'),
        ("FREQ=DAILY;BYHOUR=1;BYSETPOS=367", 'BYSETPOS 367 in "FREQ=DAILY;BYHOUR=1;BYSETPOS=367": 1 to 366'),
        ("FREQ=DAILY;BYSETPOS=1", 'BYSETPOS alone in "FREQ=DAILY;BYSETPOS=1": it chooses among'),
        ("FREQ=HOURLY;BYMINUTE=1;BYSETPOS=2", 'BYSETPOS in "FREQ=HOURLY;BYMINUTE=1;BYSETPOS=2": 1 to 1'),
        ("FREQ=DAILY;BYWEEKNO=3", 'BYWEEKNO with FREQ=DAILY in "FREQ=DAILY;BYWEEKNO=3": leave it out'),
        (
            "FREQ=HOURLY;INTERVAL=5;BYHOUR=3",
            'INTERVAL 5 in "FREQ=HOURLY;INTERVAL=5;BYHOUR=3": beside BYHOUR, one that',
        ),
        ("FREQ=DAILY;FREQ=DAILY", 'FREQ comes twice in "FREQ=DAILY;FREQ=DAILY": give one'),
        ("FREQ=DAILY;BYEASTER=1", '"BYEASTER=1" in "FREQ=DAILY;BYEASTER=1": write FREQ, INTERVAL'),
        ("every day", '"EVERY DAY" in "every day": write FREQ'),
        ("FREQ=DAILY\nRDATE:20260101", "RDATE in a rule: write RRULE, DTSTART or EXDATE"),
        ("DTSTART:20260101", "0 lines with RRULE: give exactly one"),
        ("DTSTART:soon\nRRULE:FREQ=DAILY", f"DTSTART soon: {TIMES}"),
        ("EXDATE:20261332\nRRULE:FREQ=DAILY", f"EXDATE 20261332: {TIMES}"),
        (
            "DTSTART;LANGUAGE=de:20260101\nRRULE:FREQ=DAILY",
            "DTSTART;LANGUAGE=de: write TZID, or leave it out",
        ),
        ("x" * 10_001, "is 10001 characters long; at most 10000 are allowed"),
    ],
)
def test_rrule(rrule: str, problem: str) -> None:
    assert refused(rrule=rrule).startswith(f"rule.rrule: {problem}")


@pytest.mark.parametrize(
    "rrule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MINUTELY;BYHOUR=3;BYMONTH=2;BYMONTHDAY=30",
        "DTSTART:20260105\nRRULE:FREQ=DAILY;INTERVAL=7;BYDAY=TU",
        "DTSTART:20260105\nRRULE:FREQ=HOURLY;INTERVAL=168;BYDAY=TU",
        "DTSTART:20260105\nRRULE:FREQ=DAILY;UNTIL=20260101",
        "DTSTART:20260105\nRRULE:FREQ=DAILY;UNTIL=20260105\nEXDATE:20260105",
        "FREQ=MONTHLY;BYMONTHDAY=1;BYSETPOS=2",
        "FREQ=HOURLY;INTERVAL=1000000;BYDAY=SA",
    ],
)
def test_an_rrule_that_never_fires_is_refused_soon(rrule: str) -> None:
    """dateutil searches such rules until the year 9999: some of these for more than 10 s."""
    began = time.process_time()
    assert f"never fires: {NEVER}" in refused(rrule=rrule)
    assert time.process_time() - began < 2


def test_a_rare_time_is_found_soon() -> None:
    began = time.process_time()
    rule = Rule(
        rrule="DTSTART:20260105\nRRULE:FREQ=SECONDLY;BYHOUR=23;BYMINUTE=59;BYSECOND=59;BYMONTH=2;BYMONTHDAY=29"
    )
    assert next(compile_rule(rule).after(0)).instant == 1_835_481_599_000_000
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Berln", "; the nearest name is 'Europe/Berlin'"),
        ("europe/berlin", "; write 'Europe/Berlin'"),
        ("Berlin", "; write 'Europe/Berlin'"),
        ("America/New York", "; write 'America/New_York'"),
        ("Amerika/Los_Angeles", "; write 'America/Los_Angeles'"),
        ("CET ", "; write 'CET'"),
        ("+02:00", "; give an IANA name such as 'Europe/Berlin', or leave it empty for UTC"),
        ("../../etc/passwd", "; give an IANA name such as 'Europe/Berlin', or leave it empty for UTC"),
    ],
)
def test_zone(zone: str, hint: str) -> None:
    assert refused(cron="0 0 * * *", zone=zone) == f"rule.zone: {zone!r} is not a time zone{hint}"


def test_the_other_fields() -> None:
    daily = "0 0 * * *"
    one = "rule: give exactly one of cron, rrule and every"
    assert refused() == one
    assert refused(cron=daily, rrule="FREQ=DAILY") == one
    assert refused(cron=daily, every=5) == one
    assert (
        refused(every=0)
        == refused(every=-1)
        == "rule.every: is not between a microsecond and a hundred years"
    )
    no_zone = "rule.zone: a distance of time goes by no zone: leave it out, or write a cron expression"
    assert refused(every=1, zone="UTC") == refused(cron="@every 1h", zone="Europe/Berlin") == no_zone
    for field in ("anchor", "starts", "ends"):
        for instant in (-1, LATEST + 1):
            problem = f"rule.{field}: is not an instant between the years 1970 and 9999"
            assert refused(cron=daily, **{field: instant}) == problem
    problem = "rule.anchor: is in the last day of the year 9999; give an earlier one"
    assert refused(rrule="FREQ=DAILY", anchor=LATEST, zone="Asia/Tokyo") == problem
    assert refused(cron=daily, starts=5, ends=5) == "rule.ends: is not later than rule.starts"
    dates = ("2026-12-24", "24.12.2026")
    assert (
        refused(cron=daily, leave_out=dates)
        == "rule.leave_out[1]: '24.12.2026' is not a date such as 2026-12-24"
    )
    other_zone = "DTSTART;TZID=Europe/Paris:20260101\nRRULE:FREQ=DAILY"
    problem = "rule.zone: DTSTART is in 'Europe/Paris' and the rule in 'UTC': give 'Europe/Paris' as the zone"
    assert refused(rrule=other_zone) == problem


@pytest.mark.parametrize(
    "rule",
    [
        Rule(cron="0 20 31 12 *", zone="America/New_York"),
        Rule(cron="0 * * * *", zone="America/New_York"),
        Rule(rrule="DTSTART:99991231T235959\nRRULE:FREQ=DAILY;COUNT=3", zone="America/New_York"),
        Rule(rrule="DTSTART:99991231T235959\nRRULE:FREQ=HOURLY;COUNT=3", zone="America/New_York"),
        Rule(rrule="FREQ=SECONDLY"),
        Rule(every=LATEST // 90),
    ],
)
def test_no_instant_is_behind_the_year_9999(rule: Rule) -> None:
    """No answer could show it: a zone in the west has such local times."""
    start = LATEST - 366 * 86_400 * 1_000_000
    instants = [each.instant for each in islice(compile_rule(rule).after(start), 9_000)]
    assert all(each <= LATEST for each in instants)
