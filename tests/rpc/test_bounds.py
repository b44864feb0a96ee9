"""What callers of the gRPC listener may cost, and that those who keep to it notice nothing."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import anyio
import grpc
from google.protobuf import empty_pb2

from relay.core.endpoints import addresses
from relay.settings import Settings
from relay.v1.timer_service_pb2 import ListTimersRequest, ScheduleRequest
from tests.worlds.engine.served import Served, put, served
from tests.worlds.engine.stubs import refused, spec
from tests.worlds.waiting import PATIENCE, until

BOUNDS = Settings().grpc.bounds

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HALF_A_HEADER = b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x83"
"""A HEADERS frame that says that more of them follows."""

DELIVER = {
    b":method": b"POST",
    b":scheme": b"http",
    b":path": b"/relay.v1.DeliveryService/Deliver",
    b":authority": b"localhost",
    b"content-type": b"application/grpc",
    b"te": b"trailers",
}
FIELDS = b"".join(bytes([0, len(name)]) + name + bytes([len(text)]) + text for name, text in DELIVER.items())
A_CALL = len(FIELDS).to_bytes(3, "big") + b"\x01\x04\x00\x00\x00\x01" + FIELDS
SETTINGS_READ = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"

BAD = {
    "silence": b"",
    "half a preface": PREFACE[:10],
    "a preface": PREFACE,
    "a handshake": PREFACE + SETTINGS,
    "half a header": PREFACE + SETTINGS + HALF_A_HEADER,
    "a call whose caller is gone": PREFACE + SETTINGS + SETTINGS_READ + A_CALL,
}


@asynccontextmanager
async def bounded(**bounds: Any) -> AsyncIterator[Served]:
    async with served(bounds=replace(BOUNDS, **bounds)) as relay:
        yield relay


@contextmanager
def dialled(relay: Served, data: bytes = b"") -> Iterator[socket.socket]:
    """A raw connection on which these bytes were sent."""
    with socket.create_connection(addresses.split(relay.server.address)) as raw:
        raw.sendall(data)
        raw.setblocking(False)
        yield raw


async def closed(raw: socket.socket) -> None:
    """Until the other side has closed it."""
    with anyio.fail_after(PATIENCE):
        while True:
            await anyio.wait_readable(raw)
            try:
                if not raw.recv(65_536):
                    return
            except ConnectionError:
                return


@asynccontextmanager
async def another(relay: Served) -> AsyncIterator[Any]:
    """The `Schedule` of a client with a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100)]
    async with grpc.aio.insecure_channel(relay.server.address, options=options) as channel:
        yield channel.unary_unary(
            "/relay.v1.TimerService/Schedule",
            request_serializer=ScheduleRequest.SerializeToString,
            response_deserializer=empty_pb2.Empty.FromString,
        )


async def test_a_header_that_is_too_large() -> None:
    """RESOURCE_EXHAUSTED from gRPC itself; what fits is not refused by chance."""
    async with bounded() as relay:
        fits = (("x", "x" * (BOUNDS.header_bytes - 2_000)),)
        for _ in range(20):
            await relay.timers.ListTimers(ListTimersRequest(topic="t"), metadata=fits)
        bomb = (("x", "x" * BOUNDS.header_bytes),)
        call = relay.timers.ListTimers(ListTimersRequest(topic="t"), metadata=bomb)
        code, words, _ = await refused(call)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "metadata" in words


async def test_more_calls_than_the_relay_takes() -> None:
    """Those beyond are refused; once one has ended, there is room."""
    async with bounded(calls=2) as relay:
        streams = [await relay.stream().open() for _ in range(2)]
        code, _, _ = await refused(relay.timers.Schedule(ScheduleRequest(timer=spec())))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await streams[0].finish()
        await relay.attached(1)

        async def taken() -> bool:
            try:
                await relay.timers.Schedule(ScheduleRequest(timer=spec()))
            except grpc.aio.AioRpcError:
                return False
            return True

        await until(taken, "there is room")
        await streams[1].ack([await streams[1].delivery()])
        await streams[1].finish()


async def test_more_calls_than_one_connection_may_have() -> None:
    """They wait in the client, and nobody is refused; other connections are served meanwhile."""
    async with bounded(connection_calls=2) as relay:
        streams = [await relay.stream().open("other") for _ in range(2)]
        waiting = relay.timers.Schedule(ScheduleRequest(timer=spec("waits")))
        async with another(relay) as schedule:
            await schedule(ScheduleRequest(timer=spec("goes")), timeout=PATIENCE)
        assert not waiting.done()
        await streams[1].finish()
        with anyio.fail_after(PATIENCE):
            await waiting
        await streams[0].finish()


async def test_more_connections_than_the_relay_takes() -> None:
    """The further one is closed at once. Who has one goes on, and whoever comes later gets in once another
    one has gone."""
    async with bounded(connections=3) as relay:
        await put(relay, "a")  # this is the first connection
        with dialled(relay), dialled(relay), dialled(relay) as further:
            await closed(further)
            await put(relay, "b")
        async with another(relay) as schedule:
            await schedule(ScheduleRequest(timer=spec("c")), wait_for_ready=True, timeout=PATIENCE)


async def test_connections_that_bring_no_call() -> None:
    """They are closed in time, however far they came; a quiet stream stays."""
    async with bounded(idle_timeout=4.0) as relay:  # the channel has to keep to it, too
        stream = await relay.stream().open()
        with ExitStack() as stack:
            for raw in [stack.enter_context(dialled(relay, data)) for data in BAD.values()]:
                await closed(raw)
        await put(relay, "a")
        await stream.ack([await stream.delivery()])
        await stream.finish()
