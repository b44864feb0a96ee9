"""What a timer carries, in a form that people can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relay.console.shown import visible
from relay.core.errors import InvalidField

MOST_TEXT = 64 * 1024
"""The bytes of a text that a page shows."""

MOST_EDITED = 8 * 1024
"""The bytes of a text that a page lets people edit. A form has up to six for each, and must fit into one."""

MOST_HEX = 4 * 1024
"""The bytes of anything else that a page shows."""

MOST_PARTS = 2_000
"""The values of a document that are folded one by one."""

MOST_DEEP = 30
"""The levels of a document that are folded."""

ROW = 16
"""The bytes of a row of digits."""


@dataclass(frozen=True, slots=True)
class Part:
    """A value of a JSON document: a leaf has `text`, others have `parts`, each with its `label`."""

    label: str
    text: str = ""
    kind: str = "leaf"
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownContent:
    """A payload as a page shows it. `form` is `json` (then `document` is there), `text`, `hex` or `empty`;
    `left_out` is how many bytes of it are not shown."""

    form: str
    size: int
    text: str = ""
    document: Part | None = None
    left_out: int = 0


def shown(payload: bytes, content_type: str) -> ShownContent:
    """Choose a form: JSON where it parses as that, else text where it is UTF-8, else digits."""
    if not payload:
        return ShownContent("empty", 0)
    size = len(payload)
    if size <= MOST_TEXT and _may_be_json(payload, content_type):
        document = _document(payload)
        if document is not None:
            return ShownContent("json", size, document=document)
    text = _text(payload)
    if text is not None:
        return ShownContent("text", size, text, left_out=max(size - MOST_TEXT, 0))
    return ShownContent("hex", size, _digits(payload[:MOST_HEX]), left_out=max(size - MOST_HEX, 0))


def editable(payload: bytes) -> str | None:
    """The payload as a text that a form gives back byte for byte; None where a form would not, or where what
    people see is not what there is: characters that do not show, or that turn others around."""
    if len(payload) > MOST_EDITED:
        return None
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None


def edited(text: str, before: bytes, content_type: str) -> bytes:
    """The payload of a form, whose lines end as HTML says. Raises `InvalidField` where it was JSON and is no
    more."""
    payload = text.replace("\r\n", "\n").encode()
    was_json = _may_be_json(before, content_type) and _problem_of(before) is None
    if was_json and (problem := _problem_of(payload)):
        raise InvalidField("payload", f"was JSON and is no more: {problem}")
    return payload


def _problem_of(document: bytes) -> str | None:
    """Return why it is not JSON, or None if it is. The reason names the place and quotes nothing."""
    try:
        json.loads(document)
    except json.JSONDecodeError as problem:
        return f"{problem.msg} in line {problem.lineno}, column {problem.colno}"
    except (ValueError, RecursionError):
        return "it is not to be read"
    return None


def trace_id(headers: Mapping[str, str]) -> str:
    """The id of the trace that a timer belongs to, by its W3C header; empty if it has none."""
    parts = headers.get("traceparent", "").split("-")
    found = parts[1] if len(parts) == 4 else ""
    is_id = len(found) == 32 and found.strip("0123456789abcdef") == "" and found.strip("0") != ""
    return found if is_id else ""


def _may_be_json(payload: bytes, content_type: str) -> bool:
    return "json" in content_type or payload[:1] in (b"{", b"[")


def _document(payload: bytes) -> Part | None:
    try:
        value = json.loads(payload)
        budget = [MOST_PARTS]
        return _part("", value, budget, 0)
    except (ValueError, RecursionError):
        return None


def _part(label: str, value: Any, budget: list[int], deep: int) -> Part:
    """Fold a value. Raises `ValueError` if the document has too many values, or is too deep."""
    budget[0] -= 1
    if budget[0] < 0 or deep > MOST_DEEP:
        raise ValueError("too much to fold")
    if isinstance(value, dict):
        inner = tuple(_part(visible(key), each, budget, deep + 1) for key, each in value.items())
        return Part(label, f"{len(inner)}", "object", inner)
    if isinstance(value, list):
        inner = tuple(_part(str(place), each, budget, deep + 1) for place, each in enumerate(value))
        return Part(label, f"{len(inner)}", "list", inner)
    return Part(label, visible(json.dumps(value, ensure_ascii=False)), type(value).__name__)


def _text(payload: bytes) -> str | None:
    """The beginning of a text; None if it is not UTF-8, or has bytes that no text has."""
    beginning = payload[:MOST_TEXT]
    try:
        text = beginning.decode("utf-8")
    except UnicodeDecodeError as failure:
        if failure.reason != "unexpected end of data" or len(payload) <= MOST_TEXT:
            return None
        text = beginning[: failure.start].decode("utf-8")
    return None if "\0" in text else visible(text.replace("\r\n", "\n"), lines=True)


def _digits(payload: bytes) -> str:
    rows = []
    for start in range(0, len(payload), ROW):
        part = payload[start : start + ROW]
        plain = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in part)
        rows.append(f"{start:08x}  {part.hex(' '):<{3 * ROW}} {plain}")
    return "\n".join(rows)
