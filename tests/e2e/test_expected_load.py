"""The expected lateness of a timer, by a real relay: over gRPC, over HTTP, and on the terminal."""

from __future__ import annotations

import asyncio
import http.client
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay.client import Delivery, ExpectedLoad, NewTimer, RelayClient, SyncRelayClient
from tests.worlds.relay.processes import Relay, command
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

DUE = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
TEXT = DUE.isoformat().replace("+00:00", "Z")
BURST = 9_000
JSON = {"Content-Type": "application/json"}


async def test_every_way_tells_the_same(stage: Stage) -> None:
    """Nothing unless it is asked for; no lateness before anything was delivered; and as late as the rate that
    was shown makes it."""
    relay = stage.relay()
    with SyncRelayClient(relay.target, timeout=PATIENCE) as client:
        assert client.schedule("orders", b"", due_time=DUE).expected_load is None
        expected = client.schedule("orders", b"", due_time=DUE, expected_load=True).expected_load
    assert expected is not None
    assert (expected.lateness, expected.rate, expected.timers_in_minute) == (None, None, 2)

    expected = await after_a_burst(relay)
    assert expected.rate is not None
    assert expected.lateness is not None
    late = expected.lateness.total_seconds()
    assert abs(late - expected.timers_in_minute / expected.rate) < 1e-3
    await asyncio.to_thread(told_by_http, relay)
    await asyncio.to_thread(told_on_the_terminal, relay)


async def after_a_burst(relay: Relay) -> ExpectedLoad:
    """Deliver some timers, schedule many at one instant, and ask until the relay looks again: it keeps what
    it has read for a second."""
    client, done, told = RelayClient(relay.target, timeout=PATIENCE), list[str](), list[ExpectedLoad]()

    @client.on("orders", concurrency=1)
    async def handle(delivery: Delivery) -> None:
        done.append(delivery.timer_id)

    async def whole() -> bool:
        timer = await client.schedule("orders", b"", timer_id="x", due_time=DUE, expected_load=True)
        if timer.expected_load is not None:
            told.append(timer.expected_load)
        return bool(told) and told[-1].timers_in_minute >= BURST and told[-1].rate is not None

    async with client:
        running = asyncio.create_task(client.run())
        await client.schedule_batch([NewTimer(topic="orders", payload=b"", delay=0) for _ in range(200)])
        await until(lambda: len(done) == 200, "all are delivered")
        burst = [NewTimer(topic="orders", payload=b"", due_time=DUE) for _ in range(BURST)]
        await client.schedule_batch(burst)
        await until(whole, "the relay has seen all")
        running.cancel()
    return told[-1]


def told_by_http(relay: Relay) -> None:
    def put(**more: object) -> Any:
        connection = http.client.HTTPConnection(relay.api, timeout=PATIENCE)
        body = json.dumps({"due_time": TEXT, "payload": "", **more})
        try:
            connection.request(
                "PUT", "/v1/topics/orders/timers/x", body, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            assert answer.status == 200
            return json.loads(answer.read()).get("expected_load")
        finally:
            connection.close()

    assert put() is None
    load = put(expected_load=True)
    assert int(load["timers_in_minute"]) >= BURST
    assert float(load["lateness"].removesuffix("s")) > 0


def told_on_the_terminal(relay: Relay) -> None:
    def shown(*arguments: str) -> str:
        ran = command("schedule", "orders", "--at", TEXT, "--id", "x", "--target", relay.target, *arguments)
        assert ran.code == 0, ran.err
        return ran.out

    load = json.loads(shown("--expected-load", "--json"))["expected_load"]
    assert load["timers_in_minute"] >= BURST
    assert load["lateness_seconds"] > 0
    assert "expected_load" not in json.loads(shown("--json"))
    text = shown("--expected-load")
    assert "s late, at the" in text
    assert "fall due in that minute" in text
