"""Recurrences as commands print them: for people, and as JSON in the words of the API."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration

from relay.cli.terminal import output
from relay.client.calls.recurrence_values import PastInstant, Recurrence, RecurrenceInfo

LINES = (
    "cron",
    "rrule",
    "every",
    "anchor_time",
    "zone",
    "gap",
    "fold",
    "start_time",
    "end_time",
    "leave_out",
    "calendars",
)


def spec(found: RecurrenceInfo) -> dict[str, Any]:
    """What it is, without what has its default: an entry of a file that `relay recur apply` takes."""
    rule = {
        "cron": found.cron,
        "rrule": found.rrule,
        "every": span(found.every),
        "anchor_time": iso(found.anchor_time),
        "zone": found.zone,
        "gap": _unless(found.gap, "shift"),
        "fold": _unless(found.fold, "first"),
        "start_time": iso(found.start_time),
        "end_time": iso(found.end_time),
        "leave_out": list(found.leave_out),
        "calendars": list(found.calendars),
    }
    fields = {
        "topic": found.topic,
        "recurrence_id": found.recurrence_id,
        "rule": _given(rule),
        **(_content(found) if isinstance(found, Recurrence) else {}),
        "content_type": found.content_type,
        "overlap": _unless(found.overlap, "skip"),
        "catch_up": _unless(found.catch_up, "latest"),
        "catch_up_window": span(found.catch_up_window),
        "jitter": span(found.jitter or None),
        "expire_after": span(found.expire_after),
        "max_runs": found.max_runs,
    }
    return _given(fields)


def document(found: RecurrenceInfo) -> dict[str, Any]:
    """What it is, and where it stands."""
    return {
        **spec(found),
        "version": found.version,
        "next_time": iso(found.next_time),
        "last_timer_id": found.last_timer_id,
        "last_time": iso(found.last_time),
        "last_waits": found.last_waits,
        "runs": found.runs,
        "left_out": dict(found.left_out),
        "buffered_time": iso(found.buffered_time),
        "to_fill": found.to_fill,
        "paused": found.paused,
        "pause_time": iso(found.pause_time),
        "pause_note": found.pause_note,
        "tzdata": found.tzdata,
        "missing_calendars": list(found.missing_calendars),
        **({"forgotten": True} if found.forgotten else {}),
    }


def rows(found: Recurrence) -> list[tuple[str, str]]:
    """Labels and values, for people."""
    said = spec(found)
    rule, text = said.pop("rule"), output.decoded(found.payload)
    if "payload" in said:
        said["payload"] = f"{len(found.payload)} bytes, not text (--json has them)" if text is None else text
    return [
        *((name.replace("_", " "), line(value)) for name, value in {**said, **rule}.items()),
        ("version", str(found.version)),
        ("next", iso(found.next_time) or "none: it has ended"),
        ("last", _last(found)),
        ("runs", str(found.runs)),
        ("left out", counts(found) or "none"),
        *([("buffered", iso(found.buffered_time) or "")] if found.buffered_time else []),
        *([("to fill in", str(found.to_fill))] if found.to_fill else []),
        ("paused", pause_of(found)),
        ("time zones", found.tzdata),
        *([("missing", missing(found))] if found.missing_calendars else []),
        *([("subject", "forgotten: its content is unreadable for good")] if found.forgotten else []),
    ]


def passed(found: PastInstant) -> dict[str, Any]:
    """What came of an instant."""
    return {
        "time": iso(found.time),
        "timer_id": found.timer_id,
        "left_out": found.left_out,
        "lateness": span(found.lateness),
        "outcome": found.outcome,
        "reason": found.reason,
        "attempts": found.attempts,
        "end_time": iso(found.end_time),
    }


def passed_row(found: PastInstant) -> tuple[str, ...]:
    """The same for people."""
    return (
        output.iso(found.time),
        found.timer_id or f"none: {found.left_out}",
        f"{found.lateness.total_seconds():.3f} s",
        f"{found.outcome}: {found.reason}" if found.reason else found.outcome,
        str(found.attempts or ""),
        iso(found.end_time) or "",
    )


def when(found: RecurrenceInfo) -> str:
    """The rule in short, such as `0 3 * * * Europe/Berlin`."""
    said = found.cron or found.rrule or f"every {span(found.every)}"
    return f"{said} {found.zone}".rstrip()


def counts(found: RecurrenceInfo) -> str:
    """How many instants were left out, by reason."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(found.left_out.items()))


def pause_of(found: RecurrenceInfo) -> str:
    """Since when it is paused, and why."""
    if found.pause_time is None:
        return "no"
    return f"since {output.iso(found.pause_time)}" + (f": {found.pause_note}" if found.pause_note else "")


def missing(found: RecurrenceInfo) -> str:
    """Which of its calendars do not exist."""
    return f"{', '.join(found.missing_calendars)}: no such calendar, so that nothing is left out for it"


def iso(moment: datetime | None) -> str | None:
    """An instant, as scripts read it."""
    return None if moment is None else output.iso(moment)


def span(length: timedelta | None) -> str | None:
    """A length of time, as the API writes it: `90s`."""
    if length is None:
        return None
    message = Duration()
    message.FromTimedelta(length)
    return message.ToJsonString()


def _last(found: Recurrence) -> str:
    if not found.last_timer_id:
        return "none"
    return f"{found.last_timer_id}, which has {'not ended' if found.last_waits else 'ended'}"


def _content(found: Recurrence) -> dict[str, Any]:
    """The payload in the form in which people would write it, and the headers."""
    if found.content_withheld:
        return {"content_withheld": True}
    text = output.decoded(found.payload)
    kind = found.content_type.partition(";")[0].strip().lower()
    content: dict[str, Any] = {"payload": base64.b64encode(found.payload).decode()}
    if text is not None and kind == "application/json":
        try:
            content = {"message": json.loads(text)}
        except ValueError:
            pass  # it is not what it says
    elif text is not None and kind.startswith("text/"):
        content = {"message": text}
    return {**content, "headers": dict(found.headers), "seal_with": found.seal_with}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.items()
        if name == "message" or value not in (None, "", 0, [], {})
    }


def _unless(word: str, default: str) -> str:
    return "" if word == default else word


def line(value: Any) -> str:
    """A value, for people."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
