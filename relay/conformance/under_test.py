"""The client under test: a command, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from relay.conformance.observed import Broken, Observed

_LAST_LINES = 3


class ClientProcess:
    """The command with a scene's arguments, which leads a process group: nothing of it is left at the end."""

    def __init__(self, command: Sequence[str], target: str, log: Path, watched: Observed) -> None:
        self._command = command
        self._target = target
        self._log = log
        self._watched = watched
        self._process: asyncio.subprocess.Process | None = None
        self._waiting: asyncio.Task[None] | None = None
        self.may_end = False
        """Whether the scene expects its end."""
        self.exit_code: int | None = None

    async def start(self, *arguments: str) -> None:
        """Run it. Raises `Broken` if there is no such command."""
        environment = {**os.environ, "RELAY_TARGET": self._target}
        with self._log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise Broken(f"the command can't be started: {error}") from None
        self._waiting = asyncio.create_task(self._wait(self._process))

    def terminate(self) -> None:
        """Send it SIGTERM, and expect it to end."""
        self.may_end = True
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def close(self) -> None:
        """Kill it with all that it has started."""
        self.may_end = True
        if self._process is None or self._waiting is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._waiting

    def last_words(self) -> str:
        """The last lines of its output."""
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_LAST_LINES:])

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        self.exit_code = await process.wait()
        if not self.may_end:
            self._watched.object_to(f"the client ended by itself ({self.exit_code}): {self.last_words()}")
        self._watched.changed()
