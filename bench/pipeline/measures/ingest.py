"""A journal in Redis, stored in an empty lake by `relay pipeline journal`, and its commits merged."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

from bench.harness.rows import Row
from bench.pipeline.world import World, millions
from relay.journal.v1 import journal_pb2
from relay.pipeline.jobs import journal as journal_job
from relay.pipeline.jobs.journal import Journal
from relay.store.server.blocking import BlockingServer

TOPIC = "ingested"
BATCH = 500
"""The records of one entry."""

START_MS = 1_767_225_600_000


def stored(count: int) -> str:
    """The name of the rate at which a journal of `count` rows is stored."""
    return f"stored in the lake, {millions(count)}"


def measure(world: World) -> Iterator[Row]:
    """Journals of each size, the smallest first; the first one of a session meets a JVM that is cold."""
    for count in world.plan.ingested:
        yield from _measured(world, count)


def _measured(world: World, count: int) -> Iterator[Row]:
    """The stream is written anew for each run; reading, decoding, storing and the commits are measured."""
    world.clear()
    fill(world, count)
    place = world.folder / "ingested"
    shutil.rmtree(place, ignore_errors=True)
    source = {"redis_url": world.server.url, "topics": TOPIC}
    began = time.perf_counter()
    told = journal_job.run(world.spark, None, Journal(str(place), source))
    if told.counts["records"] != count:
        raise RuntimeError(f"the journal went wrong: {told.document()}")
    yield Row("ingest", stored(count), count / (time.perf_counter() - began), "rows/s")
    began = time.perf_counter()
    journal_job.run(world.spark, None, Journal(str(place), compact=True))
    yield Row("ingest", f"compacted, {millions(count)}", count / (time.perf_counter() - began), "rows/s")
    world.clear()


def fill(world: World, count: int) -> None:
    """Write the journal of a topic: timers that are scheduled, `BATCH` with each call."""
    with BlockingServer(world.server.url, timeout=120) as line:
        key = line.keys.of(TOPIC)[-1]
        for n in range(count // BATCH):
            line.ask("XADD", key, f"{START_MS + n * 50}-0", "b", _batch(n * BATCH + 1))


def _batch(first: int) -> bytes:
    at = START_MS / 1000 + first / BATCH
    message = journal_pb2.Batch(version=1, time=int(at * 1_000_000), first=first, last=first + BATCH - 1)
    for number in range(first, first + BATCH):
        change = message.changes.add(timer_id=f"timer-{number:010d}".encode(), due=at + 3600)
        change.kind = journal_pb2.KIND_SCHEDULED
    return message.SerializeToString()
