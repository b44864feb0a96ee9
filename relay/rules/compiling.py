"""From a rule to its instants."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from relay.core.errors import InvalidField
from relay.core.instants import LATEST
from relay.core.recurring.rule import EPOCH, Rule
from relay.rules.cron import CronWalls
from relay.rules.nominal import Instants, Nominal
from relay.rules.walls import WallInstants
from relay.rules.zones import find_zone


def compile_rule(rule: Rule, *, calendar: Collection[str] = ()) -> Instants:
    """Check a rule, and return its instants. `calendar` has further dates to leave out, such as `2026-12-24`.
    Raises `InvalidField` with the field of the rule, such as `rule.cron`."""
    return _compiled(rule, frozenset(calendar))


@lru_cache(16_384)
def _compiled(rule: Rule, calendar: frozenset[str]) -> Instants:
    closed = calendar.union(rule.leave_out)
    return _Bounded(_unbounded(rule), rule.starts, rule.ends, closed)


def _unbounded(rule: Rule) -> Instants:
    if (rule.cron != "") + (rule.rrule != "") + (rule.every is not None) != 1:
        raise InvalidField("rule", "give exactly one of cron, rrule and every")
    if rule.every is not None:
        return EveryInstants(rule.every, rule.anchor or 0)
    if rule.rrule:
        raise InvalidField("rule.rrule", "is not built yet")
    walls = CronWalls(rule.cron)
    return WallInstants(walls, find_zone(rule.zone), rule.gap, rule.fold, elapsed=walls.elapsed)


@dataclass(frozen=True, slots=True)
class EveryInstants:
    """Instants at one distance, in microseconds, counted from `anchor` in both directions."""

    length: int
    anchor: int

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        following = instant + self.length - (instant - self.anchor) % self.length
        while following <= LATEST:
            yield Nominal(following, 0)
            following += self.length


@dataclass(frozen=True, slots=True)
class _Bounded:
    """What `starts`, `ends` and `closed` dates leave of instants."""

    instants: Instants
    starts: int | None
    ends: int | None
    closed: frozenset[str]

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        if self.starts is not None:
            instant = max(instant, self.starts - 1)
        for nominal in self.instants.after(instant):
            if self.ends is not None and nominal.instant >= self.ends:
                return
            if self.closed and not nominal.left_out and _local_date(nominal) in self.closed:
                yield nominal._replace(left_out="calendar")
            else:
                yield nominal


def _local_date(nominal: Nominal) -> str:
    return (EPOCH + timedelta(seconds=nominal.offset, microseconds=nominal.instant)).date().isoformat()
