"""Rows of a load or a stream in Redis: `lua/bulk/apply.lua` does with each timer what its row says, once a
batch, and keeps the ledger of the newest batch.

The script's header says what it promises, and which races it closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from relay.core.errors import StoreRefused
from relay.core.instants import SECOND
from relay.core.partitions import Layout, layout_of
from relay.store.bulk.columns_call import Elsewhere, PackedRows
from relay.store.bulk.inserting import KEPT, RunLedger, by_number, ledger_name, parts_of
from relay.store.bulk.store import BulkStore
from relay.store.server.scripts import Argument
from relay.store.verbs import bulk

BATCH = b"\1"
"""The ledger's field with the number of its batch."""


class StaleBatch(StoreRefused):
    """A newer batch of the stream has been written to this topic; nothing more of this one is."""


REMEMBERED = 7 * 86_400 * SECOND
"""Microseconds for which the version of a timer's row is known, unless a load says otherwise."""


class Applied(NamedTuple):
    """The numbers of timers that were scheduled, of those that were there and were cancelled or moved, of
    those that the ledger had, and of those whose rows came too late."""

    scheduled: int = 0
    cancelled: int = 0
    moved: int = 0
    known: int = 0
    late: int = 0


class Applying:  # see 0105
    """Does what the rows of one batch say over a `BulkStore`'s connections, with `AHEAD` calls under way.

    `run` is the stream's or the load's, and the number of a later `batch` is higher. With None there is no
    ledger. `remember` (microseconds) is for how long versions are known.
    """

    def __init__(self, store: BulkStore, run: str, batch: int | None, *, remember: int = REMEMBERED) -> None:
        self._remember = remember
        self._store = store
        self._run = run
        self._batch = batch
        self.done = Applied()
        """The counts of all calls whose replies have come."""

    def apply(self, partition: str, rows: PackedRows, elsewhere: Elsewhere | None = None) -> None:
        """Apply rows that have each timer once. `flush` of the store waits until that is done. `elsewhere` is
        that of `UnderWay.send`. Raises `StaleBatch` and `StoreError`."""
        more = self._remember, rows.versions, rows.moves
        call = bulk.apply(partition, self._run, KEPT, self._batch, rows.ops, rows.expires, *more)
        self._store.send(call, rows, self._count, elsewhere)

    def _count(self, answer: Any) -> None:
        word, *counts = answer
        if word == b"STALE":
            _stale(self._run, self._batch, int(counts[0]))
        self.done = Applied(*(mine + theirs for mine, theirs in zip(self.done, counts, strict=True)))


class BatchLedger(RunLedger):
    """What one batch of a stream has decided on. A partition's ledger is that of its newest batch, so the
    numbers of partitions by which the stream has worked are noted apart from it."""

    def __init__(self, store: BulkStore, run: str, batch: int) -> None:
        super().__init__(store, run)
        self._batch = batch

    def _counts_key(self, partition: str) -> str:
        return self._store.server.keys.key("ledger", partition, run=f"{self._run}~counts")

    def _look(self, key: str, names: Sequence[bytes]) -> Sequence[Argument]:
        return ("HMGET", key, BATCH, *names)

    def _told(self, reply: Sequence[Any]) -> Sequence[bool]:
        """The race: a task of a driver that was killed comes to a topic that has moved since, and whose old
        partition has a newer batch. What the task would have to leave alone is not known any more, so it is
        refused as if it had come to the old partition."""
        newest, *entries = reply
        batch = -1 if newest is None else int(newest)
        if batch > self._batch:
            _stale(self._run, self._batch, batch)
        return [batch == self._batch and each is not None for each in entries]


class VersionsElsewhere(RunLedger):
    """The versions that are known in partitions which the topic had before. What is read there stays true, as
    with a run's ledger."""

    def __init__(self, store: BulkStore) -> None:
        super().__init__(store, "~versions")

    def _key(self, partition: str) -> str:
        return self._store.server.keys.key("odd", partition)  # the first that is written

    def _counts_key(self, partition: str) -> str:
        return self._store.server.keys.key("ledger", partition, run=self._run)

    def of(self, partition: str, ids_of: Callable[[], Sequence[bytes]]) -> list[bytes] | None:
        """The newest version of each of a partition's timers, empty for none; None if the topic had no other
        partitions."""
        layout = layout_of(partition)
        counts = self._before(layout, note=True)
        if not counts:
            return None
        self._store.flush()
        timer_ids, keys = ids_of(), self._store.server.keys
        newest = [b""] * len(timer_ids)
        for count in counts:
            names = Layout(layout.topic, layout.epoch, count).partitions
            for number, some in by_number(count, timer_ids).items():
                if self._key(names[number]) == self._key(partition):
                    continue
                for part in parts_of(some):
                    entries = [ledger_name(timer_ids[n]) for n in part]
                    hashes = [keys.key(name, names[number]) for name in ("even", "odd")]
                    for told in self._store.server.ask_each([("HMGET", key, *entries) for key in hashes]):
                        for n, version in zip(part, told, strict=True):
                            newest[n] = max(newest[n], version or b"")
        return newest


def _stale(run: str, batch: int | None, newest: int) -> NoReturn:
    raise StaleBatch(
        f"batch {batch} of the stream {run} comes behind batch {newest}: another driver has gone on with the "
        "stream, or its checkpoint was put back to an older state; begin with a new checkpoint then"
    )
