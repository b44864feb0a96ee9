"""A load's run in Redis: `lua/bulk/insert.lua` inserts each timer once and keeps the run's ledger.

The script's header says what it promises, and which races it closes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from relay.store.bulk.columns_call import PackedRows
from relay.store.bulk.store import BATCH, BulkStore
from relay.store.verbs import bulk

KEPT = 7 * 86_400
"""Seconds for which a ledger is kept after the last batch of its run."""

LONGEST = 64
"""The most bytes of an id that a ledger holds unchanged."""

TOLD = b"\1"
"""Stands in the ledger before a timer of which the cold store was told. No id has control characters."""


class Inserted(NamedTuple):
    """The numbers of a run's timers that were inserted, were in its ledger, and existed and were spared."""

    inserted: int = 0
    known: int = 0
    alive: int = 0


class Inserting:  # see 0070
    """Inserts the timers of one run over a `BulkStore`'s connections, with `AHEAD` batches under way.

    With `spare` an existing timer stays as it is; otherwise it is replaced.
    """

    def __init__(self, store: BulkStore, run: str, *, spare: bool = False) -> None:
        self._store = store
        self._run = run
        self._spare = spare
        self.done = Inserted()
        """The counts of all batches whose replies have come."""

    def insert(self, topic: str, rows: PackedRows) -> None:
        """Insert a batch that has each timer once. `flush` waits until it is done. Raises `StoreError`."""
        call = bulk.insert(topic, self._run, KEPT, self._spare, rows.expires)
        self._store.send(call, rows, self._count)

    def flush(self) -> None:
        """Wait for all that is under way. Raises `StoreError`."""
        self._store.flush()

    def _count(self, answer: Any) -> None:
        self.done = Inserted(*(mine + theirs for mine, theirs in zip(self.done, answer, strict=True)))


# ------------------------------------------------------------------------------------- without a write


def foreseen(store: BulkStore, topic: str, run: str, timer_ids: Sequence[bytes], *, spare: bool) -> Inserted:
    """What `Inserting` would make of these timers now, by reads alone; raises `StoreError`."""
    ledger, (timeline, *_) = store.server.keys.key("ledger", topic, run=run), store.server.keys.of(topic)
    known = alive = 0
    for start in range(0, len(timer_ids), BATCH):
        part = timer_ids[start : start + BATCH]
        told = store.server.ask("SMISMEMBER", ledger, *map(_name, part))
        known += sum(told)
        if spare:
            scores = store.server.ask("ZMSCORE", timeline, *part)
            alive += sum(not was and score is not None for was, score in zip(told, scores, strict=True))
    return Inserted(len(timer_ids) - known - alive, known, alive)


# ------------------------------------------------------------------------ what the cold store was told


def is_told(store: BulkStore, topic: str, run: str, timer_ids: Sequence[bytes]) -> list[bool]:
    """Return for each timer whether this run has told the cold store of it. Raises `StoreError`."""
    key = store.server.keys.key("ledger", topic, run=run)
    found: list[bool] = []
    for start in range(0, len(timer_ids), BATCH):
        names = (TOLD + _name(each) for each in timer_ids[start : start + BATCH])
        found += map(bool, store.server.ask("SMISMEMBER", key, *names))
    return found


def note_told(store: BulkStore, topic: str, run: str, timer_ids: Sequence[bytes]) -> None:
    """This run has stored these timers in the cold store, or superseded what rested there of them: it neither
    does so again nor inserts them. Raises `StoreError`."""
    key = store.server.keys.key("ledger", topic, run=run)
    for start in range(0, len(timer_ids), BATCH):
        names = [_name(each) for each in timer_ids[start : start + BATCH]]
        store.server.ask("SADD", key, *names, *(TOLD + each for each in names))
        store.server.ask("EXPIRE", key, KEPT)


def _name(timer_id: bytes) -> bytes:
    """What a ledger has for a timer, as `lua/bulk/insert.lua` writes it."""
    if len(timer_id) <= LONGEST:
        return timer_id
    return b"\0" + hashlib.sha1(timer_id, usedforsecurity=False).hexdigest().encode()
