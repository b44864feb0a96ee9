"""The client under test, and a command that is one, as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from relay.conformance.observed import Broken, Observed

_LAST_LINES = 3


class ClientUnderTest(Protocol):
    """A client that is started for one scene."""

    may_end: bool
    """Whether the scene expects its end. Another one is noted against it."""
    exit_code: int | None
    """None while it runs."""

    async def start(self, *arguments: str) -> None:
        """Run it with a scene's arguments. Raises `Broken` if it can't be started."""

    def terminate(self) -> None:
        """Send it SIGTERM, and expect it to end."""

    async def close(self) -> None:
        """End it, with all that it has started."""

    def last_words(self) -> str:
        """The last lines of its output."""


MakeClient: TypeAlias = Callable[[str, Path, Observed], ClientUnderTest]
"""Makes one, with the relay's address, the file that its output goes to, and whom to tell of its end."""


def process(command: Sequence[str]) -> MakeClient:
    """A client that is a command, without the arguments that a scene adds."""
    return partial(ClientProcess, command)


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
        self.exit_code: int | None = None

    async def start(self, *arguments: str) -> None:
        """See `ClientUnderTest`. Raises `Broken` if there is no such command."""
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
        """See `ClientUnderTest`."""
        self.may_end = True
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    async def close(self) -> None:
        """Kill it with all that it has started: see `ClientUnderTest`."""
        self.may_end = True
        if self._process is None or self._waiting is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._waiting

    def last_words(self) -> str:
        """See `ClientUnderTest`."""
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-_LAST_LINES:])

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        self.exit_code = await process.wait()
        if not self.may_end:
            self._watched.object_to(f"the client ended by itself ({self.exit_code}): {self.last_words()}")
        self._watched.changed()
