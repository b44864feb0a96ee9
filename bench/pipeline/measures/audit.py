"""Lakes of millions of rows, audited in one local run each: how long, how much CPU a row takes, and how much
memory all processes hold."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator

from bench.harness.rows import Row
from bench.pipeline.journal_rows import Made, rows
from bench.pipeline.used import Used
from bench.pipeline.world import World
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.lake.journal_lake import Lake

RATE, CPU, MEMORY = "rate", "CPU a row", "most memory"
"""Of driver, JVM and workers."""


def name(records: int) -> str:
    """Return the name of a size's row."""
    return f"{records:,} journal rows"


def measure(world: World) -> Iterator[Row]:
    """Each lake is made once; each run judges all of it."""
    for records in world.plan.audited:
        yield from _audit(world, records)


def _audit(world: World, records: int) -> Iterator[Row]:
    place = world.folder / f"lake-{records}"
    lake = Lake(world.spark, str(place))
    if not place.exists():
        lake.create()
        lake.append(rows(world.spark, Made(records)).repartition("topic"), lake.state())
    count = lake.rows().count()
    out = world.folder / "audit"
    shutil.rmtree(out, ignore_errors=True)
    began = time.perf_counter()
    with Used(but=world.server.pid) as used:
        told = audit_job.run(world.spark, None, audit_job.AuditJob(str(place), str(out), exclusive=True))
    if told.facts["verdict"] != "proved" or told.counts["records"] != count:
        raise RuntimeError(f"the audit went wrong: {told.document()}")
    yield Row("audit", name(records), count / (time.perf_counter() - began), "rows/s", RATE)
    yield Row("audit", name(records), used.cpu / count * 1e6, "µs", CPU)
    yield Row("audit", name(records), used.most / 2**30, "GiB", MEMORY)
