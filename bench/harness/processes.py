"""Processes that speak JSON lines, and what they cost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

PATIENCE = 300.0
"""Seconds after which a process that says nothing is given up."""

END_PATIENCE = 30.0
LINE = 1 << 26
"""bytes of the longest line that is read"""


class Broken(Exception):
    """A process ended or fell silent where it should have spoken."""


@dataclass(frozen=True)
class Child:
    """A running process. `pid` is its own, `hear` reads what it says."""

    name: str
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    async def hear(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Its next line. Raises `Broken`."""
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), patience)
        except TimeoutError:
            raise Broken(f"{self.name} has said nothing for {patience:.0f} s") from None
        if not line:
            code = await self.process.wait()
            raise Broken(f"{self.name} ended with {code}, before it had answered")
        said: dict[str, Any] = json.loads(line)
        return said

    async def tell(self, **what: Any) -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        await self.process.stdin.drain()


@asynccontextmanager
async def running(
    name: str, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> AsyncIterator[Child]:
    """Start a process; it is told to end (SIGTERM) with the block, if it has not ended by then."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, env=env, cwd=cwd, limit=LINE
    )
    try:
        yield Child(name, process)
    finally:
        await _end(process)


def application(module: str, **argument: Any) -> list[str]:
    """The command of a process of `bench.applications`."""
    return [sys.executable, "-m", f"bench.applications.{module}", json.dumps(argument)]


async def ask(command: Sequence[str | Path], patience: float = PATIENCE) -> dict[str, Any]:
    """Run a process that says one thing. Raises `Broken`."""
    async with running(" ".join(map(str, command[:3])), command) as child:
        said = await child.hear(patience)
        await asyncio.wait_for(child.process.wait(), END_PATIENCE)
    return said


def prioritise(niceness: int) -> None:
    """Give this process and its children another niceness, so that neighbours weigh less (or more).

    Linux may weigh sessions before it weighs processes; then this session's niceness counts. Raises
    `PermissionError` where only root may.
    """
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text(str(niceness))


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, user and system.

    Where the kernel tells nanoseconds (Linux) it is by those, elsewhere by ticks of 10 ms.
    """
    tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if tasks:
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


class Peak:
    """The most memory that a process took while the block ran, looked at every 20 ms."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.mib = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        self.mib = max(self.mib, rss_mib(self._pid))

    async def _watch(self) -> None:
        while True:
            self.mib = max(self.mib, rss_mib(self._pid))
            await asyncio.sleep(0.02)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), END_PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
