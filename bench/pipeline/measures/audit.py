"""Lakes of millions of rows, each audited in one local run: how fast, and how much memory it takes."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from bench.harness.rows import Row
from bench.pipeline.journal_rows import Made, rows
from bench.pipeline.world import World, millions
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.lake.journal_lake import Lake

WROTE = "journal rows made and written to the lake"

LOOK = 0.25
"""Seconds between two looks at the processes."""


def audited(count: int) -> str:
    """The name of the rate at which a lake of `count` rows is audited."""
    return f"a lake of {millions(count)}, audited"


def memory_of(count: int) -> str:
    """The name of the most memory that the same audit takes."""
    return f"most memory of driver, JVM and workers, {millions(count)}"


def measure(world: World) -> Iterator[Row]:
    """Each lake is made once; each run judges all of it."""
    for count in world.plan.journal_rows:
        yield from _of_size(world, count)


def _of_size(world: World, size: int) -> Iterator[Row]:
    place = world.folder / f"lake-{size}"
    lake = Lake(world.spark, str(place))
    if not place.exists():
        began = time.perf_counter()
        made = rows(world.spark, Made(size)).repartition("topic")
        lake.create()
        lake.append(made, lake.state())
        if size == world.plan.journal_rows[-1]:
            yield Row("audit", WROTE, lake.rows().count() / (time.perf_counter() - began), "rows/s")
    count = lake.rows().count()
    out = world.folder / "audit"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    with Memory(world) as memory:
        told = audit_job.run(world.spark, None, audit_job.AuditJob(str(place), str(out), exclusive=True))
    if told.facts["verdict"] != "proved" or told.counts["records"] != count:
        raise RuntimeError(f"the audit went wrong: {told.document()}")
    yield Row("audit", audited(size), count / (time.perf_counter() - began), "rows/s")
    yield Row("audit", memory_of(size), memory.most / 2**30, "GiB")


class Memory:
    """The most that driver, JVM and workers held together; bytes of RSS, shared pages counted twice."""

    def __init__(self, world: World) -> None:
        self.most = 0
        self._world = world
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK):
            held = 0
            for process in self._world.processes():
                with suppress(psutil.Error):
                    held += process.memory_info().rss
            self.most = max(self.most, held)
