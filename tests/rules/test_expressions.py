"""What single expressions mean; the proof draws the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from relay.core.recurring.rule import Rule
from relay.rules import compile_rule
from tests.rules.test_turned_clocks import micros

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def told(rule: Rule, number: int, since: str = "2026-11-24T12:00:00+00:00") -> list[str]:
    found = islice(compile_rule(rule).after(micros(since)), number)
    return [
        f"{EPOCH + timedelta(microseconds=each.instant, seconds=each.offset):%m-%d %H:%M}" for each in found
    ]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 5-5/2 * * *", ["11-25 05:00", "11-26 05:00"]),  # cronsim takes it for 5/2
        ("0 5/9 * * *", ["11-24 14:00", "11-24 23:00"]),
        ("0 0 31,2W 11 *", ["11-02 00:00", "11-02 00:00"]),  # 31 is no day of November: 2W still is
        ("0 0 15W * *", ["12-15 00:00", "01-15 00:00"]),
        ("0 0 1W 5 *", ["05-03 00:00", "05-01 00:00"]),  # 1 May 2027 is a Saturday, whose month begins there
        ("0 0 LW * *", ["11-30 00:00", "12-31 00:00"]),
        ("0 0 L 2 *", ["02-28 00:00", "02-29 00:00"]),
        ("0 0 * * FRIL", ["11-27 00:00", "12-25 00:00"]),
        ("0 0 * * mon#2", ["12-14 00:00", "01-11 00:00"]),
        ("0 0 * * FRI-SUN", ["11-27 00:00", "11-28 00:00"]),
        ("0 0 * * SUN-MON", ["11-29 00:00", "11-30 00:00"]),
        ("0 0 13 * FRI", ["11-27 00:00", "12-04 00:00"]),  # either
        ("0 0 */2 * MON", ["12-07 00:00", "12-21 00:00"]),  # both: it begins with a star
        ("0 0 15W,*/10 * MON", ["11-30 00:00", "12-01 00:00"]),  # either: it begins with 15W
        ("@weekly", ["11-29 00:00", "12-06 00:00"]),
        ("@HOURLY", ["11-24 13:00", "11-24 14:00"]),
        ("  0   0 1 jan,DEC *  ", ["12-01 00:00", "01-01 00:00"]),
    ],
)
def test_cron(cron: str, expected: list[str]) -> None:
    assert told(Rule(cron=cron), 2) == expected


@pytest.mark.parametrize(
    ("rrule", "expected"),
    [
        ("FREQ=YEARLY;BYDAY=20MO", ["05-17 00:00", "05-15 00:00"]),  # of the year, not of a month
        ("FREQ=YEARLY;BYMONTH=5;BYDAY=-1MO", ["05-31 00:00", "05-29 00:00"]),
        ("RRULE:FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", ["11-30 00:00", "12-31 00:00"]),
        ("DTSTART:20260131T090000\nRRULE:FREQ=MONTHLY", ["12-31 09:00", "01-31 09:00"]),
        ("DTSTART:20260102T093000Z\nRRULE:FREQ=WEEKLY;\n INTERVAL=2", ["12-04 09:30", "12-18 09:30"]),
        ("DTSTART:20261124T130000\nRRULE:FREQ=DAILY;COUNT=2", ["11-24 13:00", "11-25 13:00"]),
        (
            "DTSTART:20261124T130000\nRRULE:FREQ=DAILY;COUNT=3\nEXDATE:20261125",
            ["11-24 13:00", "11-26 13:00"],
        ),
        ("DTSTART:20261124T130000\nRRULE:FREQ=DAILY;UNTIL=20261125", ["11-24 13:00", "11-25 13:00"]),
        ("DTSTART:20261124T130000\nRRULE:FREQ=DAILY;UNTIL=20261125T125959Z", ["11-24 13:00"]),
        (
            "DTSTART:20261124T130000\nRRULE:FREQ=DAILY\nEXDATE:20261125T130000Z",
            ["11-24 13:00", "11-26 13:00"],
        ),
        ("FREQ=MINUTELY;BYHOUR=3;BYMINUTE=0,30;BYMONTHDAY=1", ["12-01 03:00", "12-01 03:30"]),
    ],
)
def test_rrule(rrule: str, expected: list[str]) -> None:
    assert told(Rule(rrule=rrule), 2) == expected


def test_an_anchor_is_the_dtstart_of_a_rule_that_has_none() -> None:
    anchor = micros("2026-11-30T07:15:00+00:00")
    rule = Rule(rrule="FREQ=WEEKLY;COUNT=2", zone="Europe/Berlin", anchor=anchor)
    assert told(rule, 3) == ["11-30 08:15", "12-07 08:15"]
    own = Rule(
        rrule="DTSTART:20261201T060000\nRRULE:FREQ=WEEKLY;COUNT=1", zone="Europe/Berlin", anchor=anchor
    )
    assert told(own, 3) == ["12-01 06:00"], "a line DTSTART comes first"


def test_count_counts_instants_where_a_rule_goes_by_elapsed_time() -> None:
    text = "DTSTART:20261025T010000\nRRULE:FREQ=HOURLY;COUNT=4"
    told_now = told(Rule(rrule=text, zone="Europe/Berlin"), 9, "2026-10-01T00:00:00+00:00")
    assert told_now == ["10-25 01:00", "10-25 02:00", "10-25 02:00", "10-25 03:00"]


NEW_YEARS_EVE = "BYMONTH=12;BYMONTHDAY=31"
SPARSE = [
    ("MINUTELY", 999_983, 60, "BYDAY=MO"),
    ("SECONDLY", 1_000_000, 1, NEW_YEARS_EVE),
    ("SECONDLY", 777_777, 1, "BYDAY=MO"),
    ("HOURLY", 25, 3_600, NEW_YEARS_EVE),
    ("HOURLY", 7_777, 3_600, "BYDAY=MO"),
]


@pytest.mark.parametrize(
    ("frequency", "interval", "unit", "dates"), SPARSE, ids=[f"{f} {n}" for f, n, _, _ in SPARSE]
)
def test_an_interval_longer_than_a_day(frequency: str, interval: int, unit: int, dates: str) -> None:
    """On few dates, years may lie between two instants. Held to plain arithmetic."""
    step = timedelta(seconds=interval * unit)
    times = (EPOCH + step * n for n in range(timedelta(days=50_000) // step))
    if dates == NEW_YEARS_EVE:
        right = [each for each in times if (each.month, each.day) == (12, 31)]
    else:
        right = [each for each in times if each.weekday() == 0]
    rule = compile_rule(Rule(rrule=f"FREQ={frequency};INTERVAL={interval};{dates}"))
    found = [each.instant for each in islice(rule.after(-1), len(right))]
    assert found == [each // timedelta(microseconds=1) for each in (when - EPOCH for when in right)]
    assert next(iter(rule.after(found[-2]))).instant == found[-1]
