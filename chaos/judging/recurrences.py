"""Whether each nominal instant of each recurrence came, and none as two occurrences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from chaos.judging.calls import Call
from chaos.judging.deliveries import Delivery
from chaos.judging.losses import Losses

EVERY = 1
"""Seconds from one nominal instant to the next."""
QUICK = 1.0
"""Seconds within which a pause is answered that took one try alone. After that an earlier try may have acted,
and the answer tells the next instant as of the last one."""
LATE = 5
"""Seconds by which an instant may be late that came before the pause."""


@dataclass(frozen=True)
class Instants:
    """Those of one recurrence, in unix seconds."""

    wanted: Sequence[int]
    handled: frozenset[int]
    double: int
    """How many came as two occurrences, and were not brought back by a loss."""
    forgotten: bool = False
    """Whether the recurrence was gone when it was to end, and a loss explains that."""

    @property
    def missing(self) -> list[int]:
        """Those that no handler has acknowledged."""
        return sorted(set(self.wanted) - self.handled)

    @property
    def lost(self) -> int:
        return len(self.missing)


def instants(
    recurrences: Mapping[str, Sequence[Call]],
    found: Iterable[Delivery],
    losses: Losses,
    claimed: Callable[[Delivery], float],
) -> list[Instants]:
    """One entry for each recurrence. `claimed`: when a delivery was (monotonic seconds)."""
    seen: dict[str, dict[int, list[Delivery]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        name, _, when = each.id.partition("@")
        if name in recurrences:
            seen[name][round(datetime.fromisoformat(when).timestamp())].append(each)
    for of_one in seen.values():
        for its in of_one.values():
            its.sort(key=claimed)  # an older one may begin later
    return [_of_one(calls, seen[name], losses, claimed) for name, calls in recurrences.items()]


def _of_one(
    calls: Sequence[Call],
    seen: Mapping[int, list[Delivery]],
    losses: Losses,
    claimed: Callable[[Delivery], float],
) -> Instants:
    put, pause = calls[0], calls[-1]
    gone = pause.what == "pause" and not pause.open and pause.next is None
    forgotten = gone and losses.explain(put.acknowledged)
    if put.open or put.next is None or forgotten:
        return Instants((), frozenset(), 0, forgotten)
    first = min([round(put.next), *seen])
    end = _end(pause, max(seen, default=first) + EVERY)
    handled = frozenset(
        instant for instant, found in seen.items() if any(each.outcome == "ack" for each in found)
    )
    double = sum(
        earlier.occurrence != later.occurrence and not losses.between(claimed(earlier), claimed(later))
        for found in seen.values()
        for earlier, later in pairwise(found)
    )
    return Instants(range(first, end, EVERY), handled, double)


def _end(pause: Call, otherwise: int) -> int:
    """The first instant that is not wanted any more."""
    if pause.what != "pause" or pause.open:
        return otherwise
    if pause.next is None:
        return int(pause.wall) - LATE
    if pause.acknowledged - pause.tries[0] < QUICK:
        return round(pause.next)
    return min(round(pause.next), int(pause.wall) - LATE)
