"""What this process and all below it use while something runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

LOOK = 0.25
"""Seconds between two looks at the processes."""


class Used:
    """`most`: bytes of RSS that they held together, shared pages counted twice. `cpu`: seconds.

    `but` is the server's pid: it is below this process as well, and what is measured does not talk to it.
    """

    def __init__(self, *, but: int) -> None:
        self.most, self.cpu = 0, 0.0
        self._but = but
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self.cpu = -self._cpu()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self.cpu += self._cpu()

    def _processes(self) -> Iterator[psutil.Process]:
        me = psutil.Process()
        yield from (each for each in (me, *me.children(recursive=True)) if each.pid != self._but)

    def _cpu(self) -> float:
        """That of workers that have ended is their parent's."""
        found = 0.0
        for process in self._processes():
            with suppress(psutil.Error):
                found += sum(process.cpu_times()[:4])
        return found

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            held = 0
            for process in self._processes():
                with suppress(psutil.Error):
                    held += process.memory_info().rss
            self.most = max(self.most, held)
