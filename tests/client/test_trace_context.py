"""Trace context: what is current goes with a schedule; a delivery's is current in its handler."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry import context, propagate, trace

from relay.client import Delivery, NewTimer, RelayClient, trace_context
from tests.client.scripted_relay import ScriptedRelay

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HEADERS = {"traceparent": TRACEPARENT, "tracestate": "v=1"}


@contextmanager
def within(headers: dict[str, str]) -> Iterator[None]:
    token = context.attach(propagate.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def seen() -> str:
    span = trace.get_current_span().get_span_context()
    return f"{span.trace_id:032x}-{span.span_id:016x}" if span.is_valid else ""


async def test_a_schedule_carries_what_is_current(relay: ScriptedRelay, client: RelayClient) -> None:
    """Both calls do, the others do not."""
    async with client:
        with within({**HEADERS, "baggage": "customer=1"}):
            await client.schedule("t", b"x", delay=1)
            await client.schedule_batch([NewTimer(topic="t", payload=b"x", delay=1)])
            await client.cancel("t", "1")
        await client.schedule("t", b"x", delay=1)
    wanted = (*HEADERS, "baggage")
    came = [{key: call[key] for key in wanted if key in call} for call in relay.metadata]
    assert came == [HEADERS, HEADERS, {}, {}]


@pytest.mark.parametrize("sync", [False, True])
async def test_a_delivery_is_current_in_its_handler(
    relay: ScriptedRelay, client: RelayClient, sync: bool
) -> None:
    """… in a thread as well, and in that handler only; the client's own context is not."""
    contexts: dict[str, str] = {}

    def note(delivery: Delivery) -> None:
        contexts[delivery.timer_id] = seen()

    async def note_later(delivery: Delivery) -> None:
        await asyncio.sleep(0)
        note(delivery)

    client.on("t")(note if sync else note_later)
    with within({"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}):
        async with client:
            link = await relay.link()
            await link.deliver("1", headers=HEADERS)
            await link.deliver("2")
            await link.deliver("3", headers={"traceparent": "nonsense"})
            await link.settled("1", "2", "3")
    assert contexts == {"1": TRACEPARENT[3:-3], "2": "", "3": ""}


def test_without_the_api_nothing_happens() -> None:
    """The client works where OpenTelemetry is not installed, and imports it nowhere by itself."""
    code = """
import sys
import relay.client
from relay.client import trace_context
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
sys.modules["opentelemetry"] = None
assert trace_context.inject() == ()
assert trace_context.current({"traceparent": "x"}) is None
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=150)


def test_the_first_delivery_waits_for_no_import() -> None:
    """Who opens a client with a handler has imported what a delivery's context takes; nobody else has."""
    code = """
import asyncio, sys
from relay.client import RelayClient

def loaded():
    return "opentelemetry.propagate" in sys.modules

async def main():
    async with RelayClient("127.0.0.1:9"):
        assert not loaded()
    client = RelayClient("127.0.0.1:9")
    client.on("t")(print)
    async with client:
        assert loaded()

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=150)


def test_the_context_ends_with_the_block() -> None:
    context = trace_context.current(HEADERS)
    assert context is not None
    with context:
        assert dict(trace_context.inject()) == HEADERS
    assert trace_context.inject() == ()
