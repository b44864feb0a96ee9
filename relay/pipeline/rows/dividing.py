"""Divides a load's rows among the partitions of their topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from relay.core.partitions import Layout
from relay.pipeline.rows.packing import Group, Parts, pack_group
from relay.store.bulk.columns_call import Elsewhere, PackedRows
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BATCH, BulkStore

HELD = 32 << 20
"""Bytes of rows, roughly, that wait for more of their topic. Beyond, each of many partitions gets small
batches."""


class WriteBatch(Protocol):
    """Writes a batch into a partition; `elsewhere` is that of `UnderWay.send`."""

    def __call__(self, partition: str, rows: PackedRows, elsewhere: Elsewhere) -> None: ...


Decided = Callable[[str, Group], Sequence[bool] | None]
"""Which timers of a partition are to be left out; None means none."""


class Divided:  # see 0089
    """Gives each partition its rows by `write`, in batches that are as large as calls may be.

    With a `rate` each batch waits for its turn. Where several rows of a timer come together, the `last` one
    stays, or else the first. What is `decided` is left out.

    A batch is made by the topic's layout. If the topic has got another one, its partition refuses it, and all
    batches that come behind it; their rows are divided again, before any others. So the rows of a timer keep
    their order, and what was answered is never sent again.
    """

    def __init__(
        self,
        store: BulkStore,
        write: WriteBatch,
        rate: float | None,
        *,
        last: bool,
        decided: Decided = lambda _partition, _group: None,
    ) -> None:
        self._store = store
        self._write = write
        self._pace = Pace(store, rate) if rate else None
        self._last = last
        self._decided = decided
        self._held: dict[str, list[Group]] = {}
        self._refused: list[Group] = []

    def put(self, group: Group) -> None:
        """Take rows of a topic. Raises `StoreError`, and `InvalidField` for a topic that moves for too
        long."""
        held = self._held.setdefault(group.topic, [])
        held.append(group)
        count = self._store.at_rest(group.topic).count
        if count == 1 or sum(map(len, held)) >= count * BATCH or self._size() >= HELD:
            self._let_go(group.topic)

    def finish(self) -> None:
        """Write all that is held, and wait until all is written. Raises as `put` does."""
        for topic in list(self._held):
            self._let_go(topic)
        self._begin_again()

    def _size(self) -> int:
        return sum(group.size for held in self._held.values() for group in held)

    def _let_go(self, topic: str) -> None:
        if self._refused:
            self._begin_again()
        self._divide(self._held.pop(topic))

    def _begin_again(self) -> None:
        """Wait for all that is under way, and divide again what was refused."""
        self._store.flush()
        while self._refused:
            refused, self._refused = self._refused, []
            for topic in dict.fromkeys(group.topic for group in refused):
                self._divide([group for group in refused if group.topic == topic])
            self._store.flush()

    def _divide(self, groups: Sequence[Group]) -> None:
        layout = self._store.at_rest(groups[0].topic)
        group, parts = Group.joined(groups).distinct(last=self._last).divided(layout.count)
        group, parts = self._undecided(layout, group, parts)
        start = 0
        for rows in pack_group(group, self._pace.batch if self._pace else BATCH, parts):
            if self._pace:
                self._pace.turn(rows.size)
            part = group.cut(start, start + rows.size)
            self._write(layout.partitions[rows.partition], rows, partial(self._is_elsewhere, part))
            start += rows.size

    def _undecided(self, layout: Layout, group: Group, parts: Parts) -> tuple[Group, Parts]:
        kept, left, start = np.ones(len(group), dtype=bool), [], 0
        for number, size in parts:
            decided = self._decided(layout.partitions[number], group.cut(start, start + size))
            if decided is not None:
                kept[start : start + size] = ~np.array(decided, dtype=bool)
            left.append((number, int(kept[start : start + size].sum())))
            start += size
        return group.where(kept), left

    def _is_elsewhere(self, group: Group, layout: str) -> None:
        self._store.layouts.learn(group.topic, layout)
        self._refused.append(group)
