"""What an audit knows of each partition of a topic, and of the timers that are on their way between two.

Each partition has a journal of its own, in an order of its own. What is known of a timer goes from one to the
other by hand-overs alone: the clocks of two nodes differ, so their entries may be read in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relay.core.audit.state import Living
from relay.core.journal import HandOver, JournalRecord


@dataclass(frozen=True, slots=True)
class Held:
    """A record that waits for one of another partition, with its entry, its instant, and the number of gaps
    before it."""

    entry: str
    now: int
    epoch: int
    record: JournalRecord


@dataclass(slots=True)
class Place:
    """One partition; the only one of a topic without a layout is number 0."""

    number: int = 0
    living: dict[str, Living] = field(default_factory=dict)
    epoch: int = 0
    """The number of gaps so far. What is known from before a gap may be wrong."""
    passed: tuple[int, int] = (0, 0)
    """The rank of the last hand-over that has left."""
    held: dict[str, list[Held]] = field(default_factory=dict)
    """The records of timers that have arrived by a hand-over of which no departure was read yet."""


@dataclass(slots=True)
class OnWay:
    """A timer that has left one partition and has not arrived in another yet. Its `epoch` is that of the one
    that it has left."""

    hand_over: HandOver
    timer: Living


class AuditedPartitions:
    """All partitions of a topic, and what is on its way between them."""

    def __init__(self) -> None:
        self.all: dict[int, Place] = {}
        self.on_way: dict[str, dict[str, OnWay]] = {}
        """By hand-over and timer."""
        self.awaited: dict[int, dict[str, set[str]]] = {}
        """The hand-overs of each partition of which arrivals were read, and no departures; and the timers."""

    def at(self, number: int) -> Place:
        """A partition."""
        place = self.all.get(number)
        if place is None:
            place = self.all[number] = Place(number)
        return place

    def clear(self) -> None:
        """Forget everything."""
        self.all.clear()
        self.on_way.clear()
        self.awaited.clear()

    def depart(self, hand_over: str, timer_id: str, timer: Living) -> None:
        """Note that a timer has left."""
        on_way = OnWay(HandOver.parse(hand_over), timer)
        self.on_way.setdefault(hand_over, {})[timer_id] = on_way

    def taken(self, hand_over: str, timer_id: str) -> Living | None:
        """Take a timer that is on its way; None if it is not known to be."""
        batch = self.on_way.get(hand_over, {})
        found = batch.pop(timer_id, None)
        if found is None:
            return None
        if not batch:
            del self.on_way[hand_over]
        return found.timer
