"""Time in a test's hand: nothing passes unless the test says so."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import anyio

from relay.core.instants import SECOND
from relay.core.loop.wakeup import Wakeup

EPOCH = 1_767_225_600 * SECOND
"""What the store's clock says when a `FakeClock` begins: 2026-01-01, in microseconds."""

QUIET_ROUNDS = 3
"""Passes of the event loop without a task that could run, after which nothing moves any more."""

MAX_ROUNDS = 100_000
"""Passes after which something must be turning without waiting."""


async def settle() -> None:
    """Let every task run until all of them wait for something that only the test can bring about.

    Unlike `anyio.wait_all_tasks_blocked` it never sleeps in real time.
    """
    me = asyncio.current_task()
    quiet = 0
    for _ in range(MAX_ROUNDS):
        await asyncio.sleep(0)
        quiet = 0 if any(_can_run(task) for task in asyncio.all_tasks() if task is not me) else quiet + 1
        if quiet == QUIET_ROUNDS:
            return
    raise AssertionError("a loop turns without ever waiting")


def _can_run(task: asyncio.Task[object]) -> bool:
    waits_for: asyncio.Future[object] | None = getattr(task, "_fut_waiter", None)
    return waits_for is None or waits_for.done()


class FakeClock:
    """A `relay.engine.clock.Clock` that `advance` moves, and the store's clock beside it.

    `skew` (microseconds) is added to what the store reads: a server whose clock was set.
    """

    def __init__(self) -> None:
        self._start = self._now = 1_000.0
        self._sleepers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.skew = 0

    def now(self) -> float:
        """See `Clock.now`."""
        return self._now

    def together(self, instant: float) -> float:
        """See `Clock.together`: nothing is moved, unless a test puts something else in its place."""
        return instant

    def server(self) -> int:
        """What the store's clock says, in microseconds."""
        return EPOCH + round((self._now - self._start) * 1e6) + self.skew

    async def wait(self, wakeup: Wakeup, seconds: float = math.inf) -> None:
        """See `Clock.wait`."""
        with anyio.CancelScope() as scope, self._calling(scope.cancel, seconds):
            await wakeup.wait()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        over = anyio.Event()
        with self._calling(over.set, seconds):
            await over.wait()

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass; who waits wakes in the order of time, and settles before the next."""
        await settle()
        target = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, wake = heapq.heappop(self._sleepers)
            self._now = max(self._now, deadline)
            wake()
            await settle()
        self._now = target
        await settle()

    @contextmanager
    def _calling(self, wake: Callable[[], None], seconds: float) -> Iterator[None]:
        if seconds <= 0:
            wake()
        if seconds <= 0 or math.isinf(seconds):
            yield
            return
        deadline = max(
            self._now + seconds, math.nextafter(self._now, math.inf)
        )  # however short, it ends later
        entry = (deadline, next(self._order), wake)
        heapq.heappush(self._sleepers, entry)
        try:
            yield
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)
