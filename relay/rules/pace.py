"""Whether a rule fires too often, or never."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import islice, pairwise

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.recurring.rule import EPOCH, Rule
from relay.rules.nominal import Instants
from relay.rules.zones import find_zone, turns

_FIRST = 1_000
_PATIENCE = 10_000
_AROUND = 250
_TURNS = 4
_DAY = 86_400


def check_pace(rule: Rule, instants: Instants, now: int, shortest: int) -> None:
    """Raise `InvalidField` where two neighbours lie closer than `shortest` microseconds, or where the rule
    never fires from `now` on.

    It looks at a sample: the first 1,000 instants from `now` on, and the first 250 from a day before each of
    the next four times that the zone's clock is turned, since shifted and repeated times may come close to
    others. `@every` has one distance, and the times of a cron expression are alike on all its days, so what
    the sample can miss is rare: a cron expression with more than 1,000 times a day whose closest come late in
    the day, and an RRULE whose dates become denser in later years. A rule whose first 10,000 instants are all
    left out counts as one that never fires.
    """
    field = "rule.cron" if rule.cron else "rule.rrule" if rule.rrule else "rule.every"
    sample = list(
        islice((each for each in islice(instants.after(now), _PATIENCE) if not each.left_out), _FIRST)
    )
    if not sample:
        raise InvalidField(field, _why_never(rule, instants, now))
    _check_neighbours(field, (each.instant for each in sample), shortest)
    if zone := find_zone(rule.zone):
        for turn in islice(turns(zone, now // SECOND, now // SECOND + 5 * 366 * _DAY), _TURNS):
            around = islice(instants.after((turn - _DAY) * SECOND), _AROUND)
            _check_neighbours(field, (each.instant for each in around if not each.left_out), shortest)


def _why_never(rule: Rule, instants: Instants, now: int) -> str:
    if rule.ends is not None and rule.ends <= now:
        return "never fires from now on: rule.ends is over"
    if next(instants.after(now), None) is None:
        return "never fires from now on: all its instants are over"
    return f"never fires from now on: its next {_PATIENCE} instants are left out by dates, or lie in gaps"


def _check_neighbours(field: str, fires: Iterator[int], shortest: int) -> None:
    for earlier, later in pairwise(fires):
        if later - earlier < shortest:
            pair = " and ".join(_shown(each) for each in (earlier, later))
            distances = f"{(later - earlier) / SECOND:g} s apart"
            allowed = f"the topic allows {shortest / SECOND:g} s and more: see its min_recurrence_interval"
            raise InvalidField(field, f"fires at {pair}, {distances}; {allowed}")


def _shown(instant: int) -> str:
    return f"{(EPOCH + timedelta(microseconds=instant)).isoformat()}Z"
