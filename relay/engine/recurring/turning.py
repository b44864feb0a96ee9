"""What becomes of a recurrence whose instants have passed, by the rules of this process."""

from __future__ import annotations

from relay.core.recurring.calendars import KnownCalendars
from relay.core.recurring.recurrence import StoredRecurrence, Turn
from relay.core.recurring.turns import turn
from relay.rules import TZDATA, compile_rule


def turned(kept: StoredRecurrence, now: int, calendars: KnownCalendars, *, one_by_one: bool = False) -> Turn:
    """What becomes of a recurrence at `now`; see `turn`."""
    standing, rule = kept.standing, kept.recurrence.rule
    instants = compile_rule(rule, calendars=calendars.named(rule.calendars))
    nominals = () if standing.next is None else instants.after(standing.settled)
    return turn(kept, nominals, now, TZDATA, one_by_one=one_by_one)
