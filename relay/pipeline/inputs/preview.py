"""Shows the first rows as the timers that they would become, to the person who loads them and never to a
log."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame

from relay.core.timers import Content
from relay.pipeline.rows.new_timers import check
from relay.pipeline.rows.reading import RECORD, TEXT, Reading
from relay.pipeline.rows.rules import OPS
from relay.store.codec import envelope

SHOWN = 5
"""The rows that a dry run shows."""

BYTES = 80
"""The bytes of a payload that are shown."""

_WORDS = {code: word for word, code in OPS.items()}
_START = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class First:
    """One row: the timer that it becomes, or the reason for its refusal."""

    topic: str = ""
    timer_id: str = ""
    due: int = 0
    content: Content | None = None
    op: str = "schedule"
    seal_with: str = ""
    refused: dict[str, Any] | None = None

    def document(self, zone: str) -> dict[str, Any]:
        """Return it as JSON with stable names."""
        if self.content is None:
            return {"rejected": self.refused}
        if self.op != "schedule":
            moved = {"due_time": _utc(self.due)} if self.op == "move" else {}
            return {"op": self.op, "topic": self.topic, "timer_id": self.timer_id, **moved}
        return {
            "topic": self.topic,
            "timer_id": self.timer_id,
            "due_time": _utc(self.due),
            "due_time_local": _local(self.due, zone),
            "payload_bytes": len(self.content.payload),
            "payload_start": _start(self.content.payload),
            "content_type": self.content.content_type,
            "headers": dict(self.content.headers),
            **({"seal_with": self.seal_with} if self.seal_with else {}),
        }


def first(rows: DataFrame, reading: Reading, count: int) -> list[dict[str, Any]]:
    """Return what becomes of the first `count` rows, with times in UTC and in the session's zone."""
    zone = str(rows.sparkSession.conf.get("spark.sql.session.timeZone"))
    table = rows.drop(RECORD, TEXT).limit(count).toArrow().combine_chunks()
    batches = table.to_batches()
    return [
        _first(batch.slice(n, 1), reading).document(zone) for batch in batches for n in range(batch.num_rows)
    ]


def _first(row: Any, reading: Reading) -> First:
    checked = check(row, reading)
    for group in checked.good:
        stored = envelope.decode(group.envelopes[0].as_py())
        op = "schedule" if group.ops is None else _WORDS[int(group.ops[0])]
        subject = "" if group.subjects is None else group.subjects[0]
        return First(group.topic, group.timer_ids[0].as_py(), int(group.due[0]), stored, op, subject)
    (refused,) = checked.rejects.select(["field", "reason", "file", "line"]).to_pylist()
    return First(refused=refused)


def sentence(found: dict[str, Any]) -> str:
    """Write one row on one line. Foreign text is escaped, so that it can't control a terminal."""
    refused = found.get("rejected")
    if refused is not None:
        where = f" (line {refused['line']} of {refused['file']})" if refused["line"] is not None else ""
        return f"rejected: {refused['field']}: {_safe(refused['reason'])}{_safe(where)}"
    if "op" in found:
        moved = f", due {found['due_time']}" if "due_time" in found else ""
        return f"{found['op']} {_safe(found['topic'])}/{_safe(found['timer_id'])}{moved}"
    local = f" ({found['due_time_local']})" if found["due_time_local"] else ""
    size, start = found["payload_bytes"], found["payload_start"]
    more = "…" if size > BYTES else ""
    parts = [
        f"{_safe(found['topic'])}/{_safe(found['timer_id'])}",
        f"due {found['due_time']}{local}",
        f"payload of {size:,} bytes {start!r}{more}" if size else "no payload",
        *([_safe(found["content_type"])] if found["content_type"] else []),
        *(f"{_safe(name)}={value!r}" for name, value in found["headers"].items()),
        *([f"sealed for {_safe(found['seal_with'])}"] if "seal_with" in found else []),
    ]
    return ", ".join(parts)


def _safe(text: str) -> str:
    """Return Python's representation of a text without its quotes."""
    return repr(text)[1:-1]


def _utc(micros: int) -> str:
    moment = (_START + timedelta(microseconds=micros)).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='microseconds')}Z"


def _local(micros: int, name: str) -> str | None:
    """Write a time with the zone's name; None if that is UTC, or a zone that Python does not know."""
    try:
        zone: tzinfo = ZoneInfo(name) if name[:1] not in "+-" else _offset(name)
        there = (_START + timedelta(microseconds=micros)).astimezone(zone)
    except (ValueError, OSError, KeyError, OverflowError):
        return None
    return None if name in ("UTC", "Etc/UTC", "Z") else f"{there.isoformat(timespec='microseconds')} {name}"


def _offset(name: str) -> tzinfo:
    zone = datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
    return zone if zone is not None else UTC


def _start(payload: bytes) -> str:
    """Return bytes as text; bytes that are not text are written as Python writes them."""
    head = payload[:BYTES]
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(head, final=len(payload) <= BYTES)
    except UnicodeDecodeError:
        return head.decode("ascii", "backslashreplace")
