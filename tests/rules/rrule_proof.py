"""Proves the instants of RRULEs, as `tests.rules.proof` does for cron. They are held to a judge of their own,
and their wall times to dateutil, which is given the whole rule with its own DTSTART.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import takewhile
from random import Random
from typing import NamedTuple

from dateutil.rrule import rrulestr

from relay.core.errors import InvalidField
from relay.core.recurring.rule import Fold, Gap, Rule
from relay.rules import compile_rule
from tests.rules.oracle import DAY, EPOCH, Clock, clock, judged, zone_names
from tests.rules.proof import FIRST, LAST, SECOND, Differs
from tests.rules.rrules import WEEKLY, DrawnRrule, rrule

REACH = 27 * 3600


def prove(seed: int, instants: int) -> Counter[str]:
    """Compare this many instants."""
    random, names, counts = Random(seed), zone_names(), Counter[str]()
    while counts["RRULE: instants"] < instants:
        zone = clock(random.choice(names))
        turned = zone.turned(FIRST, LAST)
        turn, offset, _ = random.choice(turned) if turned else (random.randint(FIRST, LAST), 0, 0)
        drawn = rrule(random, EPOCH + timedelta(seconds=turn + offset + random.randint(-5_000, 5_000)))
        since, until = turn - 2 * DAY, turn + 2 * DAY
        if random.random() < 0.2:
            since = turn + random.randint(-5_000, 5_000)
        gap, fold = random.choice(["shift", "skip"]), random.choice(["first", "second", "both"])
        check(Case(drawn, zone, since, until, gap, fold), counts)
    return counts


class Case(NamedTuple):
    """A rule in a zone, looked at between two seconds."""

    rule: DrawnRrule
    zone: Clock
    since: int
    until: int
    gap: str
    fold: str

    def __str__(self) -> str:
        at = EPOCH + timedelta(seconds=self.since)
        return f"{self.rule.text!r} in {self.zone.name} from {at} on, gap {self.gap}, fold {self.fold}"


def check(case: Case, counts: Counter[str]) -> None:
    drawn, zone, since, until, gap, fold = case
    rule = Rule(rrule=drawn.text, zone=zone.name, gap=Gap(gap), fold=Fold(fold))
    first, last = (EPOCH + timedelta(seconds=each) for each in (since - REACH, until + REACH))
    try:
        instants = compile_rule(rule).after(since * SECOND)
    except InvalidField as error:
        if drawn.walls(last) or "never" not in error.problem:
            raise Differs(f"{case}: {error}") from None
        counts["RRULE: never or later"] += 1
        return
    found = takewhile(lambda each: each.instant <= until * SECOND, instants)
    seen = [(each.instant // SECOND, each.offset, each.left_out, each.shifted) for each in found]
    if drawn.elapsed:
        wanted = _counted(drawn, zone, since, until, last)
    else:
        near = [wall for wall in drawn.walls(last) if wall >= first]
        wanted = judged(near, zone, since, until, gap, fold, elapsed=False)
    if seen != wanted:
        raise Differs(f"{case}:\n  {seen}\n  {wanted}")
    counts["RRULE: instants"] += len(seen)
    counts["RRULE: cases"] += 1
    if not (drawn.frequency == WEEKLY and "BYSETPOS" in drawn.by):  # dateutil cuts the first week off
        _compare_walls(drawn, last, counts)


def _counted(
    drawn: DrawnRrule, zone: Clock, since: int, until: int, last: datetime
) -> list[tuple[int, int, str, int]]:
    """A rule that goes by elapsed time: COUNT counts instants, and EXDATE leaves out of those."""
    begin = int((drawn.start - EPOCH).total_seconds()) - 2 * DAY
    everything = DrawnRrule(
        drawn.frequency, drawn.start, drawn.interval, drawn.wkst, None, drawn.until, drawn.by, drawn.days
    )
    told = judged(everything.walls(last), zone, begin, until, "shift", "first", elapsed=True)
    if drawn.count is not None:
        told = told[: drawn.count]
    excluded = {int((each - EPOCH).total_seconds()) for each in drawn.excluded}
    return [each for each in told if since < each[0] and each[0] + each[1] not in excluded]


def _compare_walls(drawn: DrawnRrule, last: datetime, counts: Counter[str]) -> None:
    told = list(takewhile(lambda wall: wall <= last, rrulestr(drawn.text, forceset=True)))
    if told != drawn.walls(last):
        raise Differs(f"dateutil, {drawn.text!r} up to {last}:\n {told[-9:]}\n {drawn.walls(last)[-9:]}")
    counts["RRULE: wall times held to dateutil"] += len(told)
