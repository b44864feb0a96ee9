"""What becomes of local times where clocks are turned: the table in docs/reference/recurrence-rules.md."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from relay.core.recurring.rule import Fold, Gap, Rule
from relay.rules import compile_rule

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GAP = "2026-03-29T00:15:00+00:00"  # Berlin: 02:00 becomes 03:00 at 01:00 UTC
OVERLAP = "2026-10-24T23:45:00+00:00"  # Berlin: 03:00 becomes 02:00 at 01:00 UTC


def micros(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def told(rule: Rule, since: str, number: int, calendar: tuple[str, ...] = ()) -> list[str]:
    """The next instants as the wall shows them, and what else is said."""
    found = islice(compile_rule(rule, calendars=[set(calendar)]).after(micros(since)), number)
    texts = []
    for each in found:
        local = EPOCH + timedelta(microseconds=each.instant, seconds=each.offset)
        more = f" {each.left_out}" if each.left_out else f" +{each.shifted}" if each.shifted else ""
        texts.append(f"{local:%d %H:%M}{more} ({each.offset // 3600})")
    return texts


def berlin(cron: str, gap: Gap = Gap.SHIFT, fold: Fold = Fold.FIRST) -> Rule:
    return Rule(cron=cron, zone="Europe/Berlin", gap=gap, fold=fold)


def test_a_time_in_a_gap_is_shifted_by_the_gap() -> None:
    assert told(berlin("30 2 * * *"), GAP, 2) == ["29 03:30 +3600 (2)", "30 02:30 (2)"]


def test_or_skipped_and_named() -> None:
    assert told(berlin("30 2 * * *", Gap.SKIP), GAP, 2) == ["29 03:30 gap (2)", "30 02:30 (2)"]


def test_a_shifted_time_that_is_another_time_of_the_rule_fires_once() -> None:
    both = berlin("0,30 2,3 * * *")
    assert told(both, GAP, 3) == ["29 03:00 (2)", "29 03:30 (2)", "30 02:00 (2)"]
    skipped = berlin("0,30 2,3 * * *", Gap.SKIP)
    assert told(skipped, GAP, 3) == ["29 03:00 (2)", "29 03:30 (2)", "30 02:00 (2)"]


def test_a_shifted_time_comes_behind_times_after_the_gap() -> None:
    """Later on the wall, earlier in time: the order is that of instants."""
    told_now = told(berlin("10,40 1-3 * * *"), GAP, 5)
    assert told_now == ["29 01:40 (1)", "29 03:10 (2)", "29 03:40 (2)", "30 01:10 (2)", "30 01:40 (2)"]
    assert told(berlin("*/40 2,3 * * *"), GAP, 2) == ["29 03:00 (2)", "29 03:40 (2)"]


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (Fold.FIRST, ["25 02:30 (2)", "26 02:30 (1)"]),
        (Fold.SECOND, ["25 02:30 (1)", "26 02:30 (1)"]),
        (Fold.BOTH, ["25 02:30 (2)", "25 02:30 (1)"]),
    ],
)
def test_a_time_that_comes_twice(fold: Fold, expected: list[str]) -> None:
    assert told(berlin("30 2 * * *", fold=fold), OVERLAP, 2) == expected


def test_both_passes_of_an_overlap_come_one_after_the_other() -> None:
    assert told(berlin("0,30 2 * * *", fold=Fold.BOTH), OVERLAP, 4) == [
        "25 02:00 (2)",
        "25 02:30 (2)",
        "25 02:00 (1)",
        "25 02:30 (1)",
    ]


@pytest.mark.parametrize("gap", Gap)
@pytest.mark.parametrize("fold", Fold)
def test_a_rule_for_every_hour_goes_by_elapsed_time(gap: Gap, fold: Fold) -> None:
    hourly = berlin("0 * * * *", gap, fold)
    assert told(hourly, GAP, 3) == ["29 03:00 (2)", "29 04:00 (2)", "29 05:00 (2)"]
    assert told(hourly, OVERLAP, 4) == ["25 02:00 (2)", "25 02:00 (1)", "25 03:00 (1)", "25 04:00 (1)"]
    assert told(berlin("0 */2 * * *", gap, fold), GAP, 2) == ["29 04:00 (2)", "29 06:00 (2)"]
    assert told(Rule(rrule="FREQ=HOURLY", zone="Europe/Berlin", gap=gap, fold=fold), OVERLAP, 3) == [
        "25 02:00 (2)",
        "25 02:00 (1)",
        "25 03:00 (1)",
    ]


def test_a_wildcard_in_minutes_alone_does_not_make_a_rule_go_by_elapsed_time() -> None:
    """As a daemon by Vixie's rules would have it: there 02:00 to 02:55 are lost in a gap."""
    assert told(berlin("*/20 2 * * *"), GAP, 3) == [
        "29 03:00 +3600 (2)",
        "29 03:20 +3600 (2)",
        "29 03:40 +3600 (2)",
    ]
    assert told(berlin("*/20 2 * * *"), OVERLAP, 4)[3] == "26 02:00 (1)"


def test_asked_in_the_first_pass_the_second_one_still_comes() -> None:
    """The wall has shown 02:15 before, and the rule's next time is behind the overlap."""
    since = "2026-10-25T00:20:00+00:00"
    assert told(berlin("15 */2 * * *"), since, 2) == ["25 02:15 (1)", "25 04:15 (1)"]
    assert told(berlin("15 2 * * *", fold=Fold.BOTH), since, 1) == ["25 02:15 (1)"]
    assert told(berlin("15 2 * * *", fold=Fold.SECOND), since, 1) == ["25 02:15 (1)"]
    assert told(berlin("15 2 * * *"), since, 1) == ["26 02:15 (1)"]


def test_asked_behind_a_gap_shifted_times_still_come() -> None:
    assert told(berlin("45 2 * * *"), "2026-03-29T01:30:00+00:00", 1) == ["29 03:45 +3600 (2)"]


def test_a_zone_that_left_out_a_whole_day() -> None:
    """Samoa had no 30 December 2011: its 09:00 is that of the 31st."""
    daily = Rule(cron="0 9 * * *", zone="Pacific/Apia")
    assert told(daily, "2011-12-29T12:00:00+00:00", 3) == ["29 09:00 (-10)", "31 09:00 (14)", "01 09:00 (14)"]
    on_the_30th = Rule(cron="0 9 30 12 *", zone="Pacific/Apia")
    assert told(on_the_30th, "2011-12-29T12:00:00+00:00", 1) == ["31 09:00 +86400 (14)"]


def test_a_clock_turned_by_half_an_hour() -> None:
    rule = Rule(cron="15 2 * * *", zone="Australia/Lord_Howe")
    (instant,) = islice(compile_rule(rule).after(micros("2026-10-03T10:00:00+00:00")), 1)
    assert instant.shifted == 1800
    assert EPOCH + timedelta(microseconds=instant.instant) == datetime(2026, 10, 3, 15, 45, tzinfo=UTC)


def test_dates_that_are_left_out_are_dates_on_the_wall() -> None:
    rule = Rule(cron="30 0 * * *", zone="Europe/Berlin", leave_out=("2026-12-25",))
    assert told(rule, "2026-12-23T12:00:00+00:00", 4, ("2026-12-26",)) == [
        "24 00:30 (1)",
        "25 00:30 calendar (1)",
        "26 00:30 calendar (1)",
        "27 00:30 (1)",
    ]


def test_start_and_end() -> None:
    """The first instant is included, the last one is not."""
    rule = Rule(
        cron="0 * * * *", starts=micros("2026-01-01T10:00:00+00:00"), ends=micros("2026-01-01T12:00:00+00:00")
    )
    assert told(rule, "2020-01-01T00:00:00+00:00", 5) == ["01 10:00 (0)", "01 11:00 (0)"]
    assert told(rule, "2026-01-01T10:00:00+00:00", 5) == ["01 11:00 (0)"]


def test_every_from_its_anchor() -> None:
    rule = Rule(every=90_000_000, anchor=micros("2026-01-01T00:00:30+00:00"))
    instants = [
        each.instant for each in islice(compile_rule(rule).after(micros("2026-01-01T00:00:30+00:00")), 2)
    ]
    assert instants == [micros("2026-01-01T00:02:00+00:00"), micros("2026-01-01T00:03:30+00:00")]
    before = next(compile_rule(rule).after(micros("2025-12-31T23:58:00+00:00"))).instant
    assert before == micros("2025-12-31T23:59:00+00:00"), "an anchor counts in both directions"
    same = Rule(cron="@every 1m30s", anchor=rule.anchor)
    assert next(compile_rule(same).after(0)) == next(compile_rule(rule).after(0))


def test_the_last_instants() -> None:
    """Beyond the last due time there is nothing, in whatever zone and by whatever rule."""
    last = micros("9999-12-31T23:59:59+00:00")
    for zone in ("", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        for rule in (Rule(cron="* * * * *", zone=zone), Rule(rrule="FREQ=DAILY", zone=zone)):
            for since in (last, last - 1, last - 90_000_000_000):
                assert all(each.instant <= last for each in compile_rule(rule).after(since))
