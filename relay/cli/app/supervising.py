"""Keeps an application's processes running: starts them, replaces those that die, and ends them in order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from random import random

from relay.cli.app.worker_process import WorkerProcess
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, OK

STABLE = 30.0
"""Seconds after which a process that ends has done well: the pause before the next one is short again."""

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between the end of a process and the start of the next one: doubled with each end."""

RELOAD_PATIENCE = 5.0
"""Seconds that handlers have to end when files have changed."""

_log = logging.getLogger("relay.app")


class Supervisor:  # see 0130
    """The processes of one application."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        self.workers = workers
        self.restarts = 0
        """How often a process was started because one had ended by itself."""
        self.stopping = asyncio.Event()
        self._code = OK
        self._signalled = False
        self._reloads = False
        self._changed = asyncio.Event()
        self._replaced: set[WorkerProcess] = set()
        """Those that end because files have changed."""

    async def run(self, changes: Callable[[], AsyncIterator[object]] | None = None) -> int:
        """Run until a signal, or until all processes have ended by themselves; return the exit code.

        The first SIGTERM or SIGINT lets handlers end, the second one kills. `changes` yields whenever files
        have changed; the processes are replaced then.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        self._reloads = changes is not None
        reloading = None if changes is None else asyncio.create_task(self._reload(changes))
        try:
            await asyncio.gather(*(self._keep(worker) for worker in self.workers))
        finally:
            if reloading is not None:
                reloading.cancel()
                await asyncio.gather(reloading, return_exceptions=True)
        return self._code

    def _on_signal(self) -> None:
        if self._signalled:
            _log.warning("a second signal: handlers are cut off")
            self._code = FAILURE
            for worker in self.workers:
                worker.kill()
        else:
            self._signalled = True
            _log.info("draining: handlers that run may end")
            self._stop()

    def _stop(self, code: int = OK) -> None:
        self._code = self._code or code
        self.stopping.set()
        for worker in self.workers:
            worker.stop()

    async def _keep(self, worker: WorkerProcess) -> None:
        """Run one process after the other."""
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not self.stopping.is_set():
            began = loop.time()
            code = await self._run_one(worker)
            if self.stopping.is_set():
                break
            if worker in self._replaced:
                self._replaced.discard(worker)
                continue
            if code in (OK, BAD_INPUT):  # another one would end in the same way
                if code == OK:
                    _log.info("worker %d has stopped by itself", worker.number)
                if not self._reloads:
                    if code == BAD_INPUT:
                        self._stop(BAD_INPUT)
                    break
                await self._until_changed(None)
                continue
            if loop.time() - began >= STABLE:
                pause = FIRST_PAUSE
            self.restarts += 1
            wait = pause * (0.5 + random() / 2)
            _log.error(
                "worker %d has ended: %s; another one starts in %.2f s", worker.number, _named(code), wait
            )
            pause = min(2 * pause, LONGEST_PAUSE)
            await self._until_changed(wait)

    async def _run_one(self, worker: WorkerProcess) -> int:
        """Run one process, and return its exit code."""
        try:
            await worker.start()
        except OSError as error:  # no memory, perhaps; the other processes go on
            _log.error("worker %d can't be started: %s", worker.number, error)
            return FAILURE
        if self.stopping.is_set():  # the signal came before there was a process
            worker.stop()
        return await worker.wait()

    async def _until_changed(self, seconds: float | None) -> None:
        """Wait for this long, or for as long as it takes, but not beyond a change of files or the stop."""
        self._changed.clear()
        waits = [asyncio.create_task(each.wait()) for each in (self._changed, self.stopping)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _reload(self, changes: Callable[[], AsyncIterator[object]]) -> None:
        try:
            async for _ in changes():
                _log.info("files have changed; the workers are replaced")
                self._changed.set()
                running = [worker for worker in self.workers if worker.running]
                self._replaced.update(running)
                await asyncio.gather(*(worker.end(RELOAD_PATIENCE) for worker in running))
        except Exception:  # noqa: BLE001 (whatever it is, the workers go on)
            _log.exception("files are not watched any more")


def _named(code: int) -> str:
    """Say how a process has ended."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
