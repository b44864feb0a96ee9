"""Gathers the rows of a task, and makes one of those that a timer has.

The ledger of a batch has timers and no rows. If two rows of one timer went to Redis in two calls, the second
would be taken for a row that has been written before. And a stream that begins with a long history would
insert what a later row of the same batch replaces or cancels, and relays would deliver it in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from relay.pipeline.rows.packing import MOVE, SCHEDULE, Group

_Places = np.ndarray[Any, Any]


class Gathered:
    """Holds all rows of a task, without joining them: that would copy all that is held."""

    def __init__(self) -> None:
        self._held: dict[str, list[Group]] = {}

    def put(self, group: Group) -> None:
        """Take rows of a topic, which come behind those before."""
        self._held.setdefault(group.topic, []).append(group)

    def folded(self) -> Iterator[Group]:
        """Yield one row of each timer, which does what all of its rows do in their order; they are not held
        any more."""
        while self._held:
            _, groups = self._held.popitem()
            kept, due = _fold(groups)
            start = 0
            for group in groups:
                mine = slice(start, start + len(group))
                start += len(group)
                if kept[mine].any():
                    yield replace(group, due=due[mine]).where(kept[mine])


def _fold(groups: Sequence[Group]) -> tuple[_Places, _Places]:
    """Return which of the rows are kept, and the due time of each.

    A row that schedules or cancels makes those before it void. A move changes the due time of what was
    scheduled before it, and nothing if that was cancelled; without such a row it stays a move.
    """
    ids = pa.concat_arrays([group.timer_ids for group in groups])
    codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    due = np.concatenate([group.due for group in groups])
    ops = np.concatenate(
        [np.full(len(group), SCHEDULE, np.uint8) if group.ops is None else group.ops for group in groups]
    )
    moves = ops == MOVE
    based, moved = _last(codes, ~moves), _last(codes, moves)
    behind = moved > based
    later = behind & (based >= 0)
    later[later] = ops[based[later]] == SCHEDULE
    due[based[later]] = due[moved[later]]
    kept = np.zeros(len(codes), dtype=bool)
    kept[based[based >= 0]] = True
    kept[moved[behind & (based < 0)]] = True
    return kept, due


def _last(codes: _Places, among: _Places) -> _Places:
    """Return the place of each timer's last row among these; -1 if it has none."""
    places = np.full(int(codes.max(initial=-1)) + 1, -1)
    np.maximum.at(places, codes[among], np.flatnonzero(among))
    return places
