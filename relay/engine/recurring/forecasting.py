"""What falls due in a topic: what stands in its timeline, and what its recurrences will make."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from itertools import tee
from time import monotonic
from typing import NamedTuple

from relay.core.errors import InvalidField, StoreRefused
from relay.core.instants import LATEST, spread_of
from relay.core.ports import Forecasts
from relay.core.recurring.calendars import NO_CALENDARS, KnownCalendars
from relay.core.recurring.forecast import Forecast, Window
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import StoredRecurrence
from relay.core.recurring.rule import Rule
from relay.engine.recurring.recurrences import ByLayout, ComputesRules, ReadsCalendars
from relay.engine.recurring.turning import turned
from relay.rules import compile_rule

MOST_INSTANTS = 10_000
"""The most nominal instants that one forecast goes through, the first ones of all recurrences."""

LONGEST = 2.0
"""Seconds for which a forecast computes instants, unless its caller gives fewer: others wait meanwhile."""


class Forecasting:
    """Joins the counts of the store with the instants of rules."""

    def __init__(
        self,
        forecasts: Forecasts | None,
        calendars: ReadsCalendars,
        partitioning: ByLayout,
        computing: ComputesRules,
    ) -> None:
        self._forecasts = forecasts
        self._calendars = calendars
        self._partitioning = partitioning
        self._computing = computing

    async def of(self, topic: str, window: Window, *, within: float = LONGEST) -> Forecast:
        """Return what falls due in a topic. After `within` seconds of computing, occurrences are counted no
        further; `until` says how far they are. Raises `StoreRefused` where nobody knows, and `StoreError`."""
        if (forecasts := self._forecasts) is None:
            raise StoreRefused("this store makes no forecasts")
        found = await self._partitioning.begin(topic, lambda layout: forecasts.read(layout, window))
        if not found.recurrences:
            return replace(found, occurrences=[0] * window.intervals)
        names_some = any(each.recurrence.rule.calendars for each in found.recurrences)
        calendars = await self._calendars.read() if names_some else NO_CALENDARS
        return await self._computing.run(lambda: with_occurrences(found, window, calendars, within))


def with_occurrences(
    found: Forecast, window: Window, calendars: KnownCalendars, within: float = LONGEST
) -> Forecast:
    """Count the occurrences that the recurrences of a forecast will make, in the order in which they come,
    for `within` seconds at most."""
    began, end = monotonic(), found.since + window.horizon
    counts, unread, until = [0] * window.intervals, found.unread, min(end, found.until or end)
    ahead: list[tuple[int, int, bool, Iterator[_Coming]]] = []
    readable = (each for each in found.recurrences if not each.forgotten)
    rules = _Rules(calendars)
    for number, kept in enumerate(sorted(readable, key=_next)):
        if monotonic() - began > within / 2:  # the rest is for the instants of those that are compiled
            until = min(until, max(_next(kept), found.since))
            break
        coming = _coming(kept, found.since, rules)
        try:
            first = next(coming, None)
        except InvalidField:  # a rule of a newer version
            unread += 1
            continue
        if first is not None:
            ahead.append((first.due, number, first.is_made, coming))
    heapify(ahead)
    computed = 0
    while ahead and ahead[0][0] < until:
        due, number, is_made, coming = ahead[0]
        if computed == MOST_INSTANTS or monotonic() - began > within:
            until = due
            break
        computed += 1
        if is_made:
            counts[(due - found.since) // window.resolution] += 1
        following = next(coming, None)
        if following is None:
            heappop(ahead)
        else:
            heapreplace(ahead, (following.due, number, following.is_made, coming))
    return replace(found, occurrences=counts, unread=unread, until=until if until < end else None)


class _Rules:  # see 0138
    """The instants of rules. Many recurrences have the same rule: what one of them computes, all have."""

    def __init__(self, calendars: KnownCalendars) -> None:
        self.calendars = calendars
        self._computed: dict[tuple[Rule, int], Iterator[Nominal]] = {}

    def after(self, rule: Rule, instant: int) -> Iterator[Nominal]:
        """The instants of a rule behind this one. Raises `InvalidField`."""
        first = self._computed.get((rule, instant))
        if first is None:
            compiled = compile_rule(rule, calendars=self.calendars.named(rule.calendars))
            (first,) = tee(compiled.after(instant), 1)
            self._computed[rule, instant] = first
        return copy(first)


class _Coming(NamedTuple):
    """When an occurrence is due, or would be: `is_made` is false where the rule itself leaves it out."""

    due: int
    is_made: bool = True


def _next(kept: StoredRecurrence) -> int:
    return LATEST if kept.standing.next is None else kept.standing.next


def _coming(kept: StoredRecurrence, since: int, rules: _Rules) -> Iterator[_Coming]:
    """What a recurrence will make: first what would come now, if nobody has ticked since its instant; then by
    the rule, as if each occurrence ended before the next one comes. Raises `InvalidField`."""
    wanted, standing = kept.recurrence, kept.standing
    if standing.paused is not None or standing.next is None:
        return
    due = since
    while standing.next <= since:
        # A turn goes through the first ones of many instants only.
        made = turned(kept, since, rules.calendars)
        for each in made.occurrences:
            due = max(each.due, since)
            yield _Coming(due)
        standing = made.standing
        if standing.next is None:
            return
        yield _Coming(due, is_made=False)  # whoever asks can stop between two turns
        kept = replace(kept, standing=standing, stands=kept.stands or bool(made.occurrences))
    left = wanted.max_runs - standing.runs
    jitter = spread_of(wanted.recurrence_id, wanted.jitter)
    for nominal in rules.after(wanted.rule, max(standing.settled, since)):
        yield _Coming(nominal.instant + jitter, not nominal.left_out)
        left -= not nominal.left_out
        if wanted.max_runs and left <= 0:
            return
