"""Runs an HTTP application inside the daemon's task group."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Generator

import anyio
import uvicorn
from anyio.abc import TaskStatus
from starlette.types import ASGIApp

from relay.core import addresses
from relay.core.errors import RelayError

TICK = 0.01
"""Seconds between two looks whether uvicorn has started; it offers no event to wait for."""

LAST_TICK = 0.1
"""Seconds, as uvicorn has them, for connections that are just being made: its shutdown overlooks those."""

GRACE = 1
"""Seconds that requests under way get to end when the server stops."""


REASONS = {
    errno.EADDRINUSE: "another process listens there already",
    errno.EACCES: "the port needs privileges that this process lacks",
    errno.EADDRNOTAVAIL: "this machine has no such address",
}


class ListenError(RelayError):
    """The address can't be listened on."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, since the daemon has its own, and without its ten looks a second
    at `should_exit`: they were half of what an idle relay woke up for."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = anyio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._ended.wait()
        await anyio.sleep(LAST_TICK)

    def end(self) -> None:
        """Let `serve` return, after its connections."""
        self.should_exit = True
        self._ended.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve_http(
    app: ASGIApp, listen: str, *, task_status: TaskStatus[str] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Serve on `listen` (`host:port`) until cancelled, then close in order: `GRACE` and a tick at most.

    Started with the address that it has, with the real port where 0 was asked for. Raises
    `ListenError` if the address can't be had.
    """
    listener = _bind(listen)
    address = addresses.join(*listener.getsockname()[:2])
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GRACE,
        )
    )
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


async def _run_to_the_end(server: uvicorn.Server, listener: socket.socket) -> None:
    """Cancellation goes through `should_exit`, so that uvicorn closes its connections."""
    with anyio.CancelScope(shield=True):
        await server.serve([listener])


def _bind(listen: str) -> socket.socket:
    try:
        host, port = addresses.split(listen)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(where, family=family, backlog=128, dualstack_ipv6=both)
    except (OSError, ValueError) as error:
        raise ListenError(
            f"can't listen on {listen} for HTTP: {_reason(error)}; http.listen sets the address"
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name has no address"
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return str(error)
    return REASONS.get(number, os.strerror(number))
