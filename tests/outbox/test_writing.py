"""What an application writes: rows of its own transaction, whichever way it speaks to its database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import Connection, MetaData, create_engine, event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relay import outbox
from relay.client.errors import InvalidArgument
from tests.outbox.desk import BOTH, POSTGRES, SQLITE, Desk

Write = Callable[[Any], Any]


def of_another_kind(vendor: str) -> Any:
    """A cursor of Django's for a database that has no outbox."""
    return SimpleNamespace(db=SimpleNamespace(vendor=vendor), execute=None)


async def sync_session(desk: Desk, write: Write, commit: bool) -> None:
    engine = create_engine(desk.sqlalchemy_url)
    with Session(engine) as session:
        write(session)
        session.commit() if commit else session.rollback()
    with engine.connect() as connection:
        write(connection)
        connection.commit() if commit else connection.rollback()
    engine.dispose()


async def async_session(desk: Desk, write: Callable[[Any], Awaitable[Any]], commit: bool) -> None:
    await in_session(desk.sqlalchemy_url, write, commit)


async def asyncpg_session(desk: Desk, write: Callable[[Any], Awaitable[Any]], commit: bool) -> None:
    await in_session(desk.sqlalchemy_url.replace("psycopg", "asyncpg"), write, commit)


async def aiosqlite_session(desk: Desk, write: Callable[[Any], Awaitable[Any]], commit: bool) -> None:
    await in_session(desk.sqlalchemy_url.replace("sqlite:", "sqlite+aiosqlite:"), write, commit)


async def in_session(url: str, write: Callable[[Any], Awaitable[Any]], commit: bool) -> None:
    engine = create_async_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine.sync_engine, "begin", begin_with_the_lock)
    async with AsyncSession(engine) as session:
        await write(session)
        await (session.commit() if commit else session.rollback())
    async with engine.connect() as connection:
        await write(connection)
        await (connection.commit() if commit else connection.rollback())
    await engine.dispose()


async def plain(desk: Desk, write: Write, commit: bool) -> None:
    with desk.connect() as connection:
        for where in (connection, connection.cursor()):
            assert write(where) == 1
            connection.commit() if commit else connection.rollback()


async def plain_async(desk: Desk, write: Callable[[Any], Awaitable[Any]], commit: bool) -> None:
    connection = await psycopg.AsyncConnection.connect(desk.database)
    async with connection, connection.cursor() as cursor:
        for where in (connection, cursor):
            await write(where)
            await (connection.commit() if commit else connection.rollback())


def begin_with_the_lock(connection: Connection) -> None:
    """As the page says for SQLite."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


class OwnConnection(asyncpg.Connection):  # type: ignore[misc]
    """A connection's class of the application's own, as asyncpg takes one."""


async def plain_asyncpg(desk: Desk, write: Callable[[Any], Awaitable[Any]], commit: bool) -> None:
    async def in_transaction(connection: Any) -> None:
        transaction = connection.transaction()
        await transaction.start()
        assert await write(connection) == 1
        await (transaction.commit() if commit else transaction.rollback())

    async with asyncpg.create_pool(desk.database, min_size=1, max_size=1) as pool, pool.acquire() as pooled:
        await in_transaction(pooled)
    connection = await asyncpg.connect(desk.database, connection_class=OwnConnection)
    await in_transaction(connection)
    await connection.close()


@pytest.mark.parametrize(
    ("desk", "way"),
    [
        *((POSTGRES, way) for way in (sync_session, async_session, asyncpg_session, plain)),
        *((POSTGRES, way) for way in (plain_async, plain_asyncpg)),
        *((SQLITE, way) for way in (sync_session, aiosqlite_session, plain)),
    ],
    indirect=["desk"],
)
async def test_a_row_is_of_the_transaction(desk: Desk, way: Any) -> None:
    """Of one that is rolled back nothing stays; of one that commits each row has all that its timer has."""
    due = datetime(2030, 1, 31, 9, tzinfo=UTC)
    timer = desk.new(
        "ü", b"\x00\xff", due_time=due, headers={"k": "ö"}, content_type="a/b", expire_after=60, spread=1.5
    )

    def write(where: Any) -> Any:
        return outbox.schedule(where, timer)

    await way(desk, write, False)
    assert desk.rows() == []
    await way(desk, write, True)
    first, second = desk.rows()
    assert first["occurrence"] != second["occurrence"]
    assert first["lane"] == second["lane"]
    expected = {
        "action": "schedule", "topic": desk.topic, "timer_id": "ü", "payload": b"\x00\xff", "due_time": due,
        "headers": {"k": "ö"}, "content_type": "a/b", "delay": None, "expire_time": None,
        "expire_after": timedelta(seconds=60), "spread": timedelta(seconds=1.5), "seal_with": "",
        "refused_at": None, "reason": None,
    }  # fmt: skip
    assert {name: first[name] for name in expected} == expected


@BOTH
async def test_many_and_other_intents(desk: Desk) -> None:
    """Their order is that of the calls."""
    engine = create_engine(desk.sqlalchemy_url)
    with Session(engine) as session, session.begin():
        outbox.schedule_batch(session, [desk.new(f"t{n}") for n in range(3)])
        outbox.schedule_batch(session, [])
        outbox.move(session, desk.new("t1", b"moved"))
        outbox.cancel(session, desk.topic, "t2")
    engine.dispose()
    told = [(row["action"], row["timer_id"]) for row in desk.rows()]
    assert told == [*(("schedule", f"t{n}") for n in range(3)), ("move", "t1"), ("cancel", "t2")]


async def test_what_is_refused_at_once(desk: Desk) -> None:
    """By the field's name, and before anything is written; a database of another kind by its own."""
    for field, timer in {
        "occurrence_id": desk.new("a", occurrence_id=f"a/{1:032x}"),
        "debounce": desk.new("a", debounce=1),
    }.items():
        with pytest.raises(InvalidArgument, match=field) as told:
            outbox.schedule(desk.connection, timer)
        assert told.value.field == field
    with pytest.raises(InvalidArgument, match="timer_id"):
        outbox.cancel(desk.connection, desk.topic, "")
    cursor = of_another_kind("mysql")
    with pytest.raises(outbox.UnsupportedDatabase, match="mysql"):
        outbox.schedule(cursor, desk.new("a"))
    with pytest.raises(outbox.UnsupportedDatabase, match="mysql"):
        outbox.create(cursor)
    with pytest.raises(outbox.UnsupportedDatabase, match="SQLAlchemy"):
        outbox.create(desk.connection)
    assert desk.rows() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("due_time", "'infinity'"),
        ("expire_time", "'-infinity'"),
        ("written_at", "'-infinity'"),
        ("delay", "interval '5000000 years'"),
        ("expire_after", "interval '-5000000 years'"),
        ("spread", "interval '5000000 years'"),
        ("timer_id", "(SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 100))"),
        ("payload", "convert_to(repeat('x', (64 << 20) + 1), 'UTF8')"),
        ("headers", "jsonb_build_object('a', repeat('x', 1 << 20))"),
        ("headers", "'[]'"),
        ("headers", "('{\"a\": 1' || repeat('0', 5000) || '}')::jsonb"),
        ("headers", "('{\"a\": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb"),
    ],
)
async def test_what_no_mover_could_read(desk: Desk, column: str, value: str) -> None:
    """Other languages write rows, too. The database refuses it: a mover would stop there, with all others
    behind it."""
    columns = {"action": "'cancel'", "topic": "'a'", "timer_id": "'b'", column: value}
    names, values = ", ".join(columns), ", ".join(columns.values())
    with pytest.raises(psycopg.errors.CheckViolation):
        desk.connection.execute(f"INSERT INTO relay_outbox ({names}) VALUES ({values})")


@pytest.mark.slow
@BOTH
async def test_created_again(desk: Desk) -> None:
    """Nothing changes, and no row is lost. Alembic finds all tables, with their columns and indexes."""
    desk.write(desk.new("a"))
    engine = create_engine(desk.sqlalchemy_url)
    for _ in range(2):
        with engine.begin() as connection:
            outbox.create(connection)
    known = outbox.sqlite_metadata if engine.dialect.name == SQLITE else outbox.metadata
    assert set(known.tables) == {"relay_outbox", "relay_outbox_lanes", "relay_inbox"}
    found = MetaData()
    found.reflect(engine)
    for name, table in known.tables.items():
        there = found.tables[name]
        assert {each.name for each in there.columns} == {each.name for each in table.columns}
        assert {each.name for each in there.indexes} == {each.name for each in table.indexes}
    engine.dispose()
    assert desk.count() == 1
