"""The guarded load: it brings staged batches to Redis, each once, by `lua/bulk/guarded_load.lua`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.pipeline.cold.plans import Staged
from relay.pipeline.cold.staging import PACKED, STAGED
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import configured
from relay.store.bulk.columns_call import PackedRows
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.sweeping import Loaded, Loading, Marks, StalePlan

COUNTS = "batches long, loaded long, live long, marked long, again long, stale long"
FEW = {
    "spark.sql.files.maxPartitionBytes": "8796093022208b",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
}
"""A staged row may have 1 MiB, so neither Spark nor a worker must hold thousands of them. Files are not
split: the batches of one go to Redis one after the other, and Redis is quicker with timers that come in
order."""


def load(
    spark: SparkSession,
    files: Files,
    target: Target,
    marks: Marks,
    staged: Staged,
    *,
    rate: float | None = None,
    again: bool = False,
) -> Loaded:
    """Load all batches. A batch that was loaded before counts as it did then.

    `rate` is in timers a second for all workers together. `again` asks for each batch first whether it was
    loaded before. Raises `StalePlan`, `RuntimeError` if batches are missing, and Spark's errors if Redis or a
    worker is gone.
    """
    if not staged.files:
        return Loaded()
    marks = marks._replace(staging=staged.name)

    def of_partition(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _load(target, marks, parts, rate, again)

    with configured(spark, FEW):
        told = _in_order(spark, files, staged).mapInArrow(of_partition, COUNTS)
        counts = told.agg(*(f.coalesce(f.sum(name), f.lit(0)) for name in told.columns)).first()
    assert counts is not None  # an aggregate without groups has one row
    *done, stale = counts
    if stale:
        raise StalePlan("the marks of this plan are gone; make a new plan")
    loaded = Loaded(*done)
    if loaded.batches != staged.batches:
        raise RuntimeError(f"{loaded.batches} batches of {staged.batches} were loaded; run the sweep again")
    return loaded


def _in_order(spark: SparkSession, files: Files, staged: Staged) -> DataFrame:
    """Make a partition for each file; the one with the earliest timers comes first."""
    read = spark.read.schema(STAGED)
    return reduce(
        DataFrame.unionAll, [read.parquet(files.at(f"{staged.folder}/{name}")) for name, *_ in staged.files]
    )


def _load(
    target: Target, marks: Marks, parts: Iterable[pa.RecordBatch], rate: float | None, again: bool
) -> pa.RecordBatch:
    """Load the rows of one task; yield one row of counts."""
    stale = 0
    with target.open() as store:
        loading = Loading(store.server)
        pace = Pace(store, rate) if rate else None
        try:
            for batch in _batches(parts):
                if again and loading.skip(marks, batch.batch, batch.partition):
                    continue
                if pace is not None:
                    loading.flush()
                    pace.turn(batch.size)
                loading.load(marks, batch)
            loading.flush()
        except StalePlan:
            stale = 1
    names = COUNTS.replace(" long", "").split(", ")
    return pa.RecordBatch.from_pydict(
        {name: [count] for name, count in zip(names, (*loading.done, stale), strict=True)}
    )


def _batches(parts: Iterable[pa.RecordBatch]) -> Iterator[PackedRows]:
    """Yield the staged rows without copying their large columns."""
    for part in parts:
        for row in zip(*(part.column(name) for name in PACKED), strict=True):
            yield PackedRows(*map(_value, row))


def _value(element: pa.Scalar) -> Any:
    return memoryview(element.as_buffer()) if pa.types.is_binary(element.type) else element.as_py()
