"""Turns rows into timers: sorts them into valid ones, by topic and ready to be written, and rejects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relay.pipeline.rows import documents, envelopes, rules
from relay.pipeline.rows.columns import CONTENT, OP, SEAL_WITH, VERSION
from relay.pipeline.rows.packing import CANCEL, SCHEDULE, Group
from relay.pipeline.rows.reading import (
    COLUMNS,
    FILE,
    INSTANT,
    LINE,
    MALFORMED,
    PROVENANCE,
    RECORD,
    REJECTS,
    TEXT,
    TOLD,
    Reading,
    read,
)
from relay.pipeline.rows.rules import TopicColumn

_NOTHING = pa.RecordBatch.from_pylist([], REJECTS)


@dataclass(slots=True)
class Checked:
    """The valid rows by topic, and the rejects."""

    good: list[Group]
    rejects: pa.RecordBatch
    made_ids: int = 0


def check(
    rows: pa.RecordBatch, reading: Reading, refused: rules.RefusesSubjects = rules.takes_all
) -> Checked:
    """Sort out the rows that can be timers. `refused` says which subjects a topic does not take. Raises
    `InvalidField` if a whole column can't be used, and what `refused` raises."""
    columns = read(rows, reading)
    bad: dict[int, str] = {}
    _malformed(rows, bad)
    _no_times(rows, columns, bad)
    ops = rules.ops(columns[OP], columns["timer_id"], bad) if OP in columns else None
    if ops is not None:
        columns = _needed(columns, ops)
    versions = rules.versions(columns[VERSION], bad) if VERSION in columns else None
    topics = rules.topics(columns["topic"], reading, bad)
    due = rules.instants(columns["due_time"], "due_time", bad, needed=True)
    expires = rules.instants(columns["expire_time"], "expire_time", bad, needed=False)
    rules.expiry(due, expires, bad)
    if reading.spread:
        rules.spread(due, expires, reading.spread, bad)
    rules.content(columns, topics, reading, bad)
    missing = rules.ids(columns["timer_id"], bad, reading)
    subjects = rules.subjects(columns[SEAL_WITH], topics, bad, refused)
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[list(bad)] = False
    mask = pa.array(keep)
    if bad:
        kept = {name: columns[name].filter(mask) for name in ("timer_id", *CONTENT)}
        good = {**columns, **kept}
        topics = rules.TopicColumn(topics.names, topics.codes[keep])
        due, expires, missing = due[keep], expires[keep], missing[keep]
        ops = None if ops is None else ops[keep]
        versions = None if versions is None else versions[keep]
        subjects = None if subjects is None else subjects[keep]
    else:
        good = columns
    stored = envelopes.encode(**{name: good[name] for name in CONTENT})
    ids = good["timer_id"]
    if missing.any():
        made = pa.array(_made(topics, due, stored, missing, subjects), pa.string())
        ids = pc.replace_with_mask(ids, pa.array(missing), made)
    if reading.spread:
        due = due + rules.places(ids, reading.spread)
    everything = Group("", ids, due, stored, expires, ops, versions, subjects=subjects)
    groups = list(_by_topic(topics, everything))
    return Checked(groups, _rejected(rows, columns, bad), int(missing.sum()))


def _needed(columns: Mapping[str, pa.Array], ops: np.ndarray[Any, Any]) -> dict[str, pa.Array]:
    """Return the columns without what the rows have no use for: a row that cancels needs an id only, and one
    that moves a due time besides. Rows of a table that changes have all columns, or none of the others."""
    schedules, cancels = pa.array(ops == SCHEDULE), pa.array(ops == CANCEL)
    found = dict(columns)
    for name in (*CONTENT, "expire_time", SEAL_WITH):
        found[name] = pc.if_else(schedules, found[name], pa.scalar(None, found[name].type))
    found["due_time"] = pc.if_else(cancels, pa.scalar(0, found["due_time"].type), found["due_time"])
    return found


def _made(  # see 0052
    topics: TopicColumn,
    due: np.ndarray[Any, Any],
    stored: pa.Array,
    missing: np.ndarray[Any, Any],
    subjects: np.ndarray[Any, Any] | None,
) -> list[str]:
    return [
        made_id(topics.of(n), int(due[n]), stored[n].as_py(), "" if subjects is None else subjects[n])
        for n in np.flatnonzero(missing).tolist()
    ]


def _malformed(rows: pa.RecordBatch, bad: dict[int, str]) -> None:
    """Note records that could not be split into columns, if the reader says so."""
    if MALFORMED in rows.schema.names:
        told = rows.column(MALFORMED)
        for n in np.flatnonzero(told.is_valid().to_numpy(zero_copy_only=False)).tolist():
            bad[n] = f"record: {told[n].as_py()}"


def _no_times(rows: pa.RecordBatch, columns: Mapping[str, pa.Array], bad: dict[int, str]) -> None:
    """Note texts and numbers that are not times. They are null by now; `due_source` and `expire_source` have
    them."""
    for name, source in (("due_time", "due_source"), ("expire_time", "expire_source")):
        if source not in rows.schema.names:
            continue
        told = rows.column(source)
        lost = pc.and_(columns[name].is_null(), pc.fill_null(pc.not_equal(told, ""), False))
        for n in np.flatnonzero(lost.to_numpy(zero_copy_only=False)).tolist():
            bad.setdefault(n, f"{name}: is {told[n].as_py()[:100]!r}, which is not a time")


def made_id(topic: str, due: int, stored: bytes, seal_with: str = "") -> str:
    """Make the timer_id of a row without one: a digest of all its values."""
    digest = hashlib.blake2b(f"{topic}\0{due}\0".encode(), digest_size=16)
    digest.update(stored)
    if seal_with:
        digest.update(f"\0{seal_with}".encode())
    return f"row-{digest.hexdigest()}"


def _by_topic(topics: TopicColumn, everything: Group) -> Iterator[Group]:
    for code, topic in enumerate(topics.names):
        mine = topics.codes == code
        if mine.any():
            yield replace(everything.where(mine), topic=topic)


def _rejected(
    rows: pa.RecordBatch, columns: Mapping[str, pa.Array], bad: Mapping[int, str]
) -> pa.RecordBatch:
    if not bad:
        return _NOTHING
    refused = sorted(bad)
    where = pa.array(refused, pa.int64())
    told = [bad[n].partition(": ") for n in refused]
    source = rows.take(where)
    parts = {
        **{name: columns[name].take(where) for name in COLUMNS},
        "record": _records(source),
        "file": _carried(source, FILE, pa.string()),
        "line": _carried(source, LINE, pa.int64()),
        "field": pa.array([field for field, _, _ in told], pa.string()),
        "reason": pa.array([problem for _, _, problem in told], pa.string()),
        "rejected_at": pa.repeat(pa.scalar(datetime.now(UTC), INSTANT), len(refused)),
    }
    return pa.RecordBatch.from_arrays([parts[name] for name in REJECTS.names], schema=REJECTS)


def _records(rows: pa.RecordBatch) -> pa.Array:
    """Return records: texts as they came, anything else as JSON. Without a column of records, the rows
    themselves are the records."""
    names = rows.schema.names
    texts = _carried(rows, TEXT, pa.binary())
    if RECORD in names:
        return pc.coalesce(texts, documents.of(rows.column(RECORD)))
    if TEXT in names:
        return texts
    own = [name for name in rows.schema.names if name not in (*PROVENANCE, *TOLD)]
    return documents.of(rows.select(own).to_struct_array())


def _carried(rows: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    return rows.column(name).cast(kind) if name in rows.schema.names else pa.nulls(rows.num_rows, kind)
