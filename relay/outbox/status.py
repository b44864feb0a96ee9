"""How an outbox stands, and what people do about refused rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from psycopg import AsyncConnection, Connection
from psycopg.rows import class_row

from relay.outbox import statements


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """`waiting` rows are on their way, `blocked` ones wait behind a refused row of their timer. `lag` is the
    age of the oldest that waits, in seconds."""

    waiting: int
    blocked: int
    refused: int
    lag: float


class RefusedRow(NamedTuple):
    """A row that a relay has refused for good, and the reason that it gave."""

    id: int
    action: str
    topic: str
    timer_id: str
    refused_at: datetime
    reason: str


async def look(connection: AsyncConnection[Any]) -> OutboxStatus:
    """Count the rows. Raises `psycopg.Error`."""
    async with connection.cursor(row_factory=class_row(OutboxStatus)) as cursor:
        found = await (await cursor.execute(statements.STATUS)).fetchone()
    assert found is not None
    return found


def status(connection: Connection[Any]) -> OutboxStatus:
    """Count the rows. Raises `psycopg.Error`."""
    with connection.cursor(row_factory=class_row(OutboxStatus)) as cursor:
        found = cursor.execute(statements.STATUS).fetchone()
    assert found is not None
    return found


def refused(connection: Connection[Any], most: int) -> list[RefusedRow]:
    """Read the oldest refused rows. Raises `psycopg.Error`."""
    return [RefusedRow(*row) for row in connection.execute(statements.REFUSED, {"most": most})]


def retry(connection: Connection[Any], ids: Sequence[int] | None) -> int:
    """Have movers try refused rows again, all if `ids` is None; returns how many. Raises `psycopg.Error`."""
    done = connection.execute(statements.RETRY, {"all": ids is None, "ids": list(ids or ())}).rowcount
    connection.execute(statements.WAKE)
    return done


def drop(connection: Connection[Any], ids: Sequence[int] | None) -> int:
    """Remove refused rows for good, all if `ids` is None; returns how many. Raises `psycopg.Error`."""
    done = connection.execute(statements.DROP, {"all": ids is None, "ids": list(ids or ())}).rowcount
    connection.execute(statements.WAKE)
    return done
