"""docs/how-to/outbox.md does what it says: its commands, its application, its SQL."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from relay import outbox
from relay.cli.commands import app
from relay.client import RelayClient
from tests.docs import pages
from tests.docs.console import plain, steps
from tests.outbox.desk import BOTH, ON_SQLITE, Desk, FileDesk
from tests.worlds.waiting import until

pytestmark = pytest.mark.checkout

BLOCKS = pages.run_by(__file__)
STATEMENTS = [block.text for block in BLOCKS if block.language == "sql"]
"""That of PostgreSQL, and that of SQLite."""


def module(block: pages.Block, desk: Desk, name: str) -> Any:
    """The block as a module that knows where the database is."""
    found = ModuleType(name)
    text = block.text.replace("postgresql+psycopg://shop@localhost/shop", desk.sqlalchemy_url)
    exec(compile(text, block.place, "exec", dont_inherit=True), found.__dict__)
    return found


def by_file(name: str) -> pages.Block:
    (block,) = [block for block in BLOCKS if block.mark == "file" and block.said == name]
    return block


async def test_the_application(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order has its reminder, which moves and goes; a delivery that comes twice reminds once."""
    monkeypatch.setenv("RELAY_TARGET", desk.relay.target)
    shop = module(by_file("shop.py"), desk, "shop")
    async with shop.engine.begin() as connection:
        await connection.run_sync(shop.Base.metadata.create_all)
    await clear(desk)
    async with RelayClient() as client:
        one, two, three = [await shop.place_order() for _ in range(3)]
        await shop.postpone(two)
        await shop.pay(three)
        await asyncio.to_thread(module(by_file("plain.py"), desk, "plain").place_order, desk.database)
        desk.connection.execute(STATEMENTS[0])
        await desk.drained(desk.mover(client))
        assert desk.rows() == []
        waiting = {timer.timer_id: timer async for timer in client.list("reminders")}
        assert waiting.keys() == {f"order-{one}", f"order-{two}", f"order-{three + 1}", "order-42"}
        later = waiting[f"order-{two}"].due_time - waiting[f"order-{one}"].due_time
        assert timedelta(days=16) <= later < timedelta(days=16, hours=1)
    await remind_twice(shop, one)
    async with shop.engine.connect() as connection:
        found = (await connection.exec_driver_sql("SELECT order_id FROM reminders")).all()
    assert found == [(one,)]
    await shop.engine.dispose()
    await clear(desk)


@ON_SQLITE
async def test_the_application_on_sqlite(desk: FileDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order has its reminder, which goes when it is paid; a delivery that comes twice reminds once."""
    monkeypatch.setenv("RELAY_TARGET", desk.relay.target)
    monkeypatch.chdir(Path(desk.path).parent)
    desk.connection.execute("CREATE TABLE orders (id integer PRIMARY KEY, paid bool)")
    desk.connection.execute("CREATE TABLE reminders (order_id integer)")
    shop = module(by_file("small.py"), desk, "small")
    await clear(desk)
    async with RelayClient() as client:
        one, two = shop.place_order(), shop.place_order()
        nothing_is_left_of_what_is_rolled_back(shop, desk)
        shop.pay(two)
        desk.connection.execute(STATEMENTS[1])
        await desk.drained(desk.mover(client))
        assert desk.rows() == []
        assert {each.timer_id async for each in client.list("reminders")} == {f"order-{one}", "order-43"}
    await remind_twice(shop, one)
    assert desk.connection.execute("SELECT order_id FROM reminders").fetchall() == [(one,)]
    shop.engine.dispose()
    await clear(desk)


def nothing_is_left_of_what_is_rolled_back(shop: Any, desk: Desk) -> None:
    """A savepoint comes before all else that is written; and what was read can't change any more."""
    before, timer = len(desk.rows()), desk.new("never", topic="reminders")

    def by_sqlalchemy() -> None:
        with Session(shop.engine) as session, session.begin():
            with session.begin_nested():
                outbox.schedule(session, timer)
            raise ZeroDivisionError

    def by_sqlite3() -> None:
        with shop.transaction() as connection:
            connection.execute("SAVEPOINT one")
            outbox.schedule(connection, timer)
            connection.execute("RELEASE one")
            raise ZeroDivisionError

    for fails in (by_sqlalchemy, by_sqlite3):
        with pytest.raises(ZeroDivisionError):
            fails()
    assert len(desk.rows()) == before
    for begun in (shop.engine.begin(), shop.transaction()):
        with (
            begun,
            closing(sqlite3.connect("shop.db", timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="database is locked"),
        ):
            outbox.schedule(other, timer)


async def remind_twice(shop: Any, order: int) -> None:
    """The application's handler has each delivery of an order's reminder twice."""
    seen: list[str] = []

    async def twice(delivery: Any, go_on: Any) -> Any:
        await go_on(delivery)
        seen.append(delivery.timer_id)
        return await go_on(delivery)

    shop.client.use(twice)
    async with shop.client:
        await shop.client.run_timer("reminders", f"order-{order}")
        await until(lambda: seen)


async def clear(desk: Desk) -> None:
    """Nothing of the page's topic is left."""
    async with desk.client() as client:
        async for timer in client.list("reminders"):
            await client.cancel("reminders", timer.timer_id)


@BOTH
async def test_the_commands(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of each block, and what they print."""
    monkeypatch.setenv("RELAY_OUTBOX_DATABASE", desk.database)
    desk.number_from(7)
    big = b"x" * ((1 << 20) + 1)
    desk.write(*(desk.new("order-7", payload, topic="reminders") for payload in (big, b"")))
    async with desk.client() as client:
        await desk.drained(desk.mover(client))
    run = 0
    for block in BLOCKS:
        for command, printed in steps(block) if block.language == "console" else []:
            if block.mark or not command.startswith("relay outbox "):
                assert block.mark or command.startswith("export RELAY_OUTBOX_DATABASE="), command
                continue
            if " drop " in command:
                async with desk.client() as client:
                    await desk.drained(desk.mover(client))
            arguments = command.removeprefix("relay ").split()
            ended = await asyncio.to_thread(CliRunner().invoke, app, arguments)
            assert ended.exit_code == 0, ended.output
            assert plain(ended.output) == plain(printed), command
            run += 1
    assert run == 5
