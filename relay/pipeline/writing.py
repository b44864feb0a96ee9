"""What a worker does with its part of a load: check, encode, write at the rate that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from relay.core.errors import InvalidField
from relay.pipeline.columns import check
from relay.pipeline.reading import Reading
from relay.pipeline.wire import Group, pack
from relay.store.bulk import BATCH, BulkStore
from relay.store.pace import Pace


@dataclass(slots=True)
class Tally:
    """How many rows were written, refused, and left for later; and how many got an id of their content."""

    written: int = 0
    rejected: int = 0
    later: int = 0
    made_ids: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """What to write: rows due before `until` (microseconds; None: all), at most `max_rate` timers a second.

    `dry`: count, and leave Redis alone. `strict`: a row that is refused ends it.
    """

    reading: Reading
    max_rate: float | None = None
    until: int | None = None
    dry: bool = False
    strict: bool = False


def write(batches: Iterable[pa.RecordBatch], load: Load, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Write them, and yield what was refused; when it ends, all is written.

    Raises `StoreError`, and `InvalidField` where a column is of no use, or for a row if the load is strict.
    """
    with load.reading.target.open() as store:
        pace = Pace(store, load.max_rate) if load.max_rate else None
        for rows in batches:
            checked = check(rows, load.reading)
            tally.rejected += checked.rejects.num_rows
            tally.made_ids += checked.made_ids
            if load.strict and checked.rejects.num_rows:
                raise _refusal(checked.rejects)
            for group in checked.good:
                now = group if load.until is None else group.where(group.due < load.until)
                tally.later += len(group) - len(now)
                if not load.dry and len(now):
                    _put(store, now, pace)
                tally.written += len(now)
            if checked.rejects.num_rows:
                yield checked.rejects
        store.flush()


def _put(store: BulkStore, group: Group, pace: Pace | None) -> None:
    most = pace.batch if pace else BATCH
    if group.plain and store.packs(group.topic):
        for part in pack(group, most):
            _wait(store, pace, part.size)
            store.write_packed(group.topic, part)
        return
    batch = group.batch()
    for start in range(0, len(group), most):
        end = min(start + most, len(group))
        _wait(store, pace, end - start)
        store.write(batch.part(start, end))


def _wait(store: BulkStore, pace: Pace | None, count: int) -> None:
    if pace:
        store.flush()
        pace.turn(count)


def _refusal(rejects: pa.RecordBatch) -> InvalidField:
    """The first of them, by its id."""
    row = rejects.slice(0, 1).to_pylist()[0]
    if row["line"] is not None:
        where = f"line {row['line']} of {row['file']}"
    elif row["timer_id"] is not None:
        where = f"row with timer_id {row['timer_id']!r}"
    else:
        where = f"row with due {row['due_time']}"
    return InvalidField(row["field"], f"{row['reason']} ({where}; with rejects, such rows are put aside)")
