"""What is going on, at a glance: how topics stand by a real relay, once and again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from relay.cli.topics import top
from relay.cli.topics.top import Top, cells
from relay.client import Delivery, RelayClient
from tests.worlds.relay.processes import command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import until

pytestmark = pytest.mark.slow


async def test_how_topics_stand(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting, due, leased, dead and paused ones are told apart, and what is due comes first."""
    relay = stage.relay()
    client, gate = RelayClient(relay.target, timeout=60.0), asyncio.Event()
    started: list[str] = []

    @client.on("orders", concurrency=2)
    async def handle(delivery: Delivery) -> None:
        started.append(delivery.timer_id)
        await gate.wait()

    async with client:
        for n in range(3):
            await client.schedule("orders", b"", timer_id=f"later-{n}", delay=timedelta(hours=1))
        await client.topics.pause("paused")
        late = await client.schedule("paused", b"", delay=0)
        running = asyncio.create_task(client.run())
        await client.wait_ready(60.0)
        for n in range(2):
            await client.schedule("orders", b"", timer_id=f"now-{n}", delay=0)
        await until(lambda: len(started) == 2, "both are at work")
        ran = await asyncio.to_thread(command, "top", "--once", "--json", "--target", relay.target)
        assert ran.code == 0
        first, second = ran.documents
        told = ("topic", "waiting", "due", "leased", "dead", "paused", "change_per_second", "in_per_second")
        assert [first[name] for name in told] == ["paused", 0, 1, 0, 0, True, None, None]
        assert [second[name] for name in told] == ["orders", 3, 0, 2, 0, False, None, None]
        assert first["oldest_due_time"] == late.due_time.isoformat().replace("+00:00", "Z")

        looking = Top(10)
        await looking.look(client.topics)
        for n in range(100):
            await client.schedule("orders", b"", timer_id=f"more-{n}", delay=timedelta(hours=1))
        rows, has_more = await looking.look(client.topics)
        orders = {row.info.topic: row for row in rows}["orders"]
        assert (orders.waiting, has_more) == (103, False)
        assert orders.change is not None
        assert orders.change > 0
        assert (orders.come, orders.gone) == (orders.change, 0.0)
        assert cells(orders)[7].startswith("+")
        looking = Top(1)
        rows, has_more = await looking.look(client.topics)
        assert ([row.info.topic for row in rows], has_more, looking.others) == (["paused"], False, 1)
        monkeypatch.setattr(top, "RANKED", 1)
        rows, has_more = await Top(5).look(client.topics)
        assert ([row.info.topic for row in rows], has_more) == (["orders"], True)

        ran = await asyncio.to_thread(command, "top", "--once", "--target", relay.target)
        lines = [line.split() for line in ran.out.splitlines() if "orders" in line or "paused" in line]
        assert [line[:5] for line in lines[1:]] == [
            ["paused", "0", "1", "0", "0"],
            ["orders", "103", "0", "2", "0"],
        ]
        gate.set()
        running.cancel()
