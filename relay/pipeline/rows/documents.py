"""Writes nested values as JSON, by one rule, which docs/how-to/pipeline.md states.

Members stand in the order of the schema, entries of a map in their own order. Nulls are kept. Text is UTF-8,
and escaped only where JSON demands it. Instants are ISO 8601 in UTC with microseconds; times without a zone
are the same without a Z; dates are ISO 8601. Decimals keep all their digits, as numbers. Binary is base64.
NaN and the infinities, for which JSON has no number, are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa

_Writer = Callable[[Any], str]

SPARK = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""The options with which Spark's `to_json` follows the rule. Only the digits of floats may differ
(1.0E10)."""


def of(column: pa.Array) -> pa.Array:
    """Return each value's document; null for null."""
    try:
        values = column.to_pylist()
    except (OverflowError, ValueError):  # a time beyond the years that Python has
        column = column.cast(_times_as_text(column.type))
        values = column.to_pylist()
    write = _writer(column.type)
    return pa.array([None if each is None else write(each).encode() for each in values], pa.binary())


def _times_as_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        members = [kind.field(n) for n in range(kind.num_fields)]
        return pa.struct([each.with_type(_times_as_text(each.type)) for each in members])
    if pa.types.is_map(kind):
        return pa.map_(_times_as_text(kind.key_type), _times_as_text(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_times_as_text(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _writer(kind: pa.DataType) -> _Writer:
    if pa.types.is_struct(kind):
        return _struct([(kind.field(n).name, _writer(kind.field(n).type)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return _map(_writer(kind.item_type), _key(kind.key_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _writer(kind.value_type)
        return lambda values: f"[{','.join(_or_null(item, each) for each in values)}]"
    return _scalar(kind)


def _scalar(kind: pa.DataType) -> _Writer:
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return lambda value: _quoted(base64.b64encode(value).decode())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return lambda value: _quoted(
            value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        )
    if pa.types.is_timestamp(kind):
        return lambda value: _quoted(value.isoformat(timespec="microseconds"))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted
    return lambda value: json.dumps(value, ensure_ascii=False, default=str)


def _struct(members: list[tuple[str, _Writer]]) -> _Writer:
    named = [(name, _quoted(name), write) for name, write in members]

    def write_struct(value: dict[str, Any]) -> str:
        parts = (f"{shown}:{_or_null(write, value[name])}" for name, shown, write in named)
        return f"{{{','.join(parts)}}}"

    return write_struct


def _map(write: _Writer, key: _Writer) -> _Writer:
    return lambda pairs: f"{{{','.join(f'{key(name)}:{_or_null(write, value)}' for name, value in pairs)}}}"


def _key(kind: pa.DataType) -> _Writer:
    """Turn a key into a text, as JSON's names are."""
    write = _scalar(kind)

    def write_key(value: Any) -> str:
        text = write(value)
        return text if text.startswith('"') else _quoted(text)

    return write_key


def _or_null(write: _Writer, value: Any) -> str:
    return "null" if value is None else write(value)


def _number(value: float) -> str:
    if math.isfinite(value):
        return json.dumps(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
