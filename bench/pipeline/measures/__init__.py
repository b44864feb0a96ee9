"""What is measured, by name. Each yields the rows of one run; `world.found` has those of before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from bench.harness.rows import Row
from bench.pipeline.measures import audit, beside, find, ingest, load, sweep
from bench.pipeline.world import World

MEASURES: Mapping[str, Callable[[World], Iterator[Row]]] = {
    "load": load.measure,
    "beside": beside.measure,
    "sweep": sweep.measure,
    "ingest": ingest.measure,
    "find": find.measure,
    "audit": audit.measure,
}
