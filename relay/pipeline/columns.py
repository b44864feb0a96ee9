"""Rows that become timers: sorted into good ones, by topic and ready to be written, and rejects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from relay.pipeline import envelopes, rules
from relay.pipeline.reading import COLUMNS, REJECTS, Reading, read
from relay.pipeline.rules import Topics
from relay.store.bulk import Batch


@dataclass(slots=True)
class Checked:
    """The good of some rows by topic, and the others."""

    good: list[Batch]
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
    ids = columns["timer_id"]
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[list(bad)] = False
    stored = _encoded(columns, keep)
    made = 0
    names = ids.to_numpy(zero_copy_only=False)
    if missing.any():
        names = names.copy()
        for n in np.flatnonzero(missing & keep).tolist():
            names[n] = made_id(topics.of(n), int(due[n]), stored[n])
            made += 1
    good = list(_by_topic(topics, keep, names, due, stored, expires))
    return Checked(good, _rejected(columns, bad), made)


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


def _encoded(columns: Mapping[str, pa.Array], keep: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Envelopes as an array of bytes; None for a row that is not kept, whose headers may be of any size."""
    parts = [columns[name] for name in ("payload", "headers", "content_type")]
    if keep.all():
        made: np.ndarray[Any, Any] = envelopes.encode(*parts).to_numpy(zero_copy_only=False)
        return made
    stored = np.full(len(keep), None, dtype=object)
    mask = pa.array(keep)
    stored[keep] = envelopes.encode(*(part.filter(mask) for part in parts)).to_numpy(zero_copy_only=False)
    return stored


def _by_topic(
    topics: Topics,
    keep: np.ndarray[Any, Any],
    names: np.ndarray[Any, Any],
    due: np.ndarray[Any, Any],
    stored: np.ndarray[Any, Any],
    expires: np.ndarray[Any, Any],
) -> Iterator[Batch]:
    for code, topic in enumerate(topics.names):
        mine = keep & (topics.codes == code)
        if not mine.any():
            continue
        rows = slice(None) if mine.all() else mine
        ends = expires[rows]
        yield Batch(
            topic,
            names[rows].tolist(),
            due[rows].tolist(),
            stored[rows].tolist(),
            [None if each < 0 else each for each in ends.tolist()] if (ends >= 0).any() else (),
        )


def _rejected(columns: Mapping[str, pa.Array], bad: Mapping[int, str]) -> pa.RecordBatch:
    rows = pa.array(sorted(bad), pa.int64())
    parts = [columns[name].take(rows) for name in COLUMNS]
    reasons = pa.array([bad[n] for n in sorted(bad)], pa.string())
    return pa.RecordBatch.from_arrays([*parts, reasons], schema=REJECTS)
