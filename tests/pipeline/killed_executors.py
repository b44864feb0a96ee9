"""Commands on a cluster whose executors are killed under them: each as `on_a_cluster` runs it.

Arguments: a file of steps in JSON, one for the answers, and the process ids of the workers. An answer also
says how many executors of each worker were killed meanwhile (`kills`).
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext

from relay.pipeline.spark.session import session
from tests.pipeline import on_a_cluster
from tests.pipeline.doomed import end
from tests.worlds.waiting import eventually

LOOK = 0.002
"""Seconds between two looks at what runs."""
EVERY = 8
"""One stage in `EVERY` loses an executor while its tasks run."""
PATIENCE = 400.0
"""Seconds for an executor to be replaced."""


class Killer:
    """Kills executors of both workers in turn, and waits in between until both are back."""

    def __init__(self, context: SparkContext, workers: list[int]) -> None:
        self.kills: Counter[int] = Counter()
        """By the worker's process id, since the last command began."""
        self._context = context
        self._workers = cycle(workers)
        self._over = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Kill within the block. Raises what went wrong with the killing."""
        self.kills.clear()
        self._over.clear()
        self._until_both_are_there()
        with ThreadPoolExecutor(1) as pool:
            work = pool.submit(self._work)
            try:
                yield
            finally:
                self._over.set()
            work.result()

    def _work(self) -> None:
        tracker, seen = self._context.statusTracker(), set[int]()
        while not self._over.wait(LOOK):
            for stage in tracker.getActiveStageIds():
                told = tracker.getStageInfo(stage)
                if stage in seen or told is None or not told.numActiveTasks:
                    continue
                seen.add(stage)
                if len(seen) % EVERY == 1:
                    self._kill_one_of(next(self._workers))

    def _kill_one_of(self, worker: int) -> None:
        executor, before = executor_of(worker), self._known()
        with suppress(psutil.NoSuchProcess):  # it may end by itself, and is lost as well
            end(executor)
        self.kills[worker] += 1
        eventually(lambda: self._known() != before, "Spark knows of the loss", PATIENCE)
        self._until_both_are_there()

    def _until_both_are_there(self) -> None:
        eventually(lambda: len(self._known()) == 3, "both executors run", PATIENCE)  # and the driver

    def _known(self) -> set[str]:
        """The addresses of the executors' stores, and of the driver's."""
        java: Any = self._context._jsc
        memory = java.sc().getExecutorMemoryStatus().keysIterator()
        found = set()
        while memory.hasNext():
            found.add(str(memory.next()))
        return found


def executor_of(worker: int) -> int:
    """Return the id of the process that runs a worker's tasks."""

    def running() -> list[int]:
        found = []
        for each in psutil.Process(worker).children():
            with suppress(psutil.NoSuchProcess):
                found += [each.pid] if each.status() != psutil.STATUS_ZOMBIE else []
        return found

    return eventually(running, "the worker has an executor", PATIENCE)[0]


if __name__ == "__main__":
    context = session("tests").sparkContext
    steps = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    killer = Killer(context, [int(each) for each in sys.argv[3:]])
    with Path(sys.argv[2]).open("w", encoding="utf-8") as answers:
        for step in steps:
            with killer.at_work():
                told = on_a_cluster.run(step, context, [])
            print(json.dumps({**told, "kills": killer.kills}), file=answers, flush=True)
    context.stop()
