"""The work of a worker on its part of a load: check, encode, and write at the wanted rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from relay.core.errors import InvalidField, StoreError, StoreUnavailable
from relay.pipeline.rows.new_timers import check
from relay.pipeline.rows.packing import Group, pack_group
from relay.pipeline.rows.reading import Reading
from relay.store.bulk.columns_call import PackedRows
from relay.store.bulk.inserting import Inserting, foreseen, is_told
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BATCH, BulkStore
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

    `run` is the id of the load's run: a timer that this run has inserted before is skipped, and with `spare`
    so is one that exists. Without `run` each row replaces an existing timer. `dry` counts and writes nothing;
    with `asks` it reads in Redis what would be skipped. With `strict` a refused row ends the load.
    """

    reading: Reading
    run: str = ""
    spare: bool = False
    max_rate: float | None = None
    until: int | None = None
    dry: bool = False
    asks: bool = False
    strict: bool = False


def write(batches: Iterable[pa.RecordBatch], load: Load, tally: WriteTally) -> Iterator[pa.RecordBatch]:
    """Write rows, and yield the refused ones. When it ends, all is written.

    Raises `StoreError`, and `InvalidField` if a column can't be used, or for a row if the load is strict.
    """
    with load.reading.target.open() as store:
        way = _way(store, load)
        for rows in batches:
            checked = check(rows, load.reading)
            tally.rejected += checked.rejects.num_rows
            tally.made_ids += checked.made_ids
            if load.strict and checked.rejects.num_rows:
                raise _refusal(checked.rejects)
            for group in checked.good:
                now = group if load.until is None else group.where(group.due < load.until)
                tally.later += len(group) - len(now)
                tally.written += len(now)
                if len(now):
                    way.put(now)
                if load.dry and load.asks and len(now) < len(group):
                    later = group.where(group.due >= (load.until or 0))
                    tally.skipped_by_ledger += sum(is_told(store, group.topic, load.run, later.ids()))
            if checked.rejects.num_rows:
                yield checked.rejects
        way.finish(tally)


def _way(store: BulkStore, load: Load) -> _Counted | _Inserted | _Replaced:
    if load.dry:
        return _Counted(store, load)
    return _Inserted(store, load) if load.run else _Replaced(store, load)


class _Counted:
    """Writes nothing, and counts what a load would skip now."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._store, self._load = store, load
        self._known = self._alive = 0

    def put(self, group: Group) -> None:
        if self._load.asks:
            found = foreseen(self._store, group.topic, self._load.run, group.ids(), spare=self._load.spare)
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
            foreseen(store, topic, load.run, [b"-"], spare=load.spare)
    except StoreUnavailable as failure:
        return f"It can't be reached: {explain(failure)}"
    except StoreError as failure:
        return f"It refuses: {explain(failure)}"
    return ""


class _Paced:
    """Packs groups in batches, and waits before each for its turn where the load has a rate."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._pace = Pace(store, load.max_rate) if load.max_rate else None

    def parts(self, group: Group) -> Iterator[PackedRows]:
        for part in pack_group(group, self._pace.batch if self._pace else BATCH):
            if self._pace:
                self._pace.turn(part.size)
            yield part


class _Replaced:
    """Writes rows in the place of existing timers."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._store, self._paced = store, _Paced(store, load)

    def put(self, group: Group) -> None:
        for part in self._paced.parts(group.distinct(last=True)):
            self._store.replace(group.topic, part)

    def finish(self, tally: WriteTally) -> None:
        self._store.flush()


class _Inserted:
    """Inserts each timer of the run once."""

    def __init__(self, store: BulkStore, load: Load) -> None:
        self._inserting = Inserting(store, load.run, spare=load.spare)
        self._paced = _Paced(store, load)

    def put(self, group: Group) -> None:
        for part in self._paced.parts(group.distinct()):
            self._inserting.insert(group.topic, part)

    def finish(self, tally: WriteTally) -> None:
        """Count as skipped the rows that the run did not insert now."""
        self._inserting.flush()
        done = self._inserting.done
        tally.skipped_alive = done.alive
        tally.skipped_by_ledger = tally.written - done.inserted - done.alive
        tally.written = done.inserted


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
