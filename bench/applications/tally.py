"""What every measured application keeps count of."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from bench.harness.quantiles import milliseconds


def say(**what: Any) -> None:
    """One line to whoever started this process."""
    print(json.dumps(what), flush=True)


class Tally:
    """Counts timers until all are there, and takes the time from the first to the last."""

    def __init__(self, timers: int) -> None:
        self.done = asyncio.Event()
        self._timers = timers
        self._seen: set[str] = set()
        self._calls = 0
        self._began = 0.0
        self._ended = 0.0
        self._cpu = 0.0
        self._late: list[float] = []

    def count(self, timer_id: str) -> None:
        """A handler was called."""
        if not self._calls:
            self._began, self._cpu = time.perf_counter(), time.process_time()
        self._calls += 1
        self._seen.add(timer_id)
        if len(self._seen) == self._timers and not self.done.is_set():
            self._ended = time.perf_counter()
            self._cpu = time.process_time() - self._cpu
            self.done.set()

    def late(self, due: float) -> None:
        """Note how long ago it was due (unix seconds), by this machine's clock."""
        self._late.append(time.time() - due)

    @property
    def calls(self) -> int:
        """How often a handler was called."""
        return self._calls

    @property
    def seconds(self) -> float:
        """From the first handler to the last."""
        return self._ended - self._began

    def report(self, seconds: float) -> None:
        """Say how it went."""
        say(
            seconds=seconds,
            handled=len(self._seen),
            again=self._calls - len(self._seen),
            cpu=self._cpu,
            lateness=milliseconds(self._late) if self._late else {},
        )
