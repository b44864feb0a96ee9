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
            kept, due, moves = _fold(groups)
            start = 0
            for group in groups:
                mine = slice(start, start + len(group))
                start += len(group)
                if kept[mine].any():
                    own = None if moves is None else moves[mine]
                    yield replace(group, due=due[mine], moves=own).where(kept[mine])


def _fold(groups: Sequence[Group]) -> tuple[_Places, _Places, _Places | None]:
    """Return which of the rows are kept, and the due time of each; and, if they have versions, that of the
    row that moves it, or -1.

    The rows are taken in the order of their versions, or as they came. One that schedules or cancels makes
    those before it void. A move changes the due time of what was scheduled before it, and nothing if that was
    cancelled; without such a row it stays a move. Redis may have seen a version between that of a row and
    that of the move behind it, so it gets both.
    """
    ids = pa.concat_arrays([group.timer_ids for group in groups])
    codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    due = np.concatenate([group.due for group in groups])
    ops = np.concatenate(
        [np.full(len(group), SCHEDULE, np.uint8) if group.ops is None else group.ops for group in groups]
    )
    told = [group.versions for group in groups if group.versions is not None]
    versions = np.concatenate(told) if told else None
    order = np.arange(len(codes)) if versions is None else np.argsort(versions, kind="stable")
    moves = ops == MOVE
    based, moved = _last(codes, ~moves, order), _last(codes, moves, order)
    rank = np.empty(len(codes) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(codes)), -1
    behind = rank[moved] > rank[based]
    later = behind & (based >= 0)
    if versions is None:
        later[later] = ops[based[later]] == SCHEDULE
    due[based[later]] = due[moved[later]]
    kept = np.zeros(len(codes), dtype=bool)
    kept[based[based >= 0]] = True
    kept[moved[behind & (based < 0)]] = True
    if versions is None:
        return kept, due, None
    later_moves = np.full(len(codes), -1, dtype=np.int64)
    later_moves[based[later]] = versions[moved[later]]
    return kept, due, later_moves


def _last(codes: _Places, among: _Places, order: _Places) -> _Places:
    """Return the place of each timer's last row among these; -1 if it has none."""
    last = np.full(int(codes.max(initial=-1)) + 1, -1)
    ranked = order[among[order]]
    np.maximum.at(last, codes[ranked], np.arange(len(ranked)))
    return np.where(last < 0, -1, ranked[last] if len(ranked) else -1)
