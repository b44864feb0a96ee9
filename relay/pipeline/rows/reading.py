"""Reads rows in any suitable type, and brings each column into one type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from relay.core.errors import InvalidField
from relay.pipeline.rows import documents, envelopes
from relay.pipeline.rows.columns import OP, REJECTED, TIMER, VERSION
from relay.pipeline.spark.redis_target import Target

INSTANT = pa.timestamp("us", tz="UTC")

ARROW = {
    "string": pa.string(),
    "binary": pa.binary(),
    "long": pa.int64(),
    "timestamp": INSTANT,
    "map<string,string>": envelopes.HEADERS,
}
"""Arrow's types by Spark's."""

COLUMNS = {name: ARROW[kind] for name, kind in TIMER.items()}
REJECTS = pa.schema([(name, ARROW[kind]) for name, kind in REJECTED.items()])
"""A refused row. The columns of a timer hold what could be read, null if nothing could, and what the load's
options add (topic, content type). `record` is the whole record: its text if that is known (CSV and JSON),
otherwise the row as JSON. `line` counts from 1. `field` is the wrong field, `reason` the reason. A load of
this table takes the columns of a timer and ignores the others, so rows that were corrected in place can be
loaded as they are."""

RECORD, TEXT, FILE, LINE, MALFORMED = "__record", "__text", "__file", "__line", "__malformed"
"""Beside the columns of a timer, rows may carry where they come from: the whole record (a struct of its
columns, or its text if that is known), its file, its line, and why it can't be split into columns (null if it
can)."""
PROVENANCE = (RECORD, TEXT, FILE, LINE, MALFORMED)
TOLD = ("due_source", "expire_source")
"""The original texts of due and expire times."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are read. `constants` stand for columns that are absent, or null in a row.

    With `make_ids` a row without timer_id gets one from its content, the same at every run, so equal rows are
    one timer. `zone` is that of due times without one (TIMESTAMP_NTZ). `spread` is the length, in
    microseconds, over which timers are spread behind their due times, each to the place that its id decides.
    """

    target: Target
    constants: Mapping[str, str] = field(default_factory=dict)
    make_ids: bool = False
    zone: str | None = None
    spread: int = 0
    ops: bool = False
    """Whether rows may say by a column `op` what they do."""
    versions: bool = False
    """Whether rows have a version, a number or a time."""


def read(rows: pa.RecordBatch, reading: Reading) -> dict[str, pa.Array]:
    """Return all of `COLUMNS` in their types, and `OP` and `VERSION` if they are there. A payload that is
    text or a struct becomes bytes, and gets its content type from that. Raises `InvalidField` if a column
    can't be used."""
    found: dict[str, pa.Array] = {}
    if reading.ops and OP in rows.schema.names:
        found[OP] = _cast(rows.column(OP), pa.string(), OP)
    if reading.versions:
        version = rows.column(VERSION)
        if pa.types.is_timestamp(version.type):
            version = _instant(version, VERSION, reading.zone)
        found[VERSION] = _cast(version, pa.int64(), VERSION)
    for name, kind in COLUMNS.items():
        constant = reading.constants.get(name)
        column = rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows, kind)
        if name == "payload":
            column, implied = _payload(column)
            found["implied"] = implied
        elif name in ("due_time", "expire_time"):
            column = _instant(column, name, reading.zone)
        elif column.type != kind:
            column = _cast(column, kind, name)
        if constant is not None and column.null_count:
            column = pc.fill_null(column, constant)
        found[name] = column
    implied = found.pop("implied")
    if implied is not None and found["content_type"].null_count:
        found["content_type"] = pc.if_else(
            pc.and_(pc.is_null(found["content_type"]), pc.is_valid(found["payload"])),
            pa.scalar(implied),
            found["content_type"],
        )
    return found


def _cast(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowException:
        raise InvalidField(name, f"has the type {column.type}; give {kind}") from None


def _payload(column: pa.Array) -> tuple[pa.Array, str | None]:
    """Return bytes, and the content type that goes with their type. Raises `InvalidField`."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind):
        return column.cast(pa.binary()), None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.binary()), "text/plain"
    if pa.types.is_nested(kind):
        return documents.of(column), "application/json"
    raise InvalidField("payload", f"has the type {kind}; give bytes, text or a struct")


def _instant(column: pa.Array, name: str, zone: str | None) -> pa.Array:  # see 0053
    """Return microseconds in UTC. Times without a zone need `zone`. Raises `InvalidField`."""
    kind = column.type
    if pa.types.is_null(kind):
        return column.cast(INSTANT)
    if not pa.types.is_timestamp(kind):
        raise InvalidField(name, f"has the type {kind}; give a timestamp")
    if kind.tz is None:
        if zone is None:
            raise InvalidField(name, "has no time zone (timestamp_ntz): cast it, or name one with time_zone")
        naive = column.cast(pa.timestamp("us"))
        local = pc.assume_timezone(naive, str(ZoneInfo(zone)), ambiguous="earliest", nonexistent="latest")
        return local.cast(INSTANT)
    return column.cast(INSTANT)
