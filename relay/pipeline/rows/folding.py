"""Gathers the rows of a task, and makes one of those that a timer has.

The ledger of a batch has timers and no rows. If two rows of one timer went to Redis in two calls, the second
would be taken for a row that has been written before. And a stream that begins with a long history would
insert what a later row of the same batch replaces, and relays would deliver it in between.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from relay.pipeline.rows.packing import Group


class Gathered:
    """Holds all rows of a task, without joining them: that would copy all that is held."""

    def __init__(self) -> None:
        self._held: dict[str, list[Group]] = {}

    def put(self, group: Group) -> None:
        """Take rows of a topic, which come behind those before."""
        self._held.setdefault(group.topic, []).append(group)

    def folded(self) -> Iterator[Group]:
        """Yield the last row of each timer, in the order of these rows; they are not held any more."""
        while self._held:
            _, groups = self._held.popitem()
            ids = pa.concat_arrays([group.timer_ids for group in groups])
            codes = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
            kept = np.zeros(len(codes), dtype=bool)
            kept[len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]] = True
            start = 0
            for group in groups:
                mine = kept[start : start + len(group)]
                start += len(group)
                if mine.any():
                    yield group.where(mine)
