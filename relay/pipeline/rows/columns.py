"""The columns of a timer as tables name them, with Spark's types. All other lists of them follow from these.

This module imports nothing: the data source is loaded where pyarrow is not needed yet.
"""

from __future__ import annotations

from collections.abc import Mapping

CONTENT = {"payload": "binary", "headers": "map<string,string>", "content_type": "string"}

SEAL_WITH = "seal_with"
"""The column that names whom a timer is about."""

TIMER = {
    "topic": "string",
    "timer_id": "string",
    "due_time": "timestamp",
    **CONTENT,
    "expire_time": "timestamp",
    SEAL_WITH: "string",
}
"""The columns that a timer may be made of. Only a due time, and a topic from somewhere, are required."""

OP = "op"
"""The data source's column that says what a row does: schedule a timer, cancel it or move it."""

VERSION = "version"
"""The data source's column by which late rows lose against newer ones."""

CONSTANT = ("topic", "content_type")
"""The columns for which an option can stand."""

REJECTED = {
    **TIMER,
    "record": "binary",
    "file": "string",
    "line": "long",
    "field": "string",
    "reason": "string",
    "rejected_at": "timestamp",
}
"""The columns of a refused row; see `reading.REJECTS`."""


def ddl(columns: Mapping[str, str]) -> str:
    """Return columns as Spark writes a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
