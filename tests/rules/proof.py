"""Proves the instants of cron expressions: all zones of tzdata, rules drawn at random, the years 1990 to 2040
around the times that clocks are turned. The long form is `make prove-rules`.

Each instant is held to the judge in `tests.rules.oracle`, for the gap and fold that the case has drawn; there
no difference is allowed. Beside it the same rule is asked of three references that treat turned clocks in
their own ways: croniter, cronsim with the zone, and a cron daemon that goes minute by minute by the rules in
Debian's cron(8), which are Vixie's. Each of them is held to what it is known to do, and where it differs from
Relay the difference is counted by its reason. docs/reference/recurrence-rules.md lists them.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from relay.core.errors import InvalidField
from relay.core.recurring.rule import Fold, Gap, Rule
from relay.rules import compile_rule
from relay.rules.zones import find_zone
from tests.rules.drawing import cron
from tests.rules.oracle import DAY, EPOCH, Clock, Drawn, Expected, clock, expected, unmerged, zone_names

SECOND = 1_000_000
REACH = 27 * 3600


def since_1970(year: int) -> int:
    return int((datetime(year, 1, 1) - EPOCH).total_seconds())


FIRST, LAST = since_1970(1990), since_1970(2041)


class Case(NamedTuple):
    """A rule in a zone, looked at between two seconds."""

    rule: Drawn
    zone: Clock
    since: int
    until: int
    gap: str
    fold: str

    def __str__(self) -> str:
        at = EPOCH + timedelta(seconds=self.since)
        return f"{self.rule.text!r} in {self.zone.name} from {at} on, gap {self.gap}, fold {self.fold}"


class Differs(AssertionError):
    """Two that have to agree do not."""


def draw(random: Random, names: list[str]) -> Case:
    zone = clock(random.choice(names))
    turned = zone.turned(FIRST, LAST)
    if turned and random.random() < 0.9:
        turn, before, after = random.choice(turned)
        hit = turn + random.randint(min(before, after), max(before, after))
        if random.random() < 0.3:
            hit += random.randint(-7200, 7200)
    else:
        turn = random.randint(FIRST, LAST)
        hit = turn + zone.offset(turn)
    rule = cron(random, EPOCH + timedelta(seconds=hit))
    per_day = len(rule.seconds) * len(rule.minutes) * len(rule.hours)
    reach = 2 * DAY if per_day < 20 else 21_600 if per_day < 200 else 5_400 if per_day < 1_500 else 90
    since, until = turn - reach, turn + reach
    if random.random() < 0.2:  # begin where the clock is being turned
        since = turn + random.randint(-5_000, 5_000)
        until = max(until, since + reach)
    return Case(
        rule, zone, since, until, random.choice(["shift", "skip"]), random.choice(["first", "second", "both"])
    )


def seen(case: Case) -> list[Expected] | None:
    """What Relay says; None if the rule never fires."""
    rule = Rule(cron=case.rule.text, zone=case.zone.name, gap=Gap(case.gap), fold=Fold(case.fold))
    try:
        instants = compile_rule(rule)
    except InvalidField as error:
        days = (EPOCH.date() + timedelta(days=n) for n in range(10_957, 10_957 + 18_000))
        if "never fires" not in error.problem or any(case.rule.on(day) for day in days):
            raise Differs(f"{case}: {error}") from None
        return None
    found = takewhile(lambda each: each.instant <= case.until * SECOND, instants.after(case.since * SECOND))
    return [(each.instant // SECOND, each.offset, each.left_out, each.shifted) for each in found]


def check(case: Case, counts: Counter[str]) -> int:
    """The number of instants that were compared."""
    found = seen(case)
    if found is None:
        counts["rules that never fire"] += 1
        return 0
    wanted = expected(case.rule, case.zone, case.since, case.until, case.gap, case.fold)
    if found != wanted:
        raise Differs(f"{case}:\n  {found}\n  {wanted}")
    counts["cases"] += 1
    counts["left out in gaps"] += sum(each[2] == "gap" for each in found)
    counts["shifted"] += sum(each[3] > 0 for each in found)
    return len(found)


# -------------------------------------------------------------- references


def fires(case: Case, gap: str, fold: str, *, elapsed: bool) -> set[int]:
    """When the rule would fire, by one way to treat turned clocks; the gap `turn` fires all at the turn."""
    low, high = (EPOCH + timedelta(seconds=each) for each in (case.since - REACH, case.until + REACH))
    walls = case.rule.walls(low, high)
    way = "shift" if gap == "turn" else gap
    told = unmerged(walls, case.zone, case.since - REACH, case.until + REACH, way, fold, elapsed=elapsed)
    turns = [turn for turn, _, _ in case.zone.turned(case.since - 3 * DAY, case.until + 3 * DAY)]
    found = set()
    for second, _, left_out, shifted in told:
        if not left_out:
            at_turn = gap == "turn" and shifted
            found.add(max(turn for turn in turns if turn <= second) if at_turn else second)
    return {second for second in found if case.since < second <= case.until}


def near(case: Case) -> list[tuple[int, int, int]]:
    return case.zone.turned(case.since - 2 * DAY, case.until + 2 * DAY)


def wild(case: Case) -> tuple[bool, bool]:
    """Whether the minute and the hour are wildcards."""
    minute, hour, *_ = case.rule.text.split()[-5:]
    return minute.startswith("*"), hour.startswith("*")


def by_cronsim(case: Case) -> tuple[set[int], set[int]] | None:
    """What cronsim says with a zone, and what it is known to do."""
    if "W" in case.rule.text.upper().replace("WED", "").replace("LW", "") or not plain_last(case.rule.text):
        return None
    fixed = len(case.rule.text.split()) == 5 and not any(wild(case))
    told = told_by(case, CronSim(case.rule.text, aware(case)))
    known = (
        fires(case, "turn", "first", elapsed=False) if fixed else fires(case, "skip", "both", elapsed=True)
    )
    if not fixed:  # it yields a midnight that its zone leaves out
        midnights = {
            turn for turn, before, after in near(case) if after > before and (turn + before) % DAY == 0
        }
        told -= midnights - known
    return told, known


def plain_last(text: str) -> bool:
    weekday = text.upper().split()[-1]
    return not any(term.endswith("L") and not term[:-1].isdecimal() for term in weekday.split(","))


def by_croniter(case: Case) -> tuple[set[int], set[int]] | None:
    """What croniter says with a zone, and what it is known to do."""
    *_, day, _, weekday = case.rule.text.upper().split()
    if "W" in day or "L" in day or "L" in weekday.replace("JUL", "") or "#" in weekday:
        return None
    if len(case.rule.text.split()) == 6:
        return None
    asked = croniter(case.rule.text, aware(case), ret_type=datetime, implement_cron_bug=True)
    told = told_by(case, asked)
    hour = case.rule.text.split()[-4]
    gap = "skip" if hour == "*" else "turn"
    return told, fires(case, gap, "both", elapsed=False)


def aware(case: Case) -> datetime:
    zone = find_zone(case.zone.name) or ZoneInfo("UTC")
    return datetime.fromtimestamp(case.since, zone)


def told_by(case: Case, library: Iterator[datetime]) -> set[int]:
    """What a library says, which may search without end: then `Hangs` is raised."""
    found = set()
    signal.signal(signal.SIGVTALRM, _hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, 3.0)
    try:
        for when in library:
            second = round(when.timestamp())
            if second > case.until:
                break
            if second > case.since:  # cronsim goes back where it begins in the second pass of an overlap
                found.add(second)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return found


class Hangs(Exception):
    """A library did not answer within 3 s of processor time."""


def _hangs(*_: object) -> None:
    raise Hangs


def by_vixie(case: Case) -> tuple[set[int], set[int]] | None:
    """A cron daemon that looks at the wall's clock each minute, by Debian's cron(8): where the clock has been
    set by less than three hours, jobs without wildcards in minute and hour that were skipped run at once, and
    those that come again do not; jobs with wildcards go by the new time. By more: all go by the new time."""
    if len(case.rule.text.split()) == 6 or case.zone.offset(case.since) % 60:
        return None
    wildcard = any(wild(case))
    since = case.since // 60 * 60
    walls = {
        int((wall - EPOCH).total_seconds())
        for wall in case.rule.walls(
            EPOCH + timedelta(seconds=case.since - REACH), EPOCH + timedelta(seconds=case.until + REACH)
        )
    }
    warm_up = since - 4 * 3600
    virtual = warm_up + case.zone.offset(warm_up)
    told = set()
    for second in range(warm_up + 60, case.until + 1, 60):
        local = second + case.zone.offset(second)
        ahead = (local - virtual) // 60
        if -180 < ahead <= 0:
            ran = wildcard and local in walls
        elif 1 < ahead < 180:
            missed = range(virtual + 60, local + 1, 60)
            ran = local in walls if wildcard else any(each in walls for each in missed)
            virtual = local
        else:
            ran = local in walls
            virtual = local
        if ran and second > case.since:
            told.add(second)
    large = any(  # back by three hours is 179 minutes when the daemon looks again
        not -10_800 <= after - before < 10_800
        for _, before, after in case.zone.turned(warm_up, case.until + 1)
    )
    elapsed = wildcard or large
    known = (
        fires(case, "skip", "both", elapsed=True) if elapsed else fires(case, "turn", "first", elapsed=False)
    )
    return told, known


REFERENCES: dict[str, Callable[[Case], tuple[set[int], set[int]] | None]] = {
    "croniter": by_croniter,
    "cronsim with zones": by_cronsim,
    "Vixie": by_vixie,
}


def compare(case: Case, counts: Counter[str]) -> None:
    """Ask the references, hold each to what it is known to do, and count where it differs from Relay's
    defaults."""
    if not askable(case):
        return
    default = case._replace(gap="shift", fold="first")
    ours = {second for second, _, left_out, _ in seen(default) or () if not left_out}
    turned = near(case)
    for name, ask in REFERENCES.items():
        try:
            answer = ask(default)
        except Hangs:
            counts[f"{name}: hangs"] += 1
            print(f"{name} hangs: {default} {turned}", file=sys.stderr)
            continue
        if answer is None:
            continue
        told, known = answer
        if told != known and name in LIBRARIES and odd(turned):
            counts[f"{name}: cases where clocks are turned oddly, and it loses its way"] += 1
            continue
        if told != known:
            counts[f"{name}: not as known"] += 1
            if counts[f"{name}: not as known"] <= 3:
                extra, lacking = sorted(told - known)[:9], sorted(known - told)[:9]
                print(f"{name} {default}:\n  {extra} {lacking} {turned}", file=sys.stderr)
        counts[f"{name}: instants"] += len(told)
        for second in ours ^ told:
            counts[f"{name}: {reason(second, turned)}: {'Relay' if second in ours else name} alone"] += 1


LIBRARIES = ("croniter", "cronsim with zones")


def odd(turned: list[tuple[int, int, int]]) -> bool:
    """Whether a clock is turned by other than whole hours, at midnight, or not at a whole hour. There both
    libraries lose their way: they step by hours, and begin days at midnight."""
    return any(
        (after - before) % 3600 or (turn + before) % 3600 or (turn + before) % DAY == 0
        for turn, before, after in turned
    )


SINGLE = re.compile(r"\b(\w+)-\1\b|sun-0|mon-1|tue-2|wed-3|thu-4|fri-5|sat-6", re.IGNORECASE)
"""croniter takes 5-5 for a star, and cronsim 5-5/2 for 5/2."""


def askable(case: Case) -> bool:
    """Whether the libraries can be asked: they search second by second for long where a rule is rare."""
    after = (EPOCH + timedelta(seconds=case.until)).date()
    soon = any(case.rule.on(after + timedelta(days=n)) for n in range(2, 40))
    per_day = len(case.rule.seconds) * len(case.rule.minutes) * len(case.rule.hours)
    return soon and per_day < 1_500 and not SINGLE.search(case.rule.text)


def reason(second: int, turned: list[tuple[int, int, int]]) -> str:
    for turn, before, after in turned:
        width = abs(after - before)
        if turn - width <= second <= turn + width:
            return "gap" if after > before else "overlap"
    return "elsewhere"


# -------------------------------------------------------------------- runs


def prove(seed: int, instants: int, share: float = 1.0) -> Counter[str]:
    """Compare this many instants; `share` of the cases is asked of the references too."""
    random, names, counts = Random(seed), zone_names(), Counter[str]()
    random.shuffle(names)
    place = 0
    while counts["instants"] < instants:
        case = draw(random, [names[place % len(names)]])
        place += 1
        found = check(case, counts)
        counts["instants"] += found
        if found and random.random() < share:
            compare(case, counts)
    return counts
