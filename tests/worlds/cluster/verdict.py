"""What callers asked for, held against what handlers saw and what is left, where failovers undo changes.

Nothing of Relay's own is believed here: not its journal, and not what it says of itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from relay.core.instants import SECOND
from tests.asked_for import AskedFor
from tests.worlds.cluster.failovers import Held, Undone

if TYPE_CHECKING:
    from tests.worlds.relay.processes import Event

Saw = tuple[str, int]
"""A timer, and the due time that it was delivered with (microseconds)."""

LATE_ANSWER = 2.0
"""Seconds after a master's death in which a caller may still hear its answer: a try takes no longer than one,
and the next one finds no master for longer than that."""


@dataclass(frozen=True)
class Verdict:
    """`asked` are all calls, each answered, and no two with the same due time of one timer; `events` those of
    the handlers; `undone` what failovers have undone; `left` the timers that are still there; `retired` the
    keys of partitions that are not in use any more."""

    asked: Sequence[AskedFor]
    events: Sequence[Event]
    undone: Sequence[Undone] = ()
    left: Mapping[Held, int] = field(default_factory=dict)
    retired: Collection[str] = ()

    @cached_property
    def calls(self) -> Mapping[str, list[AskedFor]]:
        """The calls about each timer, in their order."""
        found: dict[str, list[AskedFor]] = defaultdict(list)
        for each in sorted(self.asked, key=lambda each: each.began):
            found[each.timer_id].append(each)
        return found

    @cached_property
    def missing(self) -> set[str]:
        """Timers that are to be delivered by the last call about them, and were not."""
        ended = {(event.timer_id, due_of(event)) for event in self.events if event.event == "end"}
        last = [calls[-1] for calls in self.calls.values()]
        return {each.timer_id for each in last if not each.cancels and (each.timer_id, each.due) not in ended}

    @cached_property
    def lost(self) -> set[str]:
        """Those of the missing ones whose last call was not undone by a failover after it."""
        return {name for name in self.missing if not self._was_lost(self.calls[name][-1])}

    @cached_property
    def early(self) -> list[Event]:
        """Deliveries before their due time."""
        return [event for event in self._starts if event.late < 0]

    @cached_property
    def overtaken(self) -> Mapping[Saw, float]:
        """What was delivered, or is left, though a later call about the timer was answered before that due
        time, or though nobody had asked for that due time; and when first."""
        saw = {(timer_id, due): math.inf for (_, timer_id), due in self.left.items()}
        for event in self._starts:
            this = event.timer_id, due_of(event)
            saw[this] = min(saw.get(this, math.inf), event.at)
        return {each: at for each, at in saw.items() if self._is_overtaken(*each)}

    @cached_property
    def ghosts(self) -> set[Saw]:
        """Those of the overtaken ones that no failover has brought back before."""
        return {
            (timer_id, due)
            for (timer_id, due), at in self.overtaken.items()
            if not any(each.had != due == each.has and each.at <= at for each in self._undone_of[timer_id])
        }

    @property
    def is_over(self) -> bool:
        """Whether nothing is on its way any more: what is left was brought back by failovers."""
        left = {(held[1], due) for held, due in self.left.items() if held not in self.stranded}
        return not self.lost and left <= self.overtaken.keys()

    @cached_property
    def stranded(self) -> set[Held]:
        """What failovers have brought back to where nobody takes it: a move had emptied the partition, and
        was over."""
        return {
            held
            for held, due in self.left.items()
            if held[0] in self.retired
            and any(each.had != due == each.has for each in self._undone_of[held[1]])
        }

    @property
    def twice(self) -> int:
        """How many deliveries came to their end more than once, which is allowed."""
        ends = [(event.timer_id, due_of(event)) for event in self.events if event.event == "end"]
        return len(ends) - len(set(ends))

    @property
    def _starts(self) -> Iterable[Event]:
        return (event for event in self.events if event.event == "start")

    def _was_lost(self, call: AskedFor) -> bool:
        return any(
            each.had == call.due != each.has and call.ended <= each.at + LATE_ANSWER
            for each in self._undone_of[call.timer_id]
        )

    @cached_property
    def _undone_of(self) -> Mapping[str, list[Undone]]:
        found: dict[str, list[Undone]] = defaultdict(list)
        for each in self.undone:
            found[each.timer_id].append(each)
        return found

    def _is_overtaken(self, timer_id: str, due: int) -> bool:
        calls = self.calls.get(timer_id, [])
        number = next((n for n, each in enumerate(calls) if each.due == due), None)
        if number is None:
            return True
        return any(each.ended < due / SECOND for each in calls[number + 1 :])

    def __str__(self) -> str:
        few = [*sorted(self.lost)[:3], *self.early[:3], *sorted(self.ghosts)[:3]]
        told = (
            f"{len(self.calls)} timers, {len(self.asked)} calls",
            f"lost {len(self.lost)}, and by failovers {len(self.missing) - len(self.lost)}",
            f"early {len(self.early)}",
            f"undone {len(self.ghosts)}, and by failovers {len(self.overtaken) - len(self.ghosts)}",
            f"{len(self.undone)} changes undone by failovers",
            f"{self.twice} handled twice",
            f"{len(self.left)} left, of them {len(self.stranded)} in partitions that are not in use",
        )
        stories = [f"{name}: {self.calls[name]}, {self._undone_of[name]}" for name in self._odd[:3]]
        return "; ".join([*told, *map(str, few), *stories])

    @property
    def _odd(self) -> Sequence[str]:
        """The timers of which something is to be explained."""
        return sorted({*self.lost, *(timer_id for timer_id, _ in self.ghosts)} & self.calls.keys())


def due_of(event: Event) -> int:
    """A delivery's due time in microseconds."""
    return round(event.due * SECOND)
