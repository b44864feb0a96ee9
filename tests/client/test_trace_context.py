"""Trace context: what is current goes with a schedule; a delivery's is current in its handler."""

from __future__ import annotations

import asyncio
import operator
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry import context, propagate, trace
from opentelemetry.context import Context

from relay.client import Delivery, NewTimer, RelayClient, delivered_context, trace_context
from relay.client.delivered_context import DeliveredContext
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


@pytest.mark.usefixtures("one_try")
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
assert trace_context.attach({"traceparent": "x"}) is None
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


def test_the_context_ends_with_the_handler() -> None:
    token = trace_context.attach(HEADERS)
    assert token is not None
    assert dict(trace_context.inject()) == HEADERS
    trace_context.detach(token)
    assert trace_context.inject() == ()


READS: dict[str, Callable[[Context], object]] = {
    "contains": lambda current: sorted(key for key in ("k", "l") if key in current),
    "get": lambda current: current.get("k"),
    "item": lambda current: current["k"],
    "iter": lambda current: sorted(iter(current)),
    "reversed": lambda current: list(reversed(current)),
    "len": len,
    "bool": bool,
    "equal": lambda current: (current == Context(k="v"), current != Context(k="v")),
    "equal from the left": lambda current: operator.eq(Context(k="v"), current),
    "dict": dict,
    "unpacked": lambda current: {**current},
    "joined": lambda current: (current | {"x": 1}, {"x": 1} | current),
    "copy": lambda current: current.copy(),
    "keys": lambda current: sorted(current.keys()),
    "values": lambda current: list(current.values()),
    "items": lambda current: sorted(current.items()),
    "repr": repr,
    "value": lambda current: context.get_value("k", current),
    "set": lambda current: dict(context.set_value("x", 1, current)),
}


@pytest.mark.parametrize("read", READS)
def test_whatever_is_asked_of_the_context_reads_the_headers(
    read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A context is a dict, which is asked in many ways. Nothing is read before that, and all is read once."""
    extract = Mock(return_value=Context(k="v"))
    monkeypatch.setattr(propagate, "extract", extract)
    current = DeliveredContext(HEADERS)
    assert not extract.mock_calls
    assert READS[read](current) == READS[read](Context(k="v"))
    current.get("k")
    extract.assert_called_once_with(HEADERS, context={})


def test_every_way_to_read_a_dict_is_known() -> None:
    """A later Python may have another one, which would find an unread context empty."""
    writes = {"__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"}
    others = {"fromkeys", "__init__", "__new__", "__sizeof__", "__doc__", "__hash__", "__getattribute__"}
    ordered = {"__ge__", "__gt__", "__le__", "__lt__", "__class_getitem__"}  # of dicts there is no order
    reads = set(vars(dict)) - writes - others - ordered
    assert reads <= set(vars(DeliveredContext))


def test_threads_that_ask_at_once_see_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The race: a second thread of a handler asks while the first one reads. It must not find nothing."""
    at_the_lock, reads = threading.Semaphore(0), threading.Event()
    lock, extract = threading.RLock(), propagate.extract

    class Lock:
        def __enter__(self) -> None:
            at_the_lock.release()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def slow(headers: dict[str, str], **more: Any) -> Context:
        assert reads.wait(60)
        return extract(headers, **more)

    monkeypatch.setattr(delivered_context, "_filling", Lock())
    monkeypatch.setattr(propagate, "extract", slow)
    current = DeliveredContext(HEADERS)
    with ThreadPoolExecutor(2) as pool:
        spans = [pool.submit(trace.get_current_span, current) for _ in range(2)]
        for _ in spans:
            assert at_the_lock.acquire(timeout=60)
        reads.set()
    assert [f"{each.result().get_span_context().trace_id:032x}" for each in spans] == [TRACEPARENT[3:35]] * 2


def test_a_propagator_may_ask_for_what_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it reads the headers nothing is: that it asks by itself begins no second reading."""
    extract = propagate.extract

    def asks(headers: dict[str, str], **more: Any) -> Context:
        assert not context.get_current()
        return extract(headers, **more)

    monkeypatch.setattr(propagate, "extract", asks)
    token = trace_context.attach(HEADERS)
    assert seen() == TRACEPARENT[3:-3]
    trace_context.detach(token)
