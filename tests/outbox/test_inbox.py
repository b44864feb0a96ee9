"""Effects happen once, whatever is redelivered."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from relay import inbox
from relay.client import Delivery, NewTimer, RelayClient
from relay.client.testing import InMemoryRelay
from relay.outbox import UnsupportedDatabase
from tests.outbox.desk import BOTH, Desk
from tests.outbox.test_writing import of_another_kind
from tests.worlds.waiting import until


async def deliveries() -> list[Delivery]:
    """Two of one occurrence, and one of another."""
    client, seen = RelayClient(), list[Delivery]()

    @client.on("orders")
    async def handle(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 1:
            raise RuntimeError("the first attempt fails")

    relay = InMemoryRelay(client)
    async with relay, client:
        await client.schedule_batch(
            [NewTimer(topic="orders", payload=b"", delay=n, timer_id=f"t{n}") for n in (0, 9)]
        )
        await relay.advance(seconds=600)
    first, again, other = seen if seen[1].timer_id == "t0" else (seen[0], seen[2], seen[1])
    assert first.occurrence_id == again.occurrence_id != other.occurrence_id
    return [first, again, other]


@pytest.mark.slow
async def test_each_occurrence_is_first_once(desk: Desk) -> None:
    """By sessions of SQLAlchemy, by plain psycopg and by asyncpg; what is rolled back was not handled."""
    first, again, other = await deliveries()
    engine = create_engine(desk.sqlalchemy_url)
    with Session(engine) as session:
        assert inbox.is_first(session, first)
        session.rollback()
        assert inbox.is_first(session, first)
        session.commit()
        assert not inbox.is_first(session, again)
    engine.dispose()
    with psycopg.connect(desk.database) as plain, plain.cursor() as cursor:
        assert not inbox.is_first(plain, again)
        assert not inbox.is_first(cursor, again)
        connection = await asyncpg.connect(desk.database)
        assert not await inbox.is_first(connection, again)
        await connection.close()
        assert inbox.is_first(cursor, other)
    assert not inbox.is_first(desk.connection, other)
    with pytest.raises(UnsupportedDatabase, match="mysql"):
        inbox.is_first(of_another_kind("mysql"), first)


async def test_two_deliveries_at_once(desk: Desk) -> None:
    """The second waits for the transaction of the first: it is no first one if that commits, and is if it
    does not."""
    first, again, other = await deliveries()
    engine = create_async_engine(desk.sqlalchemy_url)
    for commits, delivery in ((False, other), (True, first)):
        async with AsyncSession(engine) as one, AsyncSession(engine) as two:
            assert await inbox.is_first(one, delivery)
            second = asyncio.create_task(inbox_of(two, again if delivery is first else other))
            await until(lambda: blocked(desk))
            assert not second.done()
            await (one.commit() if commits else one.rollback())
            assert await second is not commits
            await two.commit()
    await engine.dispose()
    assert desk.connection.execute("SELECT count(*) FROM relay_inbox").fetchone() == (2,)


async def inbox_of(session: AsyncSession, delivery: Delivery) -> bool:
    return await inbox.is_first(session, delivery)


def blocked(desk: Desk) -> bool:
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return desk.connection.execute(waiting).fetchone() is not None


@BOTH
async def test_what_is_old_is_pruned(desk: Desk) -> None:
    """And nothing that is younger."""
    for days in range(1, 61):
        desk.handled(f"id-{days}", days)
    assert inbox.prune(desk.connection, timedelta(days=30, hours=12)) == 30
    left = {name for (name,) in desk.connection.execute("SELECT occurrence_id FROM relay_inbox").fetchall()}
    assert left == {f"id-{days}" for days in range(1, 31)}
