"""Commands on a cluster whose executors are killed under them: each as `on_a_cluster` runs it.

Arguments: a file of steps in JSON, one for the answers, and the process ids of the workers. An answer also
says how many executors were killed meanwhile (`kills`).
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Self

import psutil
from pyspark import SparkContext

from relay.pipeline.spark.session import session
from tests.pipeline import on_a_cluster
from tests.worlds.waiting import eventually

LOOK = 0.002
"""Seconds between two looks at what runs."""
EVERY = 8
"""Of so many stages one loses an executor while its tasks run."""
PATIENCE = 120.0
"""Seconds for an executor to be replaced."""


class Killer:
    """Kills executors of both workers in turn, and waits in between until both are back."""

    def __init__(self, context: SparkContext, workers: list[int]) -> None:
        self.kills = 0
        self._context = context
        self._workers = cycle(workers)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="killer")

    def __enter__(self) -> Self:
        self._until_both_are_there()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        tracker, seen = self._context.statusTracker(), set[int]()
        while not self._over.wait(LOOK):
            for stage in tracker.getActiveStageIds():
                told = tracker.getStageInfo(stage)
                if stage in seen or told is None or not told.numActiveTasks:
                    continue
                seen.add(stage)
                if len(seen) % EVERY == 1:
                    kill(executor_of(next(self._workers)))
                    self.kills += 1
                    self._until_both_are_there()

    def _until_both_are_there(self) -> None:
        java: Any = self._context._jsc
        # The driver is counted, too.
        eventually(lambda: java.sc().getExecutorMemoryStatus().size() == 3, "both executors run", PATIENCE)


def executor_of(worker: int) -> psutil.Process:
    """The process that runs a worker's tasks."""

    def running() -> list[psutil.Process]:
        return [each for each in psutil.Process(worker).children() if each.status() != psutil.STATUS_ZOMBIE]

    eventually(running, "the worker has an executor", PATIENCE)
    return running()[0]


def kill(process: psutil.Process) -> None:
    """SIGKILL for a process and for all that it has started."""
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            each.kill()


if __name__ == "__main__":
    context = session("tests").sparkContext
    steps = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    workers = [int(each) for each in sys.argv[3:]]
    with Path(sys.argv[2]).open("w", encoding="utf-8") as answers:
        for step in steps:
            with Killer(context, workers) as killer:
                told = on_a_cluster.run(step, context, [])
            print(json.dumps({**told, "kills": killer.kills}), file=answers, flush=True)
    context.stop()
