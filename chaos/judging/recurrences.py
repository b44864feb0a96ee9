"""Whether each nominal instant of each recurrence came, and none as two occurrences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    """Whether nobody knew the recurrence when it was to end, and a loss explains that."""

    @property
    def missing(self) -> list[int]:
        """Those that no handler has acknowledged."""
        return sorted(set(self.wanted) - self.handled)

    @property
    def lost(self) -> int:
        return len(self.missing)


def instants(
    recurrences: Mapping[str, Sequence[Call]], found: Iterable[Delivery], losses: Losses
) -> list[Instants]:
    """One entry for each recurrence."""
    seen: dict[str, dict[int, list[Delivery]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        name, _, when = each.id.partition("@")
        if name in recurrences:
            seen[name][round(datetime.fromisoformat(when).timestamp())].append(each)
    return [_of_one(calls, seen[name], losses) for name, calls in recurrences.items()]


def _of_one(calls: Sequence[Call], seen: Mapping[int, list[Delivery]], losses: Losses) -> Instants:
    put = calls[0]
    if put.open or put.next is None:
        return Instants((), frozenset(), 0)
    first = min([round(put.next), *seen])
    forgotten = calls[-1].unknown and losses.explain(put.acknowledged)
    last = max(seen, default=first - EVERY)
    end = last + EVERY if forgotten else _end(calls[-1], max(first, last) + EVERY)
    handled = frozenset(
        instant for instant, found in seen.items() if any(each.outcome == "ack" for each in found)
    )
    double = sum(
        earlier.occurrence != later.occurrence and not losses.between(earlier.begins, later.begins)
        for found in seen.values()
        for earlier, later in pairwise(found)
    )
    return Instants(range(first, end, EVERY), handled, double, forgotten)


def _end(pause: Call, otherwise: int) -> int:
    """The first instant that is not wanted any more. Of a recurrence that nobody knows when it is to end, all
    have to come until then."""
    if pause.what == "pause" and pause.unknown:
        return max(int(pause.wall) - LATE, otherwise)
    if pause.what != "pause" or pause.next is None:
        return otherwise
    if pause.acknowledged - pause.tries[0] < QUICK:
        return round(pause.next)
    return min(round(pause.next), int(pause.wall) - LATE)
