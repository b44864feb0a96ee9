"""Rows that become timers: sorted into good ones, by topic and ready to be written, and rejects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline import envelopes, rules
from relay.pipeline.reading import COLUMNS, REJECTS, Reading, read
from relay.pipeline.rules import Topics
from relay.pipeline.wire import Group

_NOTHING = pa.RecordBatch.from_pylist([], REJECTS)


@dataclass(slots=True)
class Checked:
    """The good of some rows by topic, and the others."""

    good: list[Group]
    rejects: pa.RecordBatch
    made_ids: int = 0


def check(rows: pa.RecordBatch, reading: Reading) -> Checked:
    """Sort out what can be a timer. Raises `InvalidField` where a column as such is of no use."""
    columns = read(rows, reading)
    bad: dict[int, str] = {}
    topics = rules.topics(columns["topic"], reading, bad)
    due = rules.instants(columns["due_time"], "due_time", bad, needed=True)
    expires = rules.instants(columns["expire_time"], "expire_time", bad, needed=False)
    _say_what_it_was(rows, bad)
    rules.expiry(due, expires, bad)
    rules.content_types(columns["content_type"], bad)
    rules.headers(columns["headers"], bad)
    rules.sizes(columns["payload"], topics, reading, bad)
    missing = rules.ids(columns["timer_id"], bad, reading)
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[list(bad)] = False
    mask = pa.array(keep)
    if bad:
        kept = {
            name: columns[name].filter(mask) for name in ("timer_id", "payload", "headers", "content_type")
        }
        good = {**columns, **kept}
        topics = rules.Topics(topics.names, topics.codes[keep])
        due, expires, missing = due[keep], expires[keep], missing[keep]
    else:
        good = columns
    stored = envelopes.encode(good["payload"], good["headers"], good["content_type"])
    ids = good["timer_id"]
    if missing.any():
        made = pa.array(_made(topics, due, stored, missing), pa.string())
        ids = pc.replace_with_mask(ids, pa.array(missing), made)
    groups = list(_by_topic(topics, ids, due, stored, expires))
    return Checked(groups, _rejected(columns, bad), int(missing.sum()))


def _made(
    topics: Topics, due: np.ndarray[Any, Any], stored: pa.Array, missing: np.ndarray[Any, Any]
) -> list[str]:
    return [made_id(topics.of(n), int(due[n]), stored[n].as_py()) for n in np.flatnonzero(missing).tolist()]


def _say_what_it_was(rows: pa.RecordBatch, bad: dict[int, str]) -> None:
    """Of a due time that could not be read, where `due_source` has it."""
    if "due_source" in rows.schema.names and bad:
        told = rows.column("due_source")
        for n, reason in bad.items():
            if reason == rules.NO_TIME and told[n].is_valid:
                bad[n] = f"due_time: is {told[n].as_py()[:100]!r}, which is no time"


def made_id(topic: str, due: int, stored: bytes) -> str:
    """The timer_id of a row that has none: a digest of all that it says."""
    digest = hashlib.blake2b(f"{topic}\0{due}\0".encode(), digest_size=16)
    digest.update(stored)
    return f"row-{digest.hexdigest()}"


def _by_topic(
    topics: Topics,
    ids: pa.Array,
    due: np.ndarray[Any, Any],
    stored: pa.Array,
    expires: np.ndarray[Any, Any],
) -> Iterator[Group]:
    everything = Group("", ids, due, stored, expires)
    for code, topic in enumerate(topics.names):
        mine = topics.codes == code
        if mine.any():
            yield replace(everything.where(mine), topic=topic)


def _rejected(columns: Mapping[str, pa.Array], bad: Mapping[int, str]) -> pa.RecordBatch:
    if not bad:
        return _NOTHING
    rows = pa.array(sorted(bad), pa.int64())
    parts = [columns[name].take(rows) for name in COLUMNS]
    reasons = pa.array([bad[n] for n in sorted(bad)], pa.string())
    return pa.RecordBatch.from_arrays([*parts, reasons], schema=REJECTS)
