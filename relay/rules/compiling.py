"""From a rule to its instants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo

from relay.core.errors import InvalidField
from relay.core.instants import LATEST, SECOND
from relay.core.recurring.calendars import check_date
from relay.core.recurring.rule import EPOCH, Rule
from relay.rules import every
from relay.rules.cron import CronWalls
from relay.rules.every import EveryInstants
from relay.rules.nominal import Instants, Nominal
from relay.rules.rrule import RruleWalls
from relay.rules.rrule_text import read_rrule
from relay.rules.walls import ElapsedInstants, FixedInstants, UniversalInstants, Walls
from relay.rules.zones import find_zone

_EVERY = "@every"

_DAY = 86_400 * SECOND


def compile_rule(rule: Rule, *, calendars: Sequence[AbstractSet[str]] = ()) -> Instants:
    """Check a rule, and return its instants. `calendars` are the dates of those that it names, such as
    `2026-12-24`: they change, and are no part of the rule. Raises `InvalidField` with the field of the rule,
    such as `rule.cron`.

    Rules are kept when they are compiled, so to compile one again costs a microsecond.
    """
    instants = _compiled(rule)
    return _Bounded(instants, None, None, tuple(calendars)) if calendars else instants


@lru_cache(16_384)
def _compiled(rule: Rule) -> Instants:
    for place, day in enumerate(rule.leave_out):
        check_date(f"rule.leave_out[{place}]", day)
    for field, instant in (("anchor", rule.anchor), ("starts", rule.starts), ("ends", rule.ends)):
        if instant is not None and not 0 <= instant <= LATEST:
            raise InvalidField(f"rule.{field}", "is not an instant between the years 1970 and 9999")
    if rule.starts is not None and rule.ends is not None and rule.ends <= rule.starts:
        raise InvalidField("rule.ends", "is not later than rule.starts")
    return _bounded(_instants(rule), rule.starts, rule.ends, frozenset(rule.leave_out))


def _instants(rule: Rule) -> Instants:
    if (rule.cron != "") + (rule.rrule != "") + (rule.every is not None) != 1:
        raise InvalidField("rule", "give exactly one of cron, rrule and every")
    if rule.every is not None:
        return _every("rule.every", rule.every, rule)
    cron = rule.cron.strip()
    if cron.lower().startswith(_EVERY):
        return _every("rule.cron", every.length("rule.cron", cron[len(_EVERY) :].strip()), rule)
    zone = find_zone(rule.zone)
    if rule.rrule:
        return _rrule(rule, zone)
    walls = _cron(rule.cron)
    return _from_walls(walls, rule, zone, elapsed=walls.elapsed)


@lru_cache(4_096)
def _cron(expression: str) -> CronWalls:
    return CronWalls(expression)


def _every(field: str, distance: int, rule: Rule) -> Instants:
    if not 0 < distance <= every.MOST:
        raise InvalidField(field, "is not between a microsecond and a hundred years")
    if rule.zone:
        problem = "a distance of time goes by no zone: leave it out, or write a cron expression"
        raise InvalidField("rule.zone", problem)
    return EveryInstants(distance, rule.anchor or 0)


def _from_walls(walls: Walls, rule: Rule, zone: ZoneInfo | None, *, elapsed: bool) -> Instants:
    if zone is None:
        return UniversalInstants(walls)
    return ElapsedInstants(walls, zone) if elapsed else FixedInstants(walls, zone, rule.gap, rule.fold)


def _rrule(rule: Rule, zone: ZoneInfo | None) -> Instants:
    text = read_rrule(rule.rrule, zone)
    starts = ends = None
    if text.start is not None:
        start = text.start
    elif rule.anchor is None:
        start = EPOCH
    else:
        if rule.anchor > LATEST - _DAY:
            raise InvalidField("rule.anchor", "is in the last day of the year 9999; give an earlier one")
        starts = rule.anchor // SECOND * SECOND
        start = datetime.fromtimestamp(starts // SECOND, zone or UTC).replace(tzinfo=None, fold=0)
    if text.until_instant is not None:
        ends = (text.until_instant - EPOCH) // timedelta(microseconds=1) + 1
    walls = RruleWalls(text, start)
    if text.count is not None and zone is not None and text.elapsed:
        before = (start - timedelta(days=2) - EPOCH) // timedelta(microseconds=1)
        counted = ElapsedInstants(walls.with_excluded, zone).after(before)
        if (last := next(islice(counted, text.count - 1, None), None)) is not None:
            ends = last.instant + 1
    elif text.count is not None:
        walls.stop_after(text.count)
    return _bounded(_from_walls(walls, rule, zone, elapsed=text.elapsed), starts, ends, frozenset())


def _bounded(instants: Instants, starts: int | None, ends: int | None, closed: frozenset[str]) -> Instants:
    if starts is None and ends is None and not closed:
        return instants
    return _Bounded(instants, starts, ends, (closed,) if closed else ())


@dataclass(frozen=True, slots=True)
class _Bounded:
    """What `starts`, `ends` and the dates of `closed` leave of instants."""

    instants: Instants
    starts: int | None
    ends: int | None
    closed: tuple[AbstractSet[str], ...]

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        if self.starts is not None:
            instant = max(instant, self.starts - 1)
        for nominal in self.instants.after(instant):
            if self.ends is not None and nominal.instant >= self.ends:
                return
            if self.closed and not nominal.left_out and self._is_closed(_local_date(nominal)):
                yield nominal._replace(left_out="calendar")
            else:
                yield nominal

    def _is_closed(self, day: str) -> bool:
        return any(day in dates for dates in self.closed)


def _local_date(nominal: Nominal) -> str:
    return (EPOCH + timedelta(seconds=nominal.offset, microseconds=nominal.instant)).date().isoformat()
