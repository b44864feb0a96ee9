"""One of an application's processes, and the way to ask it how it stands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from relay.worker.handled_counts import TopicCounts, added

ANSWER = 5.0
"""Seconds that a process has to say how it stands; its event loop may be blocked."""

FAREWELL = 2.0
"""Seconds to wait for the last words of a process that has ended."""


class WorkerProcess:
    """The process number `number`, and those that follow it under this number."""

    def __init__(self, number: int, arguments: Sequence[str]) -> None:
        self.number = number
        self.past: dict[str, TopicCounts] = {}
        """The counts of the processes before this one."""
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self._latest: dict[str, TopicCounts] = {}
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._told: asyncio.subprocess.Process | None = None
        """The process that was sent SIGTERM."""
        self._reading = asyncio.Lock()
        self._asked: asyncio.Task[str] | None = None
        self._unanswered = 0
        """How many questions it has still to answer: the answer to the last one is how it stands."""

    async def start(self) -> None:
        """Start the process; `wait` must follow. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = ["-m", "relay.worker", *self._arguments]
            command += ["--number", str(self.number), "--control", str(theirs.fileno())]
            try:
                # A session of its own: Ctrl-C in a terminal would reach it beside the signal that it is sent.
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, *command, pass_fds=[theirs.fileno()], start_new_session=True
                )
            except BaseException:
                ours.close()
                raise
        self._unanswered = 0
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 24)

    async def wait(self) -> int:
        """Wait for its end, and return its exit code, which is negative for a signal."""
        assert self._process is not None
        assert self._writer is not None
        try:
            code = await self._process.wait()
            await self._hear_last_words()
            return code
        finally:
            self._writer.close()
            self._process = self._reader = self._writer = None
            self.past, self._latest = added([self.past, _at_rest(self._latest)]), {}

    async def end(self, patience: float) -> None:
        """Let its handlers end, for `patience` seconds; then kill it."""
        process = self._process
        if process is None:
            return
        self.stop()
        try:
            async with asyncio.timeout(patience):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def stop(self) -> None:
        """Send SIGTERM, if there is a process: its handlers may end. Once only, since a second one kills."""
        if self._told is not self._process:
            self._told = self._process
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, if there is one."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def state(self) -> str:
        """Ask how it stands: `ready`, `starting`, `silent` if there is no answer in time, or `away`. Callers
        that ask while a question is under way share its answer, so that none queues for a silent process."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asked)

    async def _ask(self) -> str:
        async with self._reading:
            if self._reader is None or self._writer is None:
                return "away"
            self._unanswered += 1
            said = "away"
            try:
                async with asyncio.timeout(ANSWER):
                    self._writer.write(b"\n")
                    await self._writer.drain()
                    # What it answers to questions of before comes first, if it was silent then.
                    while self._unanswered:
                        said = self._heard(await self._reader.readline())
                        self._unanswered -= 1
            except TimeoutError:
                return "silent"
            except OSError:
                return "away"
            return said

    @property
    def counts(self) -> dict[str, TopicCounts]:
        """What its handlers did, as it said last, and what those of the processes before it did."""
        return added([self.past, self._latest])

    def _heard(self, line: bytes) -> str:
        if not line:
            return "away"
        said: dict[str, Any] = json.loads(line)
        self._latest = said["topics"]
        return "ready" if said["ready"] else "starting"

    async def _hear_last_words(self) -> None:
        """Read to the end of what it has said: its last line has all that it did."""
        async with self._reading:
            assert self._reader is not None
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(FAREWELL):
                    while line := await self._reader.readline():
                        self._heard(line)


def _at_rest(counts: dict[str, TopicCounts]) -> dict[str, TopicCounts]:
    """Nothing of what a process had under way runs any more."""
    for each in counts.values():
        each["running"] = 0
    return counts
