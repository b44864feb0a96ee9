"""The TLS handshakes of an HTTP listener, which count as its connections.

asyncio tells a protocol of its connection once the handshake has ended, and lets that take a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TIMEOUT = 10.0
"""Seconds that a handshake may take, or `idle_timeout` if that is less."""


class Handshakes:
    """Those under way. `slow` is called for each that took longer than `timeout` seconds."""

    def __init__(self, timeout: float, slow: Callable[[], None]) -> None:
        self._timeout = min(timeout, TIMEOUT)
        self._slow = slow
        self._deadlines: dict[asyncio.Task[object], asyncio.TimerHandle] = {}
        """By the task in which asyncio accepts the connection; the oldest comes first."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def begin(self) -> None:
        """Count the handshake that the running task waits for. However it ends, the task ends with it."""
        task = asyncio.current_task()
        assert task is not None
        deadline = asyncio.get_running_loop().call_later(self._timeout, self._out_of_time, task)
        self._deadlines[task] = deadline
        task.add_done_callback(self._end)

    def close_oldest(self) -> bool:
        """Close the connection whose handshake began first, if that is not the running task's; return whether
        there was one."""
        oldest = next(iter(self._deadlines))
        if oldest is asyncio.current_task():
            return False
        self._close(oldest)
        return True

    def close_own(self) -> None:
        """Close the connection whose handshake the running task is about to begin."""
        task = asyncio.current_task()
        assert task is not None
        self._close(task)

    def _out_of_time(self, task: asyncio.Task[object]) -> None:
        self._slow()
        self._close(task)

    def _close(self, task: asyncio.Task[object]) -> None:
        self._end(task)
        # asyncio closes the connection of a task that is cancelled, once its transport knows it.
        asyncio.get_running_loop().call_soon(task.cancel)

    def _end(self, task: asyncio.Task[object]) -> None:
        deadline = self._deadlines.pop(task, None)
        if deadline is not None:
            deadline.cancel()
