"""From the times that a clock on the wall shows to instants.

Libraries say which wall times a rule has, in time without zones; here they become instants, by the rules of
docs/reference/recurrence-rules.md. So all kinds of rules treat gaps and overlaps alike.

Each wall time has two offsets (PEP 495): that of the clock before it is turned, and that of the clock after.
They are equal but for times in a gap, where the first is smaller, and times that come twice, where it is
larger.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from zoneinfo import ZoneInfo

from relay.core.instants import LATEST, SECOND
from relay.core.recurring.rule import EPOCH, Fold, Gap
from relay.rules.nominal import Nominal
from relay.rules.zones import offset_at, offset_of, turn

Walls = Callable[[datetime], Iterator[datetime]]  # see 0091
"""Yields the wall times of a rule, from a given one on (inclusive), ascending, without a zone."""

_REACH = 25 * 3600
"""Seconds: more than any zone has turned its clocks by since 1970."""

_DAY = 86_400

_END = LATEST // SECOND
"""The last second. A zone in the west has local times of the year 9999 that are behind it."""

_LAST = _END - _REACH
"""The last second whose local time is known in all zones."""


@dataclass(frozen=True, slots=True)
class UniversalInstants:
    """The instants of wall times in UTC."""

    walls: Walls

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        second = instant // SECOND + 1
        if second < _LAST:
            for wall in self.walls(EPOCH + timedelta(seconds=second)):
                yield Nominal(_seconds(wall) * SECOND, 0)


@dataclass(frozen=True, slots=True)
class ElapsedInstants:
    """The instants at which the wall shows one of the times: none for a time that the zone leaves out, two
    for one that comes twice. So a rule for every hour goes by elapsed time."""

    walls: Walls
    zone: ZoneInfo

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        second: int | None = instant // SECOND + 1
        while second is not None and second < _LAST:
            second = yield from self._until_turned_back(second)

    def _until_turned_back(self, second: int) -> Generator[Nominal, None, int | None]:
        """Yield the instants from `second` on, until the clock is turned back and times come again that are
        the rule's, or were in this pass before `second`: return the second at which that happens."""
        zone = self.zone
        now = offset_at(zone, second)
        start = _wall(second + now)
        later = offset_of(zone, start.replace(fold=1))
        turned = turn(zone, second, second + now - later) if later < now else None
        for wall in self.walls(start):
            local = _seconds(wall)
            offset, later = offset_of(zone, wall), offset_of(zone, wall.replace(fold=1))
            if offset < later:
                continue
            if offset > later and local - offset < second:
                offset = later
            if turned is not None and local - offset >= turned:
                return turned
            if local - offset > _END:
                return None
            if offset > later and turned is None:
                turned = turn(zone, local - offset, local - later)
            yield Nominal((local - offset) * SECOND, offset)
        return turned


@dataclass(frozen=True, slots=True)
class FixedInstants:
    """The instants of times of the day: one for each wall time, whatever the clock does, or both for one that
    comes twice and `Fold.BOTH`."""

    walls: Walls
    zone: ZoneInfo
    gap: Gap
    fold: Fold

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`.

        Wall times ascend, and their instants mostly do. Where clocks are turned they may not: a time that a
        gap has shifted comes behind those after the gap, and of two times that come twice both come once
        first. So instants wait until no later wall time can have an earlier one.
        """
        second = instant // SECOND + 1
        if second >= _LAST:
            return
        zone = self.zone
        waiting: list[_Candidate] = []
        for wall in self.walls(_earliest(zone, second)):
            offset, later = offset_of(zone, wall), offset_of(zone, wall.replace(fold=1))
            local = _seconds(wall)
            if offset == later and not waiting:
                if local - offset > _END:
                    return
                if local - offset >= second:
                    yield Nominal((local - offset) * SECOND, offset)
                continue
            yield from _settled(waiting, local - max(offset, later))
            for candidate in self._candidates(local, offset, later):
                if candidate[0] >= second:
                    heappush(waiting, candidate)
        yield from _settled(waiting, _END + 1)

    def _candidates(self, local: int, offset: int, later: int) -> Iterator[_Candidate]:
        if offset == later:
            yield local - offset, False, 0, offset
        elif offset < later:
            yield local - offset, self.gap is Gap.SKIP, later - offset, later
        else:
            if self.fold is not Fold.SECOND:
                yield local - offset, False, 0, offset
            if self.fold is not Fold.FIRST:
                yield local - later, False, 0, later


_Candidate = tuple[int, bool, int, int]
"""An instant that waits: its second, whether a gap leaves it out, its shift, its offset."""


def _settled(waiting: list[_Candidate], until: int) -> Iterator[Nominal]:
    """Take what is before the second `until`. A shifted time may be that of another: then it is one instant,
    and the one that fires, by its own time if there is one, stands for both."""
    last = None
    while waiting and waiting[0][0] < until:
        second, skipped, shift, offset = heappop(waiting)
        if second != last:
            last = second
            yield Nominal(second * SECOND, offset, "gap" if skipped else "", 0 if skipped else shift)


def _earliest(zone: ZoneInfo, second: int) -> datetime:
    """A wall time before which none has an instant at `second` or later. That is what the wall shows then, or
    an earlier time: behind a gap, whose times may be shifted beyond `second`, and in the first pass of an
    overlap, whose times come again."""
    now = offset_at(zone, second)
    earliest = now
    if (before := offset_at(zone, second - _REACH)) < now:
        earliest = min(earliest, offset_at(zone, second - (now - before)))
    if (ahead := offset_at(zone, second + _REACH)) < now:
        earliest = min(earliest, offset_at(zone, second + (now - ahead)))
    return _wall(second + earliest)


def _seconds(wall: datetime) -> int:
    since = wall - EPOCH
    return since.days * _DAY + since.seconds


def _wall(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)
