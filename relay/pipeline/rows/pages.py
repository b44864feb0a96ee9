"""Turns pages of a topic into Arrow batches: records are unpacked a column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from relay.core.instants import from_score
from relay.pipeline.rows import envelopes
from relay.pipeline.rows.reading import INSTANT
from relay.store.bulk.scanning import TimerColumns
from relay.store.codec import lease_record

_RECORD = np.dtype(
    [
        ("version", "u1"),
        ("state", "u1"),
        ("received", "u1"),
        ("suspect", "u1"),
        ("approximate", "u1"),
        ("attempts", "<u4"),
        ("claims", "<u4"),
        ("score", "<f8"),
        ("due", "<f8"),
        ("expires", "<f8"),
        ("nonce", "S16"),
        ("occurrence", "S16"),
    ]
)
_STATES = np.array(["pending", "leased", "parked"], dtype=object)
assert (lease_record.PENDING, lease_record.LEASED, lease_record.PARKED) == (0, 1, 2)

UNREADABLE = "unreadable"
"""The state of a timer whose id is not UTF-8: its invalid bytes are shown as \\xff, and no relay delivers
it."""

_QUICK = 2.0**32
"""A limit in seconds; see `relay.core.instants`."""


def micros(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Apply `from_score` to each."""
    if len(scores) and not ((scores > 0) & (scores < _QUICK)).all():
        return np.array([from_score(score) for score in scores.tolist()], dtype=np.int64)
    found = np.rint(scores * 1e6).astype(np.int64)
    return np.where(found / 1e6 > scores, found - 1, found)


def batch_of(topic: str, page: TimerColumns, columns: list[str]) -> pa.RecordBatch:
    """Return these columns of a page."""
    size = len(page.timer_ids)
    held = np.frombuffer(b"".join(page.records), dtype=_RECORD)
    scores = np.array(page.scores, dtype=np.float64)
    due = micros(held["due"])
    ids, readable = _ids(page.timer_ids)
    state = np.where(readable, _STATES[np.minimum(held["state"], 2)], UNREADABLE)
    made: dict[str, Any] = {
        "topic": lambda: pa.repeat(topic, size),
        "timer_id": lambda: ids,
        "due_time": lambda: _instants(due),
        "next_claim_time": lambda: _instants(micros(scores)),
        "state": lambda: pa.array(state, pa.string()),
        "attempts": lambda: pa.array(held["attempts"].astype(np.int64)),
        "claims": lambda: pa.array(held["claims"].astype(np.int64)),
        "expire_time": lambda: _instants(micros(held["expires"]), mask=held["expires"] == 0),
        "due_us": lambda: pa.array(due),
        "score": lambda: pa.array(scores),
        "record": lambda: pa.array(page.records, pa.binary()),
        "envelope": lambda: pa.array(page.envelopes, pa.binary()),
    }
    if "payload" in columns:
        content = envelopes.decode(pa.array(page.envelopes, pa.binary()))
        for name, column in content.items():
            made[name] = lambda column=column: column
    return pa.RecordBatch.from_arrays([made[name]() for name in columns], names=columns)


def _instants(found: np.ndarray[Any, Any], mask: np.ndarray[Any, Any] | None = None) -> pa.Array:
    return pa.array(found, pa.int64(), mask=mask).cast(INSTANT)


def _ids(raw: list[bytes]) -> tuple[pa.Array, np.ndarray[Any, Any]]:
    """Return ids as text, and which of them are UTF-8."""
    try:
        return pa.array(raw, pa.binary()).cast(pa.string()), np.ones(len(raw), dtype=bool)
    except pa.ArrowInvalid:
        texts = [lease_record.text_of(each) for each in raw]
        shown = [each.decode(errors="backslashreplace") for each in raw]
        return pa.array(shown, pa.string()), np.array([good for _, good in texts], dtype=bool)
