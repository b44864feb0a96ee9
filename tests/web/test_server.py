"""The HTTP server lives in a task group: it starts, says where, and ends without a trace."""

from __future__ import annotations

import logging
import signal
import socket

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from relay.core.endpoints import addresses
from relay.core.errors import CannotListen
from relay.web.server import GRACE, _bind
from tests.web.rig import serve

pytestmark = pytest.mark.anyio


def is_free(address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(addresses.split(address)) != 0


async def test_it_closes_its_port_when_cancelled_and_may_start_again() -> None:
    listen = "127.0.0.1:0"
    for _ in range(2):
        async with anyio.create_task_group() as tasks:
            listen = await tasks.start(serve, Starlette(), listen)
            assert not is_free(listen)
            tasks.cancel_scope.cancel()
        assert is_free(listen)


async def test_it_leaves_the_signals_and_the_log_alone() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    handlers = list(logging.getLogger("uvicorn").handlers)
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, Starlette(), "127.0.0.1:0")
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
        assert logging.getLogger("uvicorn").handlers == handlers
        tasks.cancel_scope.cancel()


async def test_a_request_under_way_does_not_hold_it_for_long() -> None:
    reached = anyio.Event()

    async def slow(_: Request) -> PlainTextResponse:
        reached.set()
        await anyio.sleep(60)
        return PlainTextResponse("late")

    async with anyio.create_task_group() as tasks:
        listen = await tasks.start(serve, Starlette(routes=[Route("/", slow)]), "127.0.0.1:0")
        async with await anyio.connect_tcp(*addresses.split(listen)) as stream:
            await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            await reached.wait()
            with anyio.fail_after(GRACE + 30):
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    while not is_free(listen):  # noqa: ASYNC110
                        await anyio.sleep(0.02)


async def test_a_port_that_is_taken_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = addresses.join(*other.getsockname())
        with pytest.raises(CannotListen) as caught:
            await serve(Starlette(), listen)
    assert str(caught.value) == (
        f"http.listen: can't listen on {listen} for probes and metrics: another process "
        "listens there already; set another address there, or by RELAY_HTTP__LISTEN"
    )


async def test_an_address_of_another_machine() -> None:
    with pytest.raises(CannotListen, match="this machine has no such address"):
        await serve(Starlette(), "192.0.2.1:0")


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Head and body are written apart: with Nagle's algorithm the body would come 40 ms later."""
    with _bind("127.0.0.1:0", "http.listen") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
