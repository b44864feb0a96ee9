"""Where an application has its transaction open, of which database, and how a statement is run there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session


class DatabaseCursor(Protocol):
    """What runs a statement with named parameters and blocks: a connection or a cursor of psycopg or of
    sqlite3, a cursor of Django's."""

    def execute(self, query: Any, params: Any = ..., /) -> Any:
        """Run it."""
        ...


class AsyncDatabaseCursor(Protocol):
    """The same on asyncio: an async connection or cursor of psycopg."""

    async def execute(self, query: Any, params: Any = ..., /) -> Any:
        """Run it."""
        ...


class AsyncpgConnection(Protocol):
    """A connection of asyncpg, or of its pool: parameters have numbers, `$1`."""

    async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
        """Run it; returns a text that ends in how many rows it has changed."""
        ...


Blocking = Session | scoped_session[Session] | Connection | DatabaseCursor
"""Where a blocking application writes."""

Async = (
    AsyncSession
    | async_scoped_session[AsyncSession]
    | AsyncConnection
    | AsyncDatabaseCursor
    | AsyncpgConnection
)
"""Where an application on asyncio writes."""


def dialect_of(where: Any) -> str:
    """The name of the database behind a session, connection or cursor, as SQLAlchemy has it. What nobody
    knows is taken for psycopg's like."""
    if isinstance(where, Connection | AsyncConnection):
        return str(where.dialect.name)
    if isinstance(where, AsyncSession | async_scoped_session | Session | scoped_session):
        return str(where.get_bind().dialect.name)
    if _is_of("sqlite3", where):
        return "sqlite"
    return str(getattr(getattr(where, "db", None), "vendor", "postgresql"))  # a cursor of Django's says it


def execute(where: Any, statement: str, rows: Sequence[Mapping[str, Any]]) -> Awaitable[int] | int:
    """Run a statement with parameters of the form `:name` for each row; returns how many rows the last one
    changed, or what is to be awaited for that. Raises what the database raises."""
    if isinstance(where, AsyncSession | async_scoped_session | AsyncConnection):
        return _sqlalchemy_async(where, _text(statement), rows)
    if isinstance(where, Session | scoped_session | Connection):
        result = None
        for row in _together(rows):
            result = where.execute(_text(statement), row)
        return _count(result)
    if _is_of("asyncpg", where):
        return _asyncpg(where, statement, rows)
    if inspect.iscoroutinefunction(where.execute):
        return _driver_async(where, _formatted(statement), rows)
    written = statement if _is_of("sqlite3", where) else _formatted(statement)
    result = None
    for row in rows:
        result = where.execute(written, row)
    return _count(where if result is None and rows else result)  # Django's cursors return nothing


def _is_of(driver: str, where: Any) -> bool:
    """Whether its class is the driver's, or derived from one of those."""
    return any(each.__module__.partition(".")[0] == driver for each in type(where).__mro__)


async def _sqlalchemy_async(where: Any, statement: TextClause, rows: Sequence[Mapping[str, Any]]) -> int:
    result = None
    for row in _together(rows):
        result = await where.execute(statement, row)
    return _count(result)


async def _driver_async(where: Any, statement: str, rows: Sequence[Mapping[str, Any]]) -> int:
    result = None
    for row in rows:
        result = await where.execute(statement, row)
    return _count(result)


async def _asyncpg(where: Any, statement: str, rows: Sequence[Mapping[str, Any]]) -> int:
    query, names = _numbered(statement)
    status = "0"
    for row in rows:
        status = await where.execute(query, *(row[name] for name in names))
    return int(status.rpartition(" ")[2])  # as in INSERT 0 1


def _together(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The parameters of each call of SQLAlchemy, which takes many rows at once but says of one alone how many
    rows it has changed."""
    return [list(rows)] if len(rows) > 1 else list(rows)


def _count(result: Any) -> int:
    return 0 if result is None else int(result.rowcount)


_text = cache(text)


@cache
def _formatted(statement: str) -> str:
    return re.sub(r":(\w+)", r"%(\1)s", statement)


@cache
def _numbered(statement: str) -> tuple[str, list[str]]:
    """The statement with `$1` in the place of the first name, and the names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        names.append(found[1])
        return f"${len(names)}"

    return re.sub(r":(\w+)", number, statement), names
