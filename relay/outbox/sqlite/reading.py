"""Rows of SQLite as the values of the outbox.

Its checks can't say that text is UTF-8, or that headers are JSON. A row that can't be read is refused with
the reason, as one that a relay refuses: it must not hold up all others.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

from relay.outbox.handing_over import OutboxRow
from relay.outbox.sqlite.values import to_instant, to_length
from relay.outbox.status import RefusedRow


def outbox_row(found: tuple[Any, ...]) -> OutboxRow:
    """A row of `statements.read`."""
    (id_, occurrence, action, topic, timer_id, payload, headers, content_type) = found[:8]
    (due_time, delay, expire_time, expire_after, spread, seal_with, age) = found[8:]
    texts = {"topic": topic, "timer_id": timer_id, "content_type": content_type, "seal_with": seal_with}
    faults = [f"{name}: is not UTF-8" for name, value in texts.items() if not _is_text(value)]
    try:
        read = _headers(headers)
    except (ValueError, RecursionError):
        faults.append("headers: are not a JSON object whose values are texts")
        read = {}
    return OutboxRow(
        id=id_,
        occurrence=UUID(hex=occurrence),
        action=action,
        topic=topic,
        timer_id=timer_id,
        payload=payload,
        headers=read,
        content_type=content_type,
        due_time=to_instant(due_time),
        delay=to_length(delay),
        expire_time=to_instant(expire_time),
        expire_after=to_length(expire_after),
        spread=to_length(spread),
        seal_with=seal_with,
        age=timedelta(seconds=age),
        fault=faults[0] if faults else "",
    )


def refused_row(found: tuple[Any, ...]) -> RefusedRow:
    """A row of `statements.REFUSED`; what is not UTF-8 is shown as well as it can be."""
    id_, action, topic, timer_id, refused_at, reason = found
    at = to_instant(refused_at)
    assert at is not None
    return RefusedRow(id_, action, _shown(topic), _shown(timer_id), at, reason)


def _headers(given: str) -> dict[str, str]:
    read = json.loads(given)
    if not isinstance(read, dict) or not all(_is_text(text) for pair in read.items() for text in pair):
        raise ValueError
    return read


def _is_text(value: object) -> bool:
    """Whether it is text that has UTF-8. Raises `ValueError` for other halves of a character than bytes that
    were not UTF-8: JSON may name them."""
    return isinstance(value, str) and (value.isascii() or _shown(value) == value)


def _shown(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
