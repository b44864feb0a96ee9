"""Calendars as values: what is one, and what rules make of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.recurring.calendars import (
    KnownCalendars,
    calendar_dates,
    calendar_name,
    calendar_names,
)
from relay.core.recurring.rule import Fold, Gap, Rule
from relay.rules import compile_rule

FIRST = date(2026, 3, 20)
DAYS = [str(FIRST + timedelta(days=n)) for n in range(20)]
AFTER = 1_773_964_800 * SECOND  # 2026-03-20
RULES = st.builds(
    Rule,
    cron=st.sampled_from(["30 2 * * *", "0 */6 * * *", "*/20 2 * * *", "0 12 * * MON-FRI"]),
    zone=st.sampled_from(["", "Europe/Berlin", "Pacific/Apia"]),
    gap=st.sampled_from(Gap),
    fold=st.sampled_from(Fold),
    starts=st.sampled_from([None, AFTER + 86_400 * SECOND]),
    ends=st.sampled_from([None, AFTER + 10 * 86_400 * SECOND]),
) | st.builds(Rule, every=st.sampled_from([3_600 * SECOND, 86_400 * SECOND]))


@given(
    rule=RULES,
    closed=st.lists(st.sets(st.sampled_from(DAYS)), max_size=4),
    own=st.sets(st.sampled_from(DAYS)),
)
def test_calendars_are_dates_that_the_rule_leaves_out(
    rule: Rule, closed: list[set[str]], own: set[str]
) -> None:
    """Their instants are those of a rule that has all dates itself, with the same reasons; and none is lost:
    without dates there are as many."""
    names = tuple(f"c{n}" for n in range(len(closed)))
    known = KnownCalendars("1", {name: frozenset(dates) for name, dates in zip(names, closed, strict=True)})
    named = replace(rule, leave_out=tuple(sorted(own)), calendars=names)
    whole = replace(rule, leave_out=tuple(sorted(own.union(*closed))))
    found = list(islice(compile_rule(named, calendars=known.named(names)).after(AFTER), 60))
    assert found == list(islice(compile_rule(whole).after(AFTER), 60))
    bare = islice(compile_rule(rule).after(AFTER), 60)
    assert [each.instant for each in found] == [each.instant for each in bare]


def test_one_that_does_not_exist_leaves_out_nothing() -> None:
    known = KnownCalendars("1", {"de": frozenset({"2026-12-25"})})
    assert known.named(["de", "fr"]) == [{"2026-12-25"}]
    assert known.missing(["de", "fr"]) == ["fr"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["de-holidays"], "rule.calendars[0]: there is no calendar 'de-holidays'; the nearest name is "),
        (["fr", "xx"], "rule.calendars[1]: there is no calendar 'xx'; put it first, or leave it out"),
    ],
)
def test_a_rule_has_to_name_what_exists(names: list[str], said: str) -> None:
    with pytest.raises(InvalidField) as refused:
        KnownCalendars("1", {"fr": frozenset(), "de-holiday": frozenset()}).require(names)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("name", ["de-holidays", "A", "9.b_c-d", "x" * 100])
def test_names(name: str) -> None:
    assert calendar_name("name", name) == name


@pytest.mark.parametrize("name", ["", "x" * 101, "-x", "#revision", "a b", "a\n", "ä", "a/b", "a{b}"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidField, match=r"^name: .* is not the name of a calendar: 1 to 100 letters"):
        calendar_name("name", name)


def test_names_of_a_rule() -> None:
    assert calendar_names("rule.calendars", ["a", "b"]) == ("a", "b")
    for names, said in (
        (["a", "b c"], r"^rule.calendars\[1\]: 'b c' is not the name of a calendar"),
        (["a", "b", "a"], r"^rule.calendars\[2\]: 'a' is there twice; name it once"),
        ([f"c{n}" for n in range(11)], r"^rule.calendars: has 11 names; give at most 10"),
    ):
        with pytest.raises(InvalidField, match=said):
            calendar_names("rule.calendars", names)


def test_dates() -> None:
    """Ascending, each once."""
    assert calendar_dates("dates", ["2026-12-26", "2026-12-25", "2026-12-26"]) == ("2026-12-25", "2026-12-26")
    assert calendar_dates("dates", []) == ()


@pytest.mark.parametrize(
    "text", ["", "24.12.2026", "20261224", "2026-W52-4", "2026-02-30", "2026-12-24T00:00"]
)
def test_dates_that_are_none(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^dates\[1\]: .* is not a date such as 2026-12-24"):
        calendar_dates("dates", ["2026-12-25", text])


def test_too_many_dates() -> None:
    with pytest.raises(InvalidField, match=r"^dates: has 1,001 dates; give at most 1,000"):
        calendar_dates("dates", ["2026-12-25"] * 1_001)
