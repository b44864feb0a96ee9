"""Runs an HTTP application inside the daemon's task group."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import anyio
import uvicorn
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import ASGIApp

from relay.core.endpoints import addresses
from relay.core.endpoints.listener_bounds import ConnectionBounds
from relay.core.errors import CannotListen
from relay.web.connection import Connection, Count
from relay.web.handshakes import Handshakes

TICK = 0.01
"""Seconds between two checks whether uvicorn has started; it offers no event to wait for."""

LAST_TICK = 0.1
"""Seconds, as uvicorn counts them, for connections that are just being made: its shutdown overlooks those."""

GRACE = 1
"""Seconds that requests under way have to end when the server stops."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, since the daemon has its own, and without its ten checks a second
    of `should_exit`, which caused half of the wake-ups of an idle relay."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener
        self._ended = anyio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._ended.wait()
        # First take no more connections, and read from those that have just been made: uvicorn's shutdown
        # closes both at once, and a request that a caller has sent by then would get no answer. The listener
        # stays open until then, since asyncio can't close it while it makes a connection.
        asyncio.get_running_loop().remove_reader(self._listener)
        await anyio.sleep(LAST_TICK)

    def end(self) -> None:
        """Let `serve` return after its connections have ended."""
        self.should_exit = True
        self._ended.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A started server. `address` has the actual port."""

    address: str
    is_tls: bool
    _scope: anyio.CancelScope
    _ended: anyio.Event

    async def stop(self) -> None:
        """Take no new requests. Those under way have `GRACE` seconds to end."""
        self._scope.cancel()
        await self._ended.wait()


async def start_http(
    tasks: TaskGroup,
    app: ASGIApp,
    listen: str,
    *,
    setting: str,
    bounds: ConnectionBounds,
    count: Count,
    tls: ssl.SSLContext | None = None,
) -> HttpServer:
    """Serve within `tasks`, as `serve_http` does, and stop before they do."""
    scope, ended = anyio.CancelScope(), anyio.Event()

    async def run(*, task_status: TaskStatus[str]) -> None:
        try:
            with scope:
                await serve_http(
                    app,
                    listen,
                    setting=setting,
                    bounds=bounds,
                    count=count,
                    tls=tls,
                    task_status=task_status,
                )
        finally:
            ended.set()

    return HttpServer(await tasks.start(run), tls is not None, scope, ended)


async def serve_http(
    app: ASGIApp,
    listen: str,
    *,
    bounds: ConnectionBounds,
    count: Count,
    setting: str = "http.listen",
    tls: ssl.SSLContext | None = None,
    task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on `listen` (`host:port`) until cancelled, then close in order, within `GRACE` seconds and a
    tick.

    With `tls` it speaks HTTPS only. `task_status` gets the address, with the actual port if 0 was requested.
    `count` is called for each connection that went beyond `bounds`, or was not HTTP. Raises `CannotListen`,
    which names `setting`, if the address can't be used.
    """
    listener = _bind(listen, setting)
    address = addresses.join(*listener.getsockname()[:2])
    handshakes = None if tls is None else Handshakes(bounds.idle_timeout, partial(count, "slow"))
    connection = partial(Connection, listener=address, bounds=bounds, count=count, handshakes=handshakes)
    config = _configured(app, connection, bounds)
    config.load()
    config.ssl = tls
    server = _Server(config, listener)
    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_run_to_the_end, server, listener)
            try:
                while not server.started:  # noqa: ASYNC110 (see TICK)
                    await anyio.sleep(TICK)
                task_status.started(address)
                await anyio.sleep_forever()
            finally:
                server.end()


def _configured(app: ASGIApp, protocol: Any, bounds: ConnectionBounds) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http=cast("Any", protocol),
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=math.ceil(bounds.idle_timeout),
    )


async def _run_to_the_end(server: uvicorn.Server, listener: socket.socket) -> None:
    """Run uvicorn. Cancellation goes through `should_exit`, so that uvicorn closes its connections."""
    with anyio.CancelScope(shield=True):
        await server.serve([listener])


def _bind(listen: str, setting: str) -> socket.socket:
    try:
        host, port = addresses.split(listen)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        both = host == "::" and socket.has_dualstack_ipv6()
        listener = socket.create_server(where, family=family, backlog=128, dualstack_ipv6=both)
    except (OSError, ValueError) as error:
        raise CannotListen(setting, listen, addresses.reason(error)) from None
    # Connections inherit it from their listener. asyncio sets it if a socket says that it is TCP, and this
    # one does not; without it the second part of each answer waits 40 ms for the acknowledgement of the
    # first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
