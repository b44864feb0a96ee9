"""The shop's tests: days pass in a moment, in memory; the last one meets a real relay."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx2
import pytest
import shop

from relay import outbox
from relay.outbox.mover import OutboxMover

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def new_tables(*, make: bool) -> None:
    async with shop.engine.begin() as connection:
        for metadata in (shop.Base.metadata, outbox.metadata):
            await connection.run_sync(metadata.drop_all)
        if make:
            await connection.run_sync(shop.Base.metadata.create_all)
            await connection.run_sync(outbox.create)


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """Calls the shop. Its tables are new, and gone afterwards: never give a test your own database."""
    await new_tables(make=True)
    transport = httpx2.ASGITransport(app=shop.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as http:
        yield http
    await new_tables(make=False)
    await shop.engine.dispose()


async def moved() -> int:
    """How many rows the outbox had for the relay, which has them now."""
    return await OutboxMover(shop.DATABASE, shop.client).move_all()


async def ordered(http, **fields):
    answer = await http.post("/orders", json={"customer": "a@example.org", **fields})
    await moved()
    return answer.json()["order"]


async def test_an_unpaid_order_is_reminded_of(http, relay_timers):
    relay = relay_timers(shop.client)
    number = await ordered(http)
    await relay.advance(days=2)
    assert (await http.get("/mails")).json() == []
    await relay.advance(days=1)
    expected = [{"to": "a@example.org", "text": f"Order {number} is not paid yet."}]
    assert (await http.get("/mails")).json() == expected


async def test_a_payment_cancels_the_reminder(http, relay_timers):
    relay = relay_timers(shop.client)
    number = await ordered(http)
    await http.post(f"/orders/{number}/payment")
    assert await moved() == 1
    assert [each for each in await relay.advance(days=4) if each.topic == "reminders"] == []
    assert (await http.get("/mails")).json() == []


async def test_an_order_that_is_refused_has_no_reminder(http, relay_timers):
    relay_timers(shop.client)
    assert (await http.post("/orders", json={})).status_code == 422
    assert (await http.post("/orders/7/payment")).status_code == 404
    assert await moved() == 0


async def test_each_night_has_its_report(http, relay_timers):
    relay = relay_timers(shop.client, now=datetime(2026, 3, 28, 12, tzinfo=UTC))
    await ordered(http)
    await relay.advance(days=2)  # one night of them has no two o'clock: it is three then
    assert (await http.get("/reports")).json() == [{"orders": 1, "unpaid": 1}] * 2


async def test_on_a_real_relay(http, relay_server):
    relay_server.join(shop.client)
    async with shop.client, asyncio.timeout(60):
        await ordered(http, remind_after=0)
        while (await http.get("/mails")).json() == []:
            await asyncio.sleep(0.05)
