"""The processes of a measurement, forked as those of tests/worlds/relay/forked.py are."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.worlds.relay.forked import Forked

START = asyncio.create_subprocess_exec


class Child:
    """What of `asyncio.subprocess.Process` the bench uses."""

    def __init__(
        self,
        forked: Forked,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
    ) -> None:
        self._forked, self.stdin, self.stdout, self._reading = forked, stdin, stdout, reading
        self.pid = forked.pid

    @property
    def returncode(self) -> int | None:
        return self._forked.poll()

    async def wait(self) -> int:
        code = await asyncio.to_thread(self._forked.wait)
        self.stdin.transport.close()
        self._reading.close()
        return code

    def send_signal(self, number: signal.Signals) -> None:
        self._forked.send_signal(number)

    def kill(self) -> None:
        self._forked.kill()


async def start(
    *command: str | Path,
    stdin: int,
    stdout: int,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    limit: int,
) -> Child | asyncio.subprocess.Process:
    """Fork a module of Relay or of the bench; start anything else as asyncio does."""
    python, option, *rest = map(str, command)
    if (python, option) != (sys.executable, "-m") or not rest[0].startswith(
        ("relay.cli", "bench.applications.")
    ):
        return await START(*command, stdin=stdin, stdout=stdout, env=env, cwd=cwd, limit=limit)
    child_in, ours_in = os.pipe()
    ours_out, child_out = os.pipe()
    forked = await asyncio.to_thread(
        Forked, rest, cwd=cwd or Path.cwd(), env=env or os.environ, files={0: child_in, 1: child_out}
    )
    os.close(child_in)
    os.close(child_out)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_out, "rb")
    )
    pipe, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(ours_in, "wb"))
    return Child(forked, asyncio.StreamWriter(pipe, protocol, None, loop), reader, transport)
