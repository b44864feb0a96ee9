"""What commands print: text for people, or JSON with stable field names."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from relay.client import ChangeResult, ExpectedLoad, ScheduledTimer, Timer, TimerChange, TimerInfo
from relay.client.calls.topic_values import DeadLetter

if TYPE_CHECKING:
    from rich.console import RenderableType


def document(value: dict[str, Any]) -> None:
    """Print one JSON document on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def iso(moment: datetime) -> str:
    """Format an instant in ISO 8601, in UTC with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def safe(text: str) -> str:
    """Escape what is not printable, so that a text can't control the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def block(rows: Sequence[tuple[str, str]]) -> str:
    """Format labels and values, one pair a line."""
    width = max(len(safe(label)) for label, _ in rows)
    return "\n".join(f"{safe(label):{width}}  {safe(value)}".rstrip() for label, value in rows)


def name(topic: str, timer_id: str) -> str:
    """The name of a timer in a sentence."""
    return f"{safe(topic)}/{safe(timer_id)}"


def partitions(count: int) -> str:
    """A number of partitions, as words of a sentence."""
    return f"{count} partition{'' if count == 1 else 's'}"


def timers(count: int) -> str:
    """The same of timers."""
    return f"{count:,} timer{'' if count == 1 else 's'}"


def dead_letters(count: int) -> str:
    """The same of dead letters."""
    return f"{count:,} dead letter{'' if count == 1 else 's'}"


def size(count: int) -> str:
    """A number of bytes, such as `1.2 MiB`."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.1f} {unit}"


def scheduled(timer: ScheduledTimer, as_json: bool) -> None:
    """Print what `schedule` answers."""
    if as_json:
        told = {"replaced": timer.replaced, "delivery_under_way": timer.delivery_under_way}
        document(
            {
                **fields(timer),
                **told,
                "result": timer.result.value,
                "durability": timer.durability,
                **({} if timer.expected_load is None else {"expected_load": _load(timer.expected_load)}),
            }
        )
        return
    called, due = name(timer.topic, timer.timer_id), iso(timer.due_time)
    if timer.result in (ChangeResult.UNCHANGED, ChangeResult.IN_FLIGHT):
        typer.echo(f"left {called} as it is: it exists, due {due}{as_durable(timer)}{under_way(timer)}")
    else:
        done = "rescheduled" if timer.replaced else "scheduled"
        typer.echo(f"{done} {called} for {due}{as_durable(timer)}{under_way(timer)}")
    if timer.expected_load is not None:
        typer.echo(_expected(timer.expected_load))


def _expected(load: ExpectedLoad) -> str:
    falls = "falls" if load.timers_in_minute == 1 else "fall"
    minute = f"{timers(load.timers_in_minute)} {falls} due in that minute"
    if load.lateness is None:
        return f"{minute}; this relay has not delivered any lately, and can't tell how late it will be"
    late = f"{load.lateness.total_seconds():,.1f} s"
    shown = f"{load.rate:,.1f} timers a second that this relay has shown"
    return f"expected to be {late} late, at the {shown}; {minute}"


def _load(load: ExpectedLoad) -> dict[str, Any]:
    lateness = load.lateness
    return {
        "lateness_seconds": None if lateness is None else lateness.total_seconds(),
        "rate": load.rate,
        "timers_in_minute": load.timers_in_minute,
        "as_of": iso(load.as_of),
    }


def as_durable(change: ScheduledTimer | TimerChange) -> str:
    """Return what to add about the durability that was waited for; nothing if none was."""
    return "" if change.durability == "stored" else f" ({change.durability})"


def under_way(change: ScheduledTimer | TimerChange) -> str:
    """Return what to add about a delivery that was under way; nothing if none was."""
    told = "; a delivery was under way, and its handler may still be running"
    return told if change.delivery_under_way else ""


def timer(found: Timer, as_json: bool) -> None:
    """Print what `get` answers."""
    if as_json:
        document({**fields(found), **content(found)})
        return
    text = decoded(found.payload)
    shown = f"{len(found.payload)} bytes, not text (--json has them)" if text is None else safe(text)
    rows = [
        *((label.replace("_", " "), str(value)) for label, value in fields(found).items()),
        *content_rows(found),
        ("payload", shown),
    ]
    typer.echo(block(rows))


def fields(found: TimerInfo) -> dict[str, Any]:
    """Return the fields that every answer about a timer has."""
    return {
        "topic": found.topic,
        "timer_id": found.timer_id,
        "state": found.state.value,
        "due_time": iso(found.due_time),
        "next_claim_time": iso(found.next_claim_time),
        "attempts": found.attempts,
    }


def content(found: Timer | DeadLetter) -> dict[str, Any]:
    """Return the fields of the content, for JSON."""
    text = decoded(found.payload)
    return {
        "payload": base64.b64encode(found.payload).decode() if text is None else text,
        "payload_encoding": "base64" if text is None else "utf-8",
        "headers": dict(found.headers),
        "content_type": found.content_type,
        **({"content_withheld": True} if found.content_withheld else {}),
    }


def content_rows(found: Timer | DeadLetter, width: int | None = None) -> list[tuple[str, str]]:
    """Return labels and values of the content beside the payload. Headers are cut to `width` characters."""
    if found.content_withheld:
        return [("content", "withheld: the relay's policy does not give you the verb payload")]
    headers = [(f"header {key}", cut(value, width)) for key, value in sorted(found.headers.items())]
    return [("content type", found.content_type), *headers]


def cut(text: str, width: int | None) -> str:
    """Cut a text to `width` characters, if that is given."""
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def decoded(payload: bytes) -> str | None:
    """Return a payload as text, or None if it is not text."""
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


class Listing:
    """Shows what `list` answers: JSON lines as they come, or a table at the end."""

    def __init__(self, as_json: bool) -> None:
        self.count = 0
        self.has_more = False
        self._as_json = as_json
        self._rows: list[TimerInfo] = []

    def add(self, found: TimerInfo) -> None:
        """Add one timer."""
        self.count += 1
        if self._as_json:
            document(fields(found))
        else:
            self._rows.append(found)

    def rendered(self, topic: str) -> RenderableType:
        """Return the table, and say what is not in it."""
        from relay.cli.terminal import tables

        if self.has_more:
            tables.remark(f"there are more: these are the first {self.count} (--limit)")
        if not self._rows:
            tables.remark(f"no timers in {safe(topic)}")
            return ""
        return tables.table(TITLES, [_row(row) for row in self._rows])


TITLES = ("timer id", "state", "due", "next claim", "attempts>")


def _row(found: TimerInfo) -> tuple[str, ...]:
    due, claim = iso(found.due_time), iso(found.next_claim_time)
    return found.timer_id, found.state.value, due, claim, str(found.attempts)
