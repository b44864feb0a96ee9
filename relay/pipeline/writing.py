"""What a worker does with its part of a load: check, encode, write at the rate that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from relay.core.errors import InvalidField
from relay.pipeline.columns import check
from relay.pipeline.reading import Reading
from relay.store.bulk import Batch, BulkStore
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
            for batch in checked.good:
                now = batch if load.until is None else _before(batch, load.until)
                tally.later += len(batch.timer_ids) - len(now.timer_ids)
                if not load.dry:
                    _put(store, now, pace)
                tally.written += len(now.timer_ids)
            if checked.rejects.num_rows:
                yield checked.rejects
        store.flush()


def _put(store: BulkStore, batch: Batch, pace: Pace | None) -> None:
    if pace is None:
        store.write(batch)
        return
    for start in range(0, len(batch.timer_ids), pace.batch):
        part = batch.part(start, start + pace.batch)
        store.flush()
        pace.turn(len(part.timer_ids))
        store.write(part)


def _before(batch: Batch, until: int) -> Batch:
    """The part that is due before `until`."""
    if max(batch.due) < until:
        return batch
    rows = [n for n, due in enumerate(batch.due) if due < until]
    return Batch(
        batch.topic,
        [batch.timer_ids[n] for n in rows],
        [batch.due[n] for n in rows],
        [batch.envelopes[n] for n in rows],
        [batch.expires[n] for n in rows] if batch.expires else (),
    )


def _refusal(rejects: pa.RecordBatch) -> InvalidField:
    """The first of them, by its id."""
    row = rejects.slice(0, 1).to_pylist()[0]
    field, _, problem = row["reason"].partition(": ")
    where = f"timer_id {row['timer_id']!r}" if row["timer_id"] is not None else f"due {row['due_time']}"
    return InvalidField(field, f"{problem} (row with {where}; with rejects, such rows are put aside)")
