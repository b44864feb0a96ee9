"""From the times that a clock on the wall shows to instants.

Libraries say which wall times a rule has, in time without zones; here they become instants, by the rules of
docs/reference/recurrence-rules.md. So all kinds of rules treat gaps and overlaps alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from heapq import heappop, heappush
from zoneinfo import ZoneInfo

from relay.core.instants import LATEST, SECOND
from relay.core.recurring.rule import EPOCH, Fold, Gap
from relay.rules.nominal import Nominal

Walls = Callable[[datetime], Iterator[datetime]]
"""Yields the wall times of a rule, from a given one on (inclusive), ascending, without a zone."""

_REACH = 25 * 3600
"""Seconds: more than any zone has ever turned its clocks by."""

_DAY = 86_400

_Candidate = tuple[int, bool, int, int]
"""A nominal instant that waits: its second, whether a gap leaves it out, its shift, its offset."""


class WallInstants:
    """The instants of wall times, in a zone.

    `elapsed`: the rule goes by elapsed time. It fires whenever the wall shows one of its times: not at all
    for a time that the zone leaves out, and twice for one that comes twice. `gap` and `fold` then change
    nothing.
    """

    def __init__(self, walls: Walls, zone: ZoneInfo | None, gap: Gap, fold: Fold, *, elapsed: bool) -> None:
        self._walls = walls
        self._zone = zone
        self._first = elapsed or fold is not Fold.SECOND
        self._second = elapsed or fold is not Fold.FIRST
        self._elapsed = elapsed
        self._skips = gap is Gap.SKIP

    def after(self, instant: int) -> Iterator[Nominal]:
        """See `Instants.after`."""
        if instant >= LATEST:
            return
        second = instant // SECOND + 1
        if self._zone is None:
            for wall in self._walls(EPOCH + timedelta(seconds=second)):
                yield Nominal(_seconds(wall) * SECOND, 0)
        else:
            yield from self._in_zone(self._zone, second)

    def _in_zone(self, zone: ZoneInfo, second: int) -> Iterator[Nominal]:
        """Those at `second` or later.

        Wall times ascend, and their instants mostly do. Where clocks are turned they may not: a time that a
        gap has shifted comes behind those after the gap, and of two times that come twice both come once
        first. So instants wait until no later wall time can have an earlier one.
        """
        waiting: list[_Candidate] = []
        for wall in self._walls(_earliest(zone, second)):
            offset, later = _offset(zone, wall), _offset(zone, wall.replace(fold=1))
            local = _seconds(wall)
            if offset == later and not waiting:
                if local - offset >= second:
                    yield Nominal((local - offset) * SECOND, offset)
                continue
            yield from _settled(waiting, local - max(offset, later))
            for candidate in self._candidates(local, offset, later):
                if candidate[0] >= second:
                    heappush(waiting, candidate)
        yield from _settled(waiting, LATEST)

    def _candidates(self, local: int, offset: int, later: int) -> Iterator[_Candidate]:
        """What becomes of a wall time whose offset is `offset` by the clock before it is turned, and `later`
        by the one after."""
        if offset == later:
            yield local - offset, False, 0, offset
        elif offset < later:
            if not self._elapsed:
                yield local - offset, self._skips, later - offset, later
        else:
            if self._first:
                yield local - offset, False, 0, offset
            if self._second:
                yield local - later, False, 0, later


def _settled(waiting: list[_Candidate], until: int) -> Iterator[Nominal]:
    """Take what is before the second `until`. A shifted time may be that of another: then it is one instant,
    and the one that fires, by its own time, stands for both."""
    last = None
    while waiting and waiting[0][0] < until:
        second, skipped, shift, offset = heappop(waiting)
        if second != last:
            last = second
            yield (
                Nominal(second * SECOND, offset, "gap", 0)
                if skipped
                else Nominal(second * SECOND, offset, "", shift)
            )


def _earliest(zone: ZoneInfo, second: int) -> datetime:
    """A wall time before which none has an instant at `second` or later."""
    around = (second - _REACH, second, second + _REACH)
    return EPOCH + timedelta(seconds=second + min(_offset_at(zone, each) for each in around))


def _offset_at(zone: ZoneInfo, second: int) -> int:
    return _offset(zone, datetime.fromtimestamp(second, zone))


def _offset(zone: ZoneInfo, wall: datetime) -> int:
    offset = zone.utcoffset(wall)
    assert offset is not None
    return offset.days * _DAY + offset.seconds


def _seconds(wall: datetime) -> int:
    since = wall - EPOCH
    return since.days * _DAY + since.seconds
