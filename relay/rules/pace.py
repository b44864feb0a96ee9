"""Whether a rule fires too often, or never."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice, pairwise, takewhile

from relay.core.errors import InvalidField, RuleOver
from relay.core.instants import SECOND
from relay.core.recurring.rule import EPOCH, Rule
from relay.rules.nominal import Instants
from relay.rules.zones import find_zone, turns

_FIRST = 1_000
_PATIENCE = 10_000
_AROUND = 250
_TURNS = 4
_DAY = 86_400
_LONG = 30 * 366 * _DAY * SECOND
"""Longer than the 28 years after which dates have their weekdays again: instants that are rare take long to
compute."""

_ENDS = re.compile("COUNT|UNTIL|^$", re.IGNORECASE)
"""What an RRULE has that ends; no RRULE at all, too."""


def check_pace(rule: Rule, instants: Instants, now: int, shortest: int) -> None:
    """Raise `InvalidField` where two neighbours lie closer than `shortest` microseconds, or where the rule
    never fires from `now` on: `RuleOver` if it has fired before.

    It looks at a sample: the first 1,000 instants from `now` on, but no more than 30 years of them; and
    behind these the first 250, or 250 days, from a day before each of the next four times that the zone's
    clock is turned, since shifted and repeated times may come close to others. `@every` has one distance,
    and the times of a cron expression are alike on all its days, so what the sample can miss is rare: a
    cron expression with more than 1,000 times a day whose closest come late in the day, and an RRULE
    whose dates become denser in later years. A rule whose first 10,000 instants are all left out counts
    as one that never fires.
    """
    field = "rule.cron" if rule.cron else "rule.rrule" if rule.rrule else "rule.every"
    fires = (each.instant for each in islice(instants.after(now), _PATIENCE) if not each.left_out)
    first = next(fires, None)
    if first is None:
        raise _never(field, rule, instants, now)
    sample = [first, *_before(first + _LONG, islice(fires, _FIRST - 1))]
    _check_neighbours(field, iter(sample), shortest)
    if zone := find_zone(rule.zone):
        for turn in islice(turns(zone, now // SECOND, now // SECOND + 5 * 366 * _DAY), _TURNS):
            if (turn + _DAY) * SECOND < sample[-1]:
                continue
            around = islice(instants.after((turn - _DAY) * SECOND), _AROUND)
            fires = (each.instant for each in around if not each.left_out)
            _check_neighbours(field, _before((turn + _AROUND * _DAY) * SECOND, fires), shortest)


def _before(end: int, fires: Iterator[int]) -> Iterator[int]:
    return takewhile(lambda each: each < end, fires)


def _never(field: str, rule: Rule, instants: Instants, now: int) -> InvalidField:
    left_out = sum(1 for _ in islice(instants.after(now), _PATIENCE))
    if left_out == _PATIENCE:
        why = f"its next {_PATIENCE} instants are left out by dates, or lie in gaps"
        return InvalidField(field, f"never fires from now on: {why}")
    if not left_out and rule.ends is None and not _ENDS.search(rule.rrule):
        return InvalidField(field, f"does not fire within a hundred years of {_shown(now)}")
    ever = list(islice(instants.after(-1), _PATIENCE))
    if all(each.left_out for each in ever):
        why = "all its instants are left out by dates, or lie in gaps" if ever else "it has no instants"
        return InvalidField(field, f"never fires: {why}")
    why = "rule.ends is over" if rule.ends is not None and rule.ends <= now else "all its instants are over"
    if left_out:
        why = "all that are left of its instants are left out by dates, or lie in gaps"
    return RuleOver(field, f"never fires from now on: {why}")


def _check_neighbours(field: str, fires: Iterator[int], shortest: int) -> None:
    for earlier, later in pairwise(fires):
        if later - earlier < shortest:
            pair = " and ".join(_shown(each) for each in (earlier, later))
            distances = f"{(later - earlier) / SECOND:g} s apart"
            allowed = f"the topic allows {shortest / SECOND:g} s and more: see its min_recurrence_interval"
            raise InvalidField(field, f"fires at {pair}, {distances}; {allowed}")


def _shown(instant: int) -> str:
    return f"{(EPOCH + timedelta(microseconds=instant)).isoformat()}Z"
