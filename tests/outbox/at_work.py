"""An application, its mover and its handler as processes that are killed at a statement.

    python -m tests.outbox.at_work write|move|handle

RELAY_TEST_AT names the place at which it stops, and RELAY_TEST_PASSES how often it passes there before. It
touches the file RELAY_TEST_GATE then, and waits to be killed, or for the file to go.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from relay import inbox, outbox
from relay.client import Delivery, NewTimer, RelayClient
from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.mover import OutboxMover
from relay.outbox.sqlite.database import SqliteOutbox

DATABASE = os.environ.get("RELAY_OUTBOX_DATABASE", "")
TOPIC = os.environ.get("RELAY_TEST_TOPIC", "")
ORDERS = 6
"""The number of orders of one run: every third is rolled back."""

passes = itertools.count(-int(os.environ.get("RELAY_TEST_PASSES", "0")))


def at(place: str) -> None:
    """Stop here, if this is the place: once."""
    if place != os.environ.get("RELAY_TEST_AT") or next(passes) != 0:
        return
    gate = Path(os.environ["RELAY_TEST_GATE"])
    gate.touch()
    while gate.exists():
        time.sleep(0.005)  # a gate between processes: the test removes the file


@contextlib.contextmanager
def connected(database: str) -> Iterator[Any]:
    """A connection with a transaction, which the block commits; in SQLite it begins with its lock."""
    if database.startswith("sqlite:///"):
        path = database.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, timeout=60)) as file, file:
            file.execute("BEGIN IMMEDIATE")
            yield file
    else:
        with psycopg.connect(database) as connection:
            yield connection


def write(database: str, topic: str) -> None:
    """Take orders, each with its timer, in a transaction."""
    for turn in range(ORDERS):
        with connected(database) as connection:
            found = connection.execute("INSERT INTO orders DEFAULT VALUES RETURNING id").fetchone()
            assert found is not None
            at("order written")
            timer = NewTimer(topic=topic, timer_id=f"order-{found[0]}", payload=b"", delay=0)
            outbox.schedule(connection, timer)
            at("row written")
            if turn % 3 == 2:
                connection.rollback()
            else:
                connection.commit()
            at("committed")


class Mover(OutboxMover):
    """It can stop between any two of its statements."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.database = Watched(self.database)

    async def hand_over(self, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
        at("rows read")
        done = await super().hand_over(rows, deadline)
        at("handed over")
        return done


class Watched:
    """A database that can stop around its calls, and before each statement of its last one."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def take(self, **options: Any) -> list[int]:
        lanes: list[int] = await self._database.take(**options)
        if lanes:
            at("lanes taken")
        return lanes

    async def settle(self, done: HandedOver, **options: Any) -> None:
        async with self.each_statement(lambda: at("settling")):
            await self._database.settle(done, **options)
        at("settled")

    @contextlib.asynccontextmanager
    async def each_statement(self, call: Callable[[], None]) -> AsyncIterator[None]:
        """Within the block call this before each statement."""
        if isinstance(self._database, SqliteOutbox):

            def seen(statement: str) -> None:
                if not statement.startswith("PRAGMA"):
                    call()

            run = self._database._thread.run
            await run(lambda connection: connection.set_trace_callback(seen))
            yield
            await run(lambda connection: connection.set_trace_callback(None))
            return
        connection = self._database._connection
        execute = connection.execute

        async def watched(*arguments: Any, **options: Any) -> Any:
            call()
            return await execute(*arguments, **options)

        connection.execute = watched
        try:
            yield
        finally:
            connection.execute = execute


async def move() -> None:
    async with RelayClient() as client:
        await Mover(DATABASE, client, poll=0.05, call_time=1.0).run()


async def handle() -> None:
    client = RelayClient()

    @client.on(TOPIC, concurrency=4)
    def book(delivery: Delivery) -> None:
        with connected(DATABASE) as connection:
            if inbox.is_first(connection, delivery):
                at("first")
                number = int(delivery.timer_id.removeprefix("order-"))
                connection.execute(f"INSERT INTO effects VALUES ({number})")
                at("effect written")
        at("effect committed")

    await client.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1] == "write":
            write(DATABASE, TOPIC)
        else:
            asyncio.run(move() if sys.argv[1] == "move" else handle())
