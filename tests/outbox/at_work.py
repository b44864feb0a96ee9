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
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from relay import inbox, outbox
from relay.client import Delivery, NewTimer, RelayClient
from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.mover import OutboxMover

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


def write(database: str, topic: str) -> None:
    """Take orders, each with its timer, in a transaction."""
    for turn in range(ORDERS):
        with psycopg.connect(database) as connection:
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

    async def take(self, *arguments: Any, **options: Any) -> list[int]:
        lanes = await super().take(*arguments, **options)
        if lanes:
            at("lanes taken")
        return lanes

    async def hand_over(self, rows: Sequence[OutboxRow], deadline: float) -> HandedOver:
        at("rows read")
        done = await super().hand_over(rows, deadline)
        at("handed over")
        return done

    async def settle(self, connection: psycopg.AsyncConnection[Any], done: HandedOver, **rest: Any) -> None:
        execute = connection.execute

        async def watched(*arguments: Any, **options: Any) -> Any:
            at("settling")
            return await execute(*arguments, **options)

        connection.execute = watched  # type: ignore[method-assign]
        try:
            await super().settle(connection, done, **rest)
        finally:
            connection.execute = execute  # type: ignore[method-assign]
        at("settled")


async def move() -> None:
    async with RelayClient() as client:
        await Mover(DATABASE, client, poll=0.05, call_time=1.0).run()


async def handle() -> None:
    client = RelayClient()

    @client.on(TOPIC, concurrency=4)
    async def book(delivery: Delivery) -> None:
        async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
            if await inbox.is_first(connection, delivery):
                at("first")
                effect = "INSERT INTO effects VALUES (%s)"
                await connection.execute(effect, [int(delivery.timer_id.removeprefix("order-"))])
                at("effect written")
        at("effect committed")

    await client.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1] == "write":
            write(DATABASE, TOPIC)
        else:
            asyncio.run(move() if sys.argv[1] == "move" else handle())
