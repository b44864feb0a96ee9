"""The findings of an audit's workers, as rows of one table. The column `fact` says what a row is:

| fact | |
|---|---|
| `hour`, `step` | `count` more of `name` in the topic's hour or step number `time` |
| `late` | a first delivery: `value` microseconds after its due time, which is in hour `time` |
| `finding` | `promise` (a number), `name` with the reason for a doubt (empty: refuted), and an example |
| `living` | a timer that has not ended, in the partition `place`, or on its way from there to `target` |
| `unasked` | a timer that lives and may be lost: nobody was asked for it |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from relay.core.audit.per_timer import Finding
from relay.core.instants import SECOND
from relay.pipeline.lake.journal_rows import name_of

HOUR = 3600 * SECOND

FACTS = """
fact string, topic string, time bigint, name string, count bigint, value bigint, promise int,
timer_id string, raw_id binary, what string, at bigint, due bigint, entry string, before string,
occurrence binary, epoch bigint, recorded boolean, leased boolean, place int, target int
"""
FACTS = " ".join(FACTS.split())
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}
_ARROW = pa.schema([(part.split()[0], _TYPES[part.split()[1]]) for part in FACTS.split(",")])
FACTS_AT_ONCE = 10_000


class FactRows:
    """Gathers the rows that a worker returns."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._late: list[tuple[str, int, int]] = []

    def add(self, fact: str, topic: str, **rest: Any) -> None:
        """Add one row."""
        self._rows.append({"fact": fact, "topic": topic, **rest})

    def late(self, topic: str, hour: int, value: int) -> None:
        """Add a row of `late`; there are many of these."""
        self._late.append((topic, hour, value))

    def take(self, least: int = 1) -> Iterator[pa.RecordBatch]:
        """Return the gathered rows if there are at least `least`."""
        if len(self._rows) >= least:
            yield pa.RecordBatch.from_pylist(self._rows, schema=_ARROW)
            self._rows = []
        if len(self._late) >= least:
            topics, hours, values = zip(*self._late, strict=True)
            self._late = []
            told = {"fact": ["late"] * len(topics), "topic": topics, "time": hours, "value": values}
            columns = [
                pa.array(told[field.name], field.type)
                if field.name in told
                else pa.nulls(len(topics), field.type)
                for field in _ARROW
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)

    def finding(self, topic: str, found: Finding) -> None:
        """Add the findings of the rules."""
        promise, reason, example = found
        rest: dict[str, Any] = {}
        if example is not None:
            timer_id, raw_id = name_of(example.timer_id)
            *before, entry = ("", *example.entries)
            rest = {"timer_id": timer_id, "raw_id": raw_id, "what": example.what, "at": example.time}
            rest |= {"entry": entry, "before": before[-1] if before else "", "occurrence": example.occurrence}
            rest["time"] = example.time // HOUR
        self.add("finding", topic, promise=int(promise), name=reason, count=1, **rest)
