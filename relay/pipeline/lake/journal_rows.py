"""The journal as rows: one row for each change, with the numbers and the instant of its batch.

`topic` and `entry` name the journal and the entry of the stream. `number` is the change's number in the
journal, from 1; `batch_first` and `batch_last` are those of its batch. `at` is the instant by the clock of
Redis. `kind` and all other columns are as in docs/reference/journal.md, and null if the kind does not have
them. An id that is not UTF-8 is in `raw_id` as it is, and escaped in `timer_id`.

`partition` is the number of the partition in whose stream the entry is, null for a topic without a layout.
`number`, `batch_first` and `batch_last` count within that.

Two kinds are added: `GAP`, if `count` changes are missing before the entry (a negative `count` means that the
journal went back by this many numbers), and `EMPTY`, an entry without a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from relay.core.journal import Adoption, JournalBatch, JournalRecord, RecordKind, place_of
from relay.store.journal.scan import EntryGap

SCHEMA = """
topic string, entry string, number bigint, batch_first bigint, batch_last bigint, at timestamp, kind string,
timer_id string, raw_id binary, due timestamp, score timestamp, expires timestamp, previous_due timestamp,
nonce binary, occurrence binary, attempts int, claims int, received boolean, suspect boolean,
approximate boolean, reason string, refused string, adopted string, dead_id string, count bigint,
partition int, hand_over string, previous_dead_id string, principal string, error string, relay string
"""

_INSTANT = pa.timestamp("us", tz="UTC")
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": _INSTANT,
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}
COLUMNS = {part.split()[0]: part.split()[1] for part in SCHEMA.split(",")}
ARROW = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])

GAP, EMPTY = "GAP", "EMPTY"
ROWS = 10_000
"""The approximate number of rows of a record batch."""

_OF_RECORD = (
    "due", "score", "expires", "previous_due", "nonce", "occurrence", "attempts", "claims", "received",
    "suspect", "approximate", "reason", "dead_id", "count", "hand_over", "previous_dead_id",
    "principal", "error",
)  # fmt: skip
"""The fields that come as they are. An empty or zero value is null, except in those of `_ALWAYS`."""
_ALWAYS = ("attempts", "claims", "received", "suspect", "approximate")


class JournalRows:
    """Gathers batches of one stream as Arrow, or of a file with those of all partitions."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        self._topic = topic
        self._partition = partition
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}

    def __len__(self) -> int:
        return len(self._columns["topic"])

    def add(self, found: JournalBatch | EntryGap) -> None:
        """Add the batch that was read next."""
        if isinstance(found, EntryGap):
            self._bare(found.entry, None, None, found.time or None, GAP, found.missing)
        elif not found.records:
            self._bare(found.entry, found.first, found.last, found.time, EMPTY, None)
        else:
            self._batch(found)

    def _bare(
        self, entry: str, first: int | None, last: int | None, at: int | None, kind: str, count: int | None
    ) -> None:
        told = {**self._place(entry), "batch_first": first, "batch_last": last}
        told |= {"at": at, "kind": kind, "count": count}
        for name, values in self._columns.items():
            values.append(told.get(name))

    def _batch(self, batch: JournalBatch) -> None:
        columns, records = self._columns, batch.records
        same = {**self._place(batch.entry), "batch_first": batch.first}
        same |= {"batch_last": batch.last, "at": batch.time, "relay": batch.relay or None}
        for name, value in same.items():
            columns[name] += [value] * len(records)
        columns["number"] += range(batch.first, batch.first + len(records))
        nothing = [None] * len(records)
        found = dict(zip(JournalRecord._fields, zip(*records, strict=True), strict=True))
        columns["kind"] += [kind.name for kind in found["kind"]]
        names = [name_of(timer_id) for timer_id in found["timer_id"]]
        columns["timer_id"] += [name for name, _ in names]
        columns["raw_id"] += [raw for _, raw in names]
        for name in _OF_RECORD:
            values = found[name]
            if name in _ALWAYS:
                columns[name] += values
            else:
                columns[name] += [value or None for value in values] if any(values) else nothing
        for name in ("refused", "adopted"):
            columns[name] += [value and value.name for value in found[name]]

    def _place(self, entry: str) -> dict[str, Any]:
        """The columns that say where an entry is. Those of a file tell the partition behind their ids."""
        number, bare = place_of(entry)
        partition = number if "#" in entry else self._partition
        return {"topic": self._topic, "entry": bare, "partition": partition}

    def take(self) -> pa.RecordBatch:
        """Return all rows that were gathered, once."""
        taken, self._columns = self._columns, {name: [] for name in COLUMNS}
        arrays = [pa.array(taken[field.name], field.type) for field in ARROW]
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW)


def name_of(timer_id: str) -> tuple[str | None, bytes | None]:
    """Return the columns `timer_id` and `raw_id` of an id as the store has it."""
    try:
        timer_id.encode()
    except UnicodeEncodeError:
        raw = timer_id.encode(errors="surrogateescape")
        return raw.decode(errors="backslashreplace"), raw
    return timer_id or None, None


def id_of(timer_id: str | None, raw_id: bytes | None) -> str:
    """Return the id as the store has it."""
    return raw_id.decode(errors="surrogateescape") if raw_id is not None else timer_id or ""


def arrow(
    topic: str, found: Iterable[JournalBatch | EntryGap], partition: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of about `ROWS` rows."""
    rows = JournalRows(topic, partition)
    for each in found:
        rows.add(each)
        if len(rows) >= ROWS:
            yield rows.take()
    if len(rows):
        yield rows.take()


_KINDS: dict[str | None, RecordKind | None] = {None: None, **{kind.name: kind for kind in RecordKind}}
_ADOPTIONS: dict[str | None, Adoption | None] = {None: None, **{each.name: each for each in Adoption}}
_NOTHING: dict[str, Any] = {
    "nonce": b"",
    "occurrence": b"",
    "reason": "",
    "dead_id": "",
    "hand_over": "",
    "previous_dead_id": "",
    "principal": "",
    "error": "",
}


def records(batch: pa.RecordBatch) -> Iterator[JournalRecord]:
    """Return the changes of rows that have all columns of a change. This is the reverse of `JournalRows`."""
    return map(JournalRecord, *(_field(batch, name) for name in JournalRecord._fields))


def _field(batch: pa.RecordBatch, name: str) -> list[Any]:
    found = values(batch.column(name))
    if name == "timer_id":
        raw = batch.column("raw_id")
        if raw.null_count == len(raw):
            return [timer_id or "" for timer_id in found]
        return list(map(id_of, found, raw.to_pylist()))
    if name in ("kind", "refused"):
        return [_KINDS[value] for value in found]
    if name == "adopted":
        return [_ADOPTIONS[value] for value in found]
    if name in _ALWAYS:
        return found
    nothing = _NOTHING.get(name, 0)
    return [nothing if value is None else value for value in found]


def values(column: pa.Array) -> list[Any]:
    """Return a column as Python values; instants are in microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found
