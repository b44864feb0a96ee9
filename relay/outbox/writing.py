"""What an application writes in its transaction: a row for each intent."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, overload

from relay.client import NewTimer
from relay.client.arguments import Seconds, check_name
from relay.client.errors import InvalidArgument
from relay.outbox.databases import spelling_of
from relay.outbox.where import Async, Blocking, execute

_NOTHING: Mapping[str, Any] = {
    "payload": b"",
    "headers": {},
    "content_type": "",
    "seal_with": "",
} | dict.fromkeys(("due_time", "delay", "expire_time", "expire_after", "spread"))


@overload
def schedule(where: Async, timer: NewTimer) -> Awaitable[int]: ...
@overload
def schedule(where: Blocking, timer: NewTimer) -> int: ...


def schedule(where: Async | Blocking, timer: NewTimer) -> Awaitable[int] | int:
    """Schedule a timer if the transaction commits; it replaces one that lives under its id.

    `where` is a session or connection of SQLAlchemy, a connection or cursor of psycopg, sqlite3 or Django, or
    a connection of asyncpg; from one that is async the result is to be awaited. A `delay` counts from this
    call. The occurrence is named by the row, so the timer has no `occurrence_id`, nor `debounce`. Raises
    `InvalidArgument`, `UnsupportedDatabase` and what the database raises.
    """
    return _write(where, [_row("schedule", timer)])


@overload
def schedule_batch(where: Async, timers: Iterable[NewTimer]) -> Awaitable[int]: ...
@overload
def schedule_batch(where: Blocking, timers: Iterable[NewTimer]) -> int: ...


def schedule_batch(where: Async | Blocking, timers: Iterable[NewTimer]) -> Awaitable[int] | int:
    """Schedule many timers, as `schedule` does each: a later one replaces an earlier one of its id."""
    return _write(where, [_row("schedule", timer) for timer in timers])


@overload
def move(where: Async, timer: NewTimer) -> Awaitable[int]: ...
@overload
def move(where: Blocking, timer: NewTimer) -> int: ...


def move(where: Async | Blocking, timer: NewTimer) -> Awaitable[int] | int:
    """Put this timer in the place of the one that waits under its id, if the transaction commits.

    If none waits, because it was delivered, is being delivered or was cancelled, nothing changes: so a
    reminder that was sent already is not sent again. `timer` is whole, with its payload. Otherwise as
    `schedule`.
    """
    return _write(where, [_row("move", timer)])


@overload
def cancel(where: Async, topic: str, timer_id: str) -> Awaitable[int]: ...
@overload
def cancel(where: Blocking, topic: str, timer_id: str) -> int: ...


def cancel(where: Async | Blocking, topic: str, timer_id: str) -> Awaitable[int] | int:
    """Cancel a timer if the transaction commits, also one that an earlier row schedules. Otherwise as
    `schedule`."""
    check_name(topic, "topic")
    check_name(timer_id, "timer_id")
    row = {**_NOTHING, "occurrence": uuid.uuid4(), "action": "cancel", "topic": topic, "timer_id": timer_id}
    return _write(where, [row])


def _write(where: Async | Blocking, rows: Sequence[Mapping[str, Any]]) -> Awaitable[int] | int:
    spelling = spelling_of(where)
    return execute(where, spelling.write, [spelling.parameters(row) for row in rows])


def _row(action: str, timer: NewTimer) -> dict[str, Any]:
    for field in ("occurrence_id", "debounce"):
        if getattr(timer, field):
            why = (
                "the row names the occurrence"
                if field == "occurrence_id"
                else "each of its calls is another timer"
            )
            raise InvalidArgument(f"{field} is not for the outbox: {why}; leave it out", field=field)
    return {
        "occurrence": uuid.uuid4(),
        "action": action,
        "topic": timer.topic,
        "timer_id": timer.timer_id,
        "payload": timer.payload,
        "headers": dict(timer.headers),
        "content_type": timer.content_type,
        "due_time": timer.due_time,
        "delay": _length(timer.delay),
        "expire_time": timer.expire_time,
        "expire_after": _length(timer.expire_after),
        "spread": _length(timer.spread),
        "seal_with": timer.seal_with,
    }


def _length(value: Seconds | None) -> timedelta | None:
    return timedelta(seconds=value) if isinstance(value, int | float) else value
