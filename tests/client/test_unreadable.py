"""Bytes that are no message: from a relay that is none, and to an application that serves handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from relay.client import CallError, PushHandlers, RelayClient, SyncRelayClient
from relay.client import unreadable as unreadable_module
from tests.client.scripted_relay import ScriptedRelay, Watched, serve
from tests.worlds.waiting import PATIENCE

GARBAGE = b"\xff\xff\xff"

METHODS = {
    "relay.v1.TimerHandler/Deliver": "relay.v1.TimerHandlerDeliverRequest",
    "relay.v1.TimerHandler/DeliverBatch": "relay.v1.TimerHandlerDeliverBatchRequest",
    "grpc.health.v1.Health/Check": "grpc.health.v1.HealthCheckRequest",
    "grpc.health.v1.Health/Watch": "grpc.health.v1.HealthCheckRequest",
}


class Nonsense(Watched, grpc.GenericRpcHandler):
    """Answers every call with bytes that are no message."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = 0

    def service(self, details: Any) -> Any:
        if details.method.endswith("/Deliver"):
            return grpc.stream_stream_rpc_method_handler(self._deliver)
        return grpc.unary_unary_rpc_method_handler(self._call)

    async def _call(self, _: bytes, __: Any) -> bytes:
        return GARBAGE

    async def _deliver(self, _: Any, context: Any) -> None:
        self.streams += 1
        self.changed()
        await context.write(GARBAGE)
        await asyncio.Event().wait()


@asynccontextmanager
async def nonsense(target: str) -> AsyncIterator[Nonsense]:
    server = grpc.aio.server()
    handler = Nonsense()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(target)
    await server.start()
    try:
        yield handler
    finally:
        await server.stop(0)


async def test_an_answer_that_can_t_be_read(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the client's own, which says what was expected and what to check; no stack trace."""
    async with nonsense(target), RelayClient(target) as client:
        with pytest.raises(CallError, match=r"not a relay\.v1\.CancelResponse; check what listens") as caught:
            await client.cancel("t", "a")
        assert caught.value.code is grpc.StatusCode.INTERNAL

        def blocking() -> None:
            with SyncRelayClient(target) as other, pytest.raises(CallError, match="not a relay"):
                other.cancel("t", "a")

        await asyncio.to_thread(blocking)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_stream_that_can_t_be_read(target: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is opened anew until there is a relay that can be understood; the log says why, once."""
    caplog.set_level(logging.INFO, "relay.client")
    seen = asyncio.Event()
    client = RelayClient(target, shutdown_timeout=PATIENCE)

    @client.on("t")
    async def handle(_: Any) -> None:
        seen.set()

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        async with nonsense(target) as broken:
            running = tasks.create_task(client.run())
            await broken.until(lambda: broken.streams > 1)
        async with serve(target, ScriptedRelay()) as relay:
            link = await relay.link()
            await link.deliver("a")
            await seen.wait()
            client.stop()
            await running
    told = [record.getMessage() for record in caplog.records if "the relay at" in record.getMessage()]
    assert len(told) == 2, "that it can't be understood, and that one is there"
    assert "not a relay.v1.DeliverResponse" in told[0]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("method", METHODS)
async def test_a_request_that_can_t_be_read(
    push: PushHandlers,
    listen: str,
    method: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """INVALID_ARGUMENT with the type's name from every method, and one line in the log."""
    monkeypatch.setattr(unreadable_module, "_next_line", 0.0)

    @push.on("t")
    async def handle(_: Any) -> None:
        """Is not called."""

    async with push.serve(listen), grpc.aio.insecure_channel(listen) as channel:
        for _ in range(3):
            raw: Any = channel.unary_stream(f"/{method}")
            call = raw(GARBAGE, timeout=PATIENCE)
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert await call.details() == f"message: not a {METHODS[method]}; check what sends it"
    assert len([record for record in caplog.records if METHODS[method] in record.getMessage()]) == 1
    assert not [record for record in caplog.records if record.exc_info]
