"""Where an application has its transaction open, and how a statement is run there."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from sqlalchemy import Connection, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from relay.outbox.tables import UnsupportedDatabase


class DatabaseCursor(Protocol):
    """What runs a statement with named parameters, `%(name)s`, and blocks: a connection or a cursor of
    psycopg, a cursor of Django's."""

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


def execute(where: Any, statement: str, rows: Sequence[Mapping[str, Any]]) -> Awaitable[int] | int:
    """Run a statement with parameters of the form `:name` for each row; returns how many rows the last one
    changed, or what is to be awaited for that. Raises what the database raises, and `UnsupportedDatabase`."""
    if isinstance(where, AsyncSession | async_scoped_session | AsyncConnection):
        return _sqlalchemy_async(where, _known(where, statement), rows)
    if isinstance(where, Session | scoped_session | Connection):
        result = None
        for row in _together(rows):
            result = where.execute(_known(where, statement), row)
        return _count(result)
    if any(each.__module__.partition(".")[0] == "asyncpg" for each in type(where).__mro__):
        return _asyncpg(where, statement, rows)
    if inspect.iscoroutinefunction(where.execute):
        return _driver_async(where, _formatted(statement), rows)
    result = None
    for row in rows:
        result = where.execute(_formatted(statement), row)
    return _count(where if result is None and rows else result)  # Django's cursors return nothing


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


def _known(where: Any, statement: str) -> TextClause:
    """The statement; a database of another kind is refused here, before it complains of SQL."""
    bind = where if isinstance(where, Connection | AsyncConnection) else where.get_bind()
    if bind.dialect.name != "postgresql":
        raise UnsupportedDatabase(f"the outbox needs PostgreSQL, and this session is of {bind.dialect.name}")
    return _text(statement)


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
