"""Receipts come before user code, and everything travels in few messages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from relay.client import Delivery, RelayClient
from relay.v1 import delivery_service_pb2 as pb
from tests.client.scripted_relay import ScriptedRelay, either, ended, names

SUICIDE = """
import asyncio, os, sys
from relay.client import RelayClient

client = RelayClient(sys.argv[1])

@client.on("t", concurrency=3)
async def handler(delivery):
    os._exit(7)

asyncio.run(client.run())
"""
ROOT = Path(__file__).parents[2]


columns = either


@pytest.mark.slow
@pytest.mark.parametrize("round_number", range(5))
async def test_a_handler_that_kills_its_process_was_received(
    relay: ScriptedRelay, target: str, round_number: int
) -> None:
    """The receipt is on the wire before the first line of the handler runs.

    Those that never got a place to run in, the dead process is not blamed for.
    """
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SUICIDE, target, cwd=ROOT)
    link = await relay.link()
    await link.deliver(*names(9))
    assert await process.wait() == 7
    await link.until(link.ended.is_set)
    assert link.received == [b"x0", b"x1", b"x2"]
    assert link.settlements == []


async def test_receipts_arrive_before_the_handler_runs(relay: ScriptedRelay, client: RelayClient) -> None:
    """A handler can wait for its own receipt at the relay: it does not depend on the handler's end."""
    checked: list[str] = []

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        await link.until(lambda: delivery.timer_id.encode() in link.received)
        assert delivery.timer_id not in link.outcomes
        checked.append(delivery.timer_id)

    async with client:
        link = await relay.link()
        await link.deliver("a")
        await link.settled("a")
    assert checked == ["a"]
    assert link.kinds == ["open", "settle", "settle", "drain"]
    assert list(link.requests[1].settle.received) == [b"a"]
    assert not link.requests[1].settle.settlements


async def test_open_asks_for_concurrency_and_prefetch(relay: ScriptedRelay, client: RelayClient) -> None:
    """The next deliveries wait at hand, more of them while they are quick; the sum stays within what a relay
    allows."""

    async def handler(_: Delivery) -> None: ...

    client.on("default")(handler)
    client.on("none", concurrency=3, prefetch=0)(handler)
    client.on("much", concurrency=60_000)(handler)
    async with client:
        await client.wait_ready(60)
        await relay.until(lambda: len(relay.links) == 3)
    opens = [link.requests[0].open for link in relay.links]
    asked = {each.topics[0]: (each.max_outstanding, each.slow_outstanding) for each in opens}
    assert asked == {"default": (1_000, 200), "none": (3, 0), "much": (100_000, 100_000)}


async def test_waiting_deliveries_get_no_receipt_until_they_start(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """Three places, nine deliveries: three receipts in one message; the next when a place is free."""
    go = asyncio.Event()
    started: list[str] = []

    @client.on("t", concurrency=3)
    async def handler(delivery: Delivery) -> None:
        started.append(delivery.timer_id)
        if delivery.timer_id != "x0":
            await go.wait()

    async with client:
        link = await relay.link()
        await link.deliver(*names(9))
        await link.settled("x0")
        # x0 has ended, so x3 may start: its receipt shares the message with x0's outcome.
        await link.until(lambda: len(link.received) == 4)
        assert [list(each.settle.received) for each in link.requests[1:]] == [[b"x0", b"x1", b"x2"], [b"x3"]]
        assert ended(link.requests[2].settle) == [b"x0"]
        go.set()
        await link.settled(*names(9))
    assert started == list(names(9))
    assert sorted(link.received) == sorted(each.encode() for each in names(9))


async def test_outcomes_gather_while_a_write_is_under_way(relay: ScriptedRelay, client: RelayClient) -> None:
    """A thousand trivial deliveries cost a few dozen messages, none above its bound."""

    async def handler(_: Delivery) -> None: ...

    client.on("t", concurrency=100)(handler)
    async with client:
        link = await relay.link()
        await link.deliver(*names(1_000))
        await link.until(lambda: len(link.settlements) == 1_000)
        settles = [each.settle for each in link.requests if each.HasField("settle")]
        assert len(settles) <= 30  # 11 as a rule
        assert sum(len(ended(each)) for each in settles) == 1_000
    assert len(link.received) == len(set(link.received)) == 1_000


async def test_messages_are_bounded(relay: ScriptedRelay, client: RelayClient) -> None:
    """However much may start at once, one message holds at most 500 receipts and 500 outcomes."""

    async def handler(_: Delivery) -> None: ...

    client.on("t", concurrency=2_000)(handler)
    async with client:
        link = await relay.link()
        await link.deliver(*names(2_000))
        await link.until(lambda: len(link.settlements) == 2_000)
    settles = [each.settle for each in link.requests if each.HasField("settle")]
    assert max(len(each.received) for each in settles) == 500
    assert max(len(ended(each)) for each in settles) <= 500


async def test_long_reasons_are_cut_to_what_the_relay_keeps(
    relay: ScriptedRelay, client: RelayClient
) -> None:
    """1,024 bytes, and never half a character."""

    @client.on("t")
    async def handler(delivery: Delivery) -> None:
        await delivery.reject("x" + "ü" * 2_000)

    async with client:
        link = await relay.link()
        await link.begin("a")
    assert link.settlements[0].outcome == pb.OUTCOME_REJECT
    assert link.settlements[0].reason == "x" + "ü" * 511


def test_the_client_is_light_to_import() -> None:
    """Nothing of the daemon and none of its dependencies comes along."""
    code = "import sys, relay.client; print(*sys.modules)"
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    top = {each.split(".")[0] for each in listed.stdout.split()}
    assert not top & {
        "pydantic",
        "pydantic_settings",
        "anyio",
        "redis",
        "starlette",
        "opentelemetry",
        "typer",
    }
    parts = {each.split(".")[1] for each in listed.stdout.split() if each.startswith("relay.")}
    assert parts == {"client", "v1"}
