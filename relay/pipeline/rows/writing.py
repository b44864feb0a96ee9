"""The work of a worker on its part of a load: check, encode, and write at the wanted rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from relay.core.errors import InvalidField, StoreError, StoreUnavailable
from relay.core.timers import REPLACE, OnConflict
from relay.pipeline.rows.dividing import Divided
from relay.pipeline.rows.folding import Gathered
from relay.pipeline.rows.new_timers import check
from relay.pipeline.rows.packing import Group
from relay.pipeline.rows.reading import Reading
from relay.pipeline.rows.sealing import RowSealing
from relay.store.bulk.applying import REMEMBERED, Applying, BatchLedger, VersionsElsewhere
from relay.store.bulk.columns_call import version_text
from relay.store.bulk.inserting import Inserting, RunLedger
from relay.store.bulk.store import BulkStore
from relay.store.server.explain import explain


@dataclass(slots=True)
class WriteTally:
    """The numbers of rows that were written, refused, and left for later, of those that got an id from their
    content, and of those that were skipped, since the run had inserted their timers before or these
    existed."""

    written: int = 0
    rejected: int = 0
    later: int = 0
    made_ids: int = 0
    skipped_by_ledger: int = 0
    skipped_alive: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What to write: rows due before `until` (microseconds; None means all), at most `max_rate` timers a
    second.

    `run` is the id of the load's run: a timer that this run has inserted before is skipped, and so is a row
    whose timer exists and stands by `on_conflict`. Without `run` each row replaces an existing timer. `dry`
    counts and writes nothing; with `asks` it reads in Redis what would be skipped. With `strict` a refused
    row ends the load. With a `batch` the rows are a task's part of that batch of the stream `run`: all rows
    of a timer count in their order, and what the batch has done before is skipped. So it is for rows that may
    cancel and move timers (`reading.ops`). `remember` (microseconds) is for how long versions are known.
    """

    reading: Reading
    run: str = ""
    on_conflict: OnConflict = REPLACE
    max_rate: float | None = None
    until: int | None = None
    dry: bool = False
    asks: bool = False
    strict: bool = False
    batch: int | None = None
    remember: int = REMEMBERED


def write(batches: Iterable[pa.RecordBatch], load: Load, tally: WriteTally) -> Iterator[pa.RecordBatch]:
    """Write rows, and yield the refused ones. When it ends, all is written.

    Raises `StoreError`, and `InvalidField` if a column can't be used, or for a row if the load is strict.
    """
    with load.reading.target.open() as store:
        way = _way(store, load)
        asks = load.asks or not load.dry
        sealing = RowSealing(load.reading.target, store if asks else None, gives=not load.dry)
        for rows in batches:
            checked = check(rows, load.reading, sealing.refused)
            rejects = sealing.of_rejects(checked.rejects)
            tally.rejected += rejects.num_rows
            tally.made_ids += checked.made_ids
            if load.strict and rejects.num_rows:
                raise _refusal(rejects)
            for group in checked.good:
                now = group if load.until is None else group.where(group.due < load.until)
                tally.later += len(group) - len(now)
                tally.written += len(now)
                if len(now):
                    way.put(sealing.of(now))
                if load.dry and load.asks and len(now) < len(group):
                    later = group.where(group.due >= (load.until or 0))
                    told = RunLedger(store, load.run).is_told(group.topic, later.ids())
                    tally.skipped_by_ledger += sum(told)
            if rejects.num_rows:
                yield rejects
        way.finish(tally)


def _way(store: BulkStore, load: Load) -> _Counted | _Inserted | _Replaced | _Applied:
    if load.dry:
        return _Counted(store, load)
    if load.batch is not None:
        return _Applied(store, load, load.run, load.batch)
    if load.reading.ops or load.reading.versions:
        return _Applied(store, load, f"{load.run}~ops", 0) if load.run else _Applied(store, load, "-", None)
    return _Inserted(store, load) if load.run else _Replaced(store, load)


class _Counted:
    """Writes nothing, and counts what a load would skip now."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._ledger, self._load = RunLedger(store, load.run), load
        self._known = self._alive = 0

    def put(self, group: Group) -> None:
        if self._load.asks:
            ids, due = group.ids(), group.due.tolist()
            found = self._ledger.foreseen(group.topic, ids, due, on_conflict=self._load.on_conflict)
            self._known += found.known
            self._alive += found.alive

    def finish(self, tally: WriteTally) -> None:
        tally.skipped_by_ledger += self._known
        tally.skipped_alive += self._alive
        tally.written -= self._known + self._alive


def why_not_asked(load: Load) -> str:
    """Try what a dry load reads in Redis; return why it can't be read, in a sentence, or an empty text."""
    topic = load.reading.constants.get("topic", "")
    try:
        with load.reading.target.open() as store:
            RunLedger(store, load.run).foreseen(topic, [b"-"], [0], on_conflict=load.on_conflict)
    except StoreUnavailable as failure:
        return f"It can't be reached: {explain(failure)}"
    except StoreError as failure:
        return f"It refuses: {explain(failure)}"
    return ""


class _Replaced:
    """Writes rows in the place of existing timers."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._divided = Divided(store, store.replace, load.max_rate, last=True)

    def put(self, group: Group) -> None:
        self._divided.put(group)

    def finish(self, tally: WriteTally) -> None:
        self._divided.finish()


class _Inserted:
    """Inserts each timer of the run once."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._inserting = Inserting(store, load.run, on_conflict=load.on_conflict)
        self._ledger = RunLedger(store, load.run)
        self._divided = Divided(
            store, self._inserting.insert, load.max_rate, last=False, decided=self._decided
        )

    def put(self, group: Group) -> None:
        self._divided.put(group)

    def _decided(self, partition: str, group: Group) -> list[bool] | None:
        return self._ledger.decided_elsewhere(partition, group.ids)

    def finish(self, tally: WriteTally) -> None:
        """Count as skipped the rows that the run did not insert now."""
        self._divided.finish()
        done = self._inserting.done
        tally.skipped_alive = done.alive
        tally.skipped_by_ledger = tally.written - done.inserted - done.alive
        tally.written = done.inserted


class _Applied:
    """Does with each timer of a stream's batch, or of a load, once what its rows say."""

    def __init__(self, store: BulkStore, load: Load, run: str, batch: int | None) -> None:
        self._applying = Applying(store, run, batch, remember=load.remember)
        self._ledger = None if batch is None else BatchLedger(store, run, batch)
        self._elsewhere = VersionsElsewhere(store)
        apply, rate = self._applying.apply, load.max_rate
        self._divided = Divided(store, apply, rate, last=True, decided=self._decided)
        self._gathered = Gathered()

    def _decided(self, partition: str, group: Group) -> list[bool] | None:
        """Where rows have versions, those that are known where the timers were say it all."""
        if group.versions is None:
            return None if self._ledger is None else self._ledger.decided_elsewhere(partition, group.ids)
        known = self._elsewhere.of(partition, group.ids)
        if known is None:
            return None
        newest = group.versions if group.moves is None else np.maximum(group.versions, group.moves)
        return [
            version_text(own).encode() <= there for own, there in zip(newest.tolist(), known, strict=True)
        ]

    def put(self, group: Group) -> None:
        self._gathered.put(group)

    def finish(self, tally: WriteTally) -> None:
        """Write what has been gathered, and count what was changed. The ledger may have been asked elsewhere,
        and some rows of a timer are one by now: what it had is not counted."""
        for group in self._gathered.folded():
            self._divided.put(group)
        self._divided.finish()
        done = self._applying.done
        tally.written = done.scheduled + done.cancelled + done.moved


def _refusal(rejects: pa.RecordBatch) -> InvalidField:
    """Return the error of the first refused row, by its id."""
    row = rejects.slice(0, 1).to_pylist()[0]
    if row["line"] is not None:
        where = f"line {row['line']} of {row['file']}"
    elif row["timer_id"] is not None:
        where = f"row with timer_id {row['timer_id']!r}"
    else:
        where = f"row with due {row['due_time']}"
    return InvalidField(row["field"], f"{row['reason']} ({where}; with rejects, such rows are put aside)")
