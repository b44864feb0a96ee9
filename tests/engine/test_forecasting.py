"""What recurrences will make, as a forecast counts it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain, repeat, takewhile

import pytest

from relay.core.errors import InvalidField
from relay.core.instants import SECOND, spread_of
from relay.core.recurring.calendars import NO_CALENDARS, KnownCalendars
from relay.core.recurring.forecast import Forecast, Window
from relay.core.recurring.recurrence import CatchUp, Overlap, Recurrence, Standing, StoredRecurrence
from relay.core.recurring.rule import Rule
from relay.engine.recurring import forecasting
from relay.engine.recurring.forecasting import with_occurrences
from relay.rules import compile_rule
from relay.rules.nominal import Instants

NOW = 1_767_225_600 * SECOND
MINUTE = 60 * SECOND
WINDOW = Window(10 * MINUTE, 3 * MINUTE)


def kept(rule: Rule, *, next_in: int | None = None, **wanted: object) -> StoredRecurrence:
    """A recurrence that has ticked up to now; `next_in` says that its next instant has passed, or is over."""
    recurrence = Recurrence("r", rule, **wanted)  # type: ignore[arg-type]
    settled = NOW if next_in is None else NOW + next_in - 1
    following = next(iter(compile_rule(rule).after(settled)), None)
    standing = Standing(1, None if following is None else following.instant, settled=settled)
    return StoredRecurrence(recurrence, standing, stands=False, stamp=b"")


def found(*recurrences: StoredRecurrence, window: Window = WINDOW, until: int | None = None) -> Forecast:
    return Forecast(NOW, 0, 0, (0,) * window.intervals, 0, recurrences, until)


def occurrences(*recurrences: StoredRecurrence, window: Window = WINDOW) -> list[int]:
    counted = with_occurrences(found(*recurrences, window=window), window, NO_CALENDARS)
    assert (counted.until, counted.unread) == (None, 0)
    return list(counted.occurrences)


def test_each_instant_is_in_one_interval() -> None:
    """The first one of the next interval is not in this one, and that at the horizon's end is in none."""
    assert occurrences(kept(Rule(every=MINUTE))) == [2, 3, 3, 1]
    assert occurrences(kept(Rule(every=3 * MINUTE))) == [0, 1, 1, 1]
    assert occurrences(kept(Rule(every=10 * MINUTE))) == [0, 0, 0, 0]


def test_what_a_recurrence_leaves_out() -> None:
    """Nothing comes while it is paused, behind its last run, or on the dates of a calendar."""
    every = kept(Rule(every=MINUTE))
    assert occurrences(replace(every, standing=replace(every.standing, paused=NOW))) == [0, 0, 0, 0]
    assert occurrences(kept(Rule(every=MINUTE), max_runs=4)) == [2, 2, 0, 0]
    assert occurrences(kept(Rule(every=MINUTE, ends=NOW + 4 * MINUTE))) == [2, 1, 0, 0]
    named = kept(Rule(every=MINUTE, calendars=("de",)))
    closed = KnownCalendars("1", {"de": frozenset(("2026-01-01",))})
    assert list(with_occurrences(found(named), WINDOW, closed).occurrences) == [0, 0, 0, 0]


def test_what_nobody_has_ticked_for_would_come_now() -> None:
    """By its catch-up, and in the first interval; one that is still there is in its way."""
    late = -5 * MINUTE
    for catch_up, first in ((CatchUp.LATEST, 3), (CatchUp.ALL, 2 + 6), (CatchUp.NONE, 3 + 1)):
        every = kept(Rule(every=MINUTE), next_in=late, overlap=Overlap.ALLOW, catch_up=catch_up)
        assert occurrences(every) == [first, 3, 3, 1], catch_up
        rule = Rule(every=SECOND)  # more of them than one turn goes through
        often = kept(rule, next_in=-1_300 * SECOND, overlap=Overlap.ALLOW, catch_up=catch_up)
        passed = {CatchUp.LATEST: 1, CatchUp.ALL: 1_301, CatchUp.NONE: 61}[catch_up]
        assert occurrences(often) == [179 + passed, 180, 180, 60], catch_up
    skips = kept(Rule(every=MINUTE), next_in=late)
    assert occurrences(replace(skips, stands=True)) == [2, 3, 3, 1]
    last = kept(Rule(every=MINUTE), next_in=late, max_runs=1)
    assert occurrences(last) == [1, 0, 0, 0]


@pytest.mark.parametrize("seed", range(20))
def test_any_recurrences(seed: int) -> None:
    """The forecast is what each rule by itself says, shifted by its jitter."""
    chance = random.Random(seed)
    window = Window(chance.randrange(1, 90) * MINUTE, chance.randrange(11, 700) * SECOND)
    many, expected = [], [0] * window.intervals
    for n in range(6):
        rule = chance.choice(
            [Rule(every=chance.randrange(7, 400) * SECOND), Rule(cron="*/7 * * * *"), Rule(cron="@hourly")]
        )
        made = kept(rule, jitter=chance.choice([0, MINUTE]))
        made = replace(made, recurrence=replace(made.recurrence, recurrence_id=f"r{n}"))
        many.append(made)
        shift = spread_of(f"r{n}", made.recurrence.jitter)
        dues = (each.instant + shift for each in compile_rule(rule).after(NOW))
        for due in takewhile(lambda due: due < NOW + window.horizon, dues):
            expected[(due - NOW) // window.resolution] += 1
    assert occurrences(*many, window=window) == expected


def test_too_many_to_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones of all are counted, and the forecast says from when on some are missing."""
    monkeypatch.setattr(forecasting, "MOST_INSTANTS", 5)
    several = found(kept(Rule(every=MINUTE)), kept(Rule(every=2 * MINUTE)))
    counted = with_occurrences(several, WINDOW, NO_CALENDARS)
    assert list(counted.occurrences) == [3, 2, 0, 0]
    assert counted.until == NOW + 4 * MINUTE
    monkeypatch.undo()
    few_read = replace(several, until=NOW + 3 * MINUTE)
    counted = with_occurrences(few_read, WINDOW, NO_CALENDARS)
    assert (list(counted.occurrences), counted.until) == ([3, 0, 0, 0], NOW + 3 * MINUTE)


def test_no_time_to_compile_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first recurrence that is not looked at says from when on some are missing."""
    ticks = chain([0, 0.4, 0.8, 1.2], repeat(1.5))
    monkeypatch.setattr(forecasting, "monotonic", lambda: next(ticks))
    several = [kept(Rule(every=n * MINUTE)) for n in (5, 1, 3, 4)]
    counted = with_occurrences(found(*several), WINDOW, NO_CALENDARS)
    assert counted.until == NOW + 4 * MINUTE
    assert list(counted.occurrences) == [2, 2, 0, 0]


def test_no_time_for_more_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule may take long for each: the time is looked at before every one."""
    ticks = iter([0, 0.1, 1.0, 1.9, 2.1])
    monkeypatch.setattr(forecasting, "monotonic", lambda: next(ticks))
    counted = with_occurrences(found(kept(Rule(every=MINUTE))), WINDOW, NO_CALENDARS)
    assert (list(counted.occurrences), counted.until) == ([2, 0, 0, 0], NOW + 3 * MINUTE)


def test_a_caller_who_waits_for_less() -> None:
    """The times for compiling and for instants are those of the caller."""
    slow = found(kept(Rule(every=MINUTE)))
    for within, counts, until in ((1.0, [2, 3, 3, 1], None), (-1.0, [0, 0, 0, 0], NOW + MINUTE)):
        counted = with_occurrences(slow, WINDOW, NO_CALENDARS, within)
        assert (list(counted.occurrences), counted.until) == (counts, until)


def test_recurrences_of_one_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed once, and each has all its instants, from where it stands on and until its last run."""
    compiled = []

    def compile_it(rule: Rule, *, calendars: Sequence[AbstractSet[str]]) -> Instants:
        compiled.append(rule)
        return compile_rule(rule, calendars=calendars)

    monkeypatch.setattr(forecasting, "compile_rule", compile_it)
    rule = Rule(cron="* * * * *")
    assert occurrences(kept(rule), kept(rule), kept(rule, max_runs=4)) == [6, 8, 6, 2]
    assert compiled == [rule]
    ahead = kept(rule, next_in=5 * MINUTE)
    assert occurrences(kept(rule), ahead) == [2, 4, 6, 2]


def test_a_rule_of_a_newer_version() -> None:
    """It is counted as one that can't be read, and stops no other."""
    newer = kept(Rule(every=MINUTE))
    odd = replace(newer, recurrence=replace(newer.recurrence, rule=Rule(cron="at dawn")))
    counted = with_occurrences(found(odd, newer), WINDOW, NO_CALENDARS)
    assert (list(counted.occurrences), counted.unread) == ([2, 3, 3, 1], 1)


def test_the_bounds_of_a_window() -> None:
    """An error names the field; what is left out is an hour, and a sixtieth of the horizon."""
    assert Window.checked(None, None) == Window(3_600 * SECOND, MINUTE)
    assert Window.checked(86_400 * SECOND, None).resolution == 24 * MINUTE
    assert Window.checked(200 * SECOND, SECOND).intervals == 200
    for field, horizon, resolution in (
        ("horizon", SECOND - 1, None),
        ("horizon", 11 * 365 * 86_400 * SECOND, None),
        ("resolution", None, 999),
        ("resolution", 200 * SECOND + 1, SECOND),
    ):
        with pytest.raises(InvalidField) as refused:
            Window.checked(horizon, resolution)
        assert refused.value.field == field
