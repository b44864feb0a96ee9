"""Runs handlers, at most `concurrency` at a time, with as few tasks as they allow.

A worker takes one lease after another while there are any, so handlers that end without
waiting share one task. Handlers that wait get a task each: every new worker starts two more
while there is work, so a batch of a hundred is under way after seven turns of the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable

from relay.client.handling.lease import DeliveryLease


class Workers:
    """The places in which handlers run. They outlive streams, so a handler keeps its place."""

    def __init__(
        self,
        handle: Callable[[DeliveryLease], Awaitable[None]],
        concurrency: int,
        on_free: Callable[[], None],
    ) -> None:
        self._handle = handle
        self._concurrency = concurrency
        self._on_free = on_free
        # Every worker starts from the context variables that were set when the client was opened.
        self._context = contextvars.copy_context()
        self._taken = 0
        self._ready: deque[DeliveryLease] = deque()
        self._tasks: dict[asyncio.Task[None], DeliveryLease | None] = {}
        """The lease that each worker holds, or held last."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self._taken

    def reserve(self, wanted: int) -> int:
        """Take up to `wanted` places; return how many were free."""
        got = min(wanted, self._concurrency - self._taken)
        if got:
            self._taken += got
            self._idle.clear()
        return got

    def give_back(self, count: int) -> None:
        """Return reserved places that won't be used."""
        self._taken -= count
        if self._taken == 0:
            self._idle.set()

    def start(self, leases: Iterable[DeliveryLease]) -> None:
        """Run handlers in places that were reserved for them."""
        self._ready.extend(leases)
        if self._ready:
            self._spawn(1)

    async def idle(self) -> None:
        """Wait until no place is taken."""
        await self._idle.wait()

    async def cancel(self, patience: float) -> int:
        """Cancel the handlers that run, wait up to `patience` seconds for their end, and return how many
        there were."""
        cut_off = self._taken
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        while self._ready:
            self._finish(self._ready.popleft())
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        return cut_off

    def cut(self, leases: Container[DeliveryLease]) -> None:
        """Cancel these handlers, wherever they are."""
        for task, lease in self._tasks.items():
            if lease in leases:
                task.cancel()
        unstarted = [lease for lease in self._ready if lease in leases]
        for lease in unstarted:
            self._ready.remove(lease)
            self._finish(lease)

    def _spawn(self, count: int) -> None:
        for _ in range(count):
            task = asyncio.create_task(self._work(), context=self._context.copy())
            self._tasks[task] = None
            task.add_done_callback(self._tasks.__delitem__)

    async def _work(self) -> None:
        ready, handle, at_work = self._ready, self._handle, self._tasks
        helped = False
        task = asyncio.current_task()
        assert task is not None
        while ready:
            lease = at_work[task] = ready.popleft()
            if ready and not helped:
                helped = True
                self._spawn(min(2, len(ready)))
            try:
                await handle(lease)
            except BaseException:
                if ready:  # the others must not wait for a worker that dies
                    self._spawn(1)
                raise
            finally:
                self._finish(lease)
            if contextvars.copy_context() != self._context:
                # The handler set a context variable, which the next one must not see.
                if ready:
                    self._spawn(1)
                return

    def _finish(self, lease: DeliveryLease) -> None:
        self.give_back(1)
        lease.stream.finished(lease)
        self._on_free()
