"""The guarded load: it brings staged batches to Redis, each once, by `lua/bulk/guarded_load.lua`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import ServiceError, StoreUnavailable
from relay.pipeline.cold.plans import Staged
from relay.pipeline.cold.staging import PACKED, STAGED
from relay.pipeline.spark.files import Files
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import configured
from relay.store.bulk.columns_call import PackedRows
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loaded, Loading, Marks, StalePlan

COUNTS = ("seen", *Loaded._fields)
TOLD = f"topic string, stale boolean, why string, {', '.join(f'{name} long' for name in COUNTS)}"
_SCHEMA = pa.schema(
    [("topic", pa.string()), ("stale", pa.bool_()), ("why", pa.string()), *((n, pa.int64()) for n in COUNTS)]
)
FEW = {
    "spark.sql.files.maxPartitionBytes": "8796093022208b",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
}
"""A staged row may have 1 MiB, so neither Spark nor a worker must hold thousands of them. Files are not
split: the batches of one go to Redis one after the other, and Redis is quicker with timers that come in
order."""


@dataclass(frozen=True, slots=True)
class LoadEnd:
    """What a load came to: the topics whose marks are gone, those that Redis refused, each with the reason,
    and the counts of the others."""

    loaded: Loaded = field(default_factory=Loaded)
    stale: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


def load(
    spark: SparkSession,
    files: Files,
    target: Target,
    marks: Mapping[str, Marks],
    staged: Staged,
    *,
    rate: float | None = None,
    again: bool = False,
) -> LoadEnd:
    """Load all batches of the topics that have marks. A batch that was loaded before counts as it did then.
    A topic that fails holds up no other.

    `rate` is in timers a second for all workers together. `again` asks for each batch first whether it was
    loaded before. Raises `RuntimeError` if batches are missing, and Spark's errors if Redis or a worker is
    gone.
    """
    if not staged.files:
        return LoadEnd()
    named = {topic: each._replace(staging=staged.name) for topic, each in marks.items()}

    def of_partition(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _load(target, named, parts, rate, again)

    with configured(spark, FEW):
        told = _in_order(spark, files, staged).mapInArrow(of_partition, TOLD)
        counts = [f.sum(name).alias(name) for name in COUNTS]
        found = told.groupBy("topic").agg(*counts, f.max("stale").alias("stale"), f.max("why").alias("why"))
        rows = found.collect()  # one a topic
    seen = sum(row["seen"] for row in rows)
    if seen != staged.batches:
        raise RuntimeError(f"{seen} batches of {staged.batches} were loaded; run the sweep again")
    fine = [row for row in rows if not row["stale"] and row["why"] is None]
    loaded = Loaded(*(sum(row[name] for row in fine) for name in Loaded._fields))
    stale = frozenset(row["topic"] for row in rows if row["stale"])
    return LoadEnd(loaded, stale, {row["topic"]: row["why"] for row in rows if row["why"] is not None})


def _in_order(spark: SparkSession, files: Files, staged: Staged) -> DataFrame:
    """Make a partition for each file; the one with the earliest timers comes first."""
    read = spark.read.schema(STAGED)
    return reduce(
        DataFrame.unionAll, [read.parquet(files.at(f"{staged.folder}/{name}")) for name, *_ in staged.files]
    )


def _load(
    target: Target,
    marks: Mapping[str, Marks],
    parts: Iterable[pa.RecordBatch],
    rate: float | None,
    again: bool,
) -> Iterator[pa.RecordBatch]:
    """Load the rows of one task, topic by topic; yield a row of counts for each. Nothing of one topic is
    under way when the next one begins, so a failure is that topic's."""
    with target.open() as store:
        for topic, same in groupby(_batches(parts), lambda each: each[0]):
            batches = [0]
            told: dict[str, Any] = {"topic": topic, "stale": False, "why": None}
            rows = _counted((rows for _, rows in same), batches)
            loading = Loading(store.server)
            try:
                if topic in marks:
                    _load_topic(store, loading, marks[topic], rows, rate, again)
            except StoreUnavailable:
                raise
            except StalePlan:
                told["stale"] = True
            except ServiceError as failure:
                told["why"] = str(failure)
            _drain(loading)
            for _ in rows:
                pass
            told |= {"seen": batches[0], **loading.done._asdict()}
            yield pa.RecordBatch.from_pydict({name: [told[name]] for name in _SCHEMA.names}, _SCHEMA)


def _drain(loading: Loading) -> None:
    """Wait for what is under way of a topic that has failed, so that the next one's answers are its own."""
    while True:
        try:
            loading.flush()
        except StoreUnavailable:
            raise
        except ServiceError:
            continue
        return


def _load_topic(
    store: BulkStore,
    loading: Loading,
    marks: Marks,
    rows: Iterable[PackedRows],
    rate: float | None,
    again: bool,
) -> None:
    pace = Pace(store, rate) if rate else None
    for batch in rows:
        if again and loading.skip(marks, batch.batch, batch.partition):
            continue
        if pace is not None:
            loading.flush()
            pace.turn(batch.size)
        loading.load(marks, batch)
    loading.flush()


def _counted(rows: Iterable[PackedRows], count: list[int]) -> Iterator[PackedRows]:
    for each in rows:
        count[0] += 1
        yield each


def _batches(parts: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, PackedRows]]:
    """Yield the staged rows, with their topics, without copying their large columns."""
    for part in parts:
        columns = [part.column(name) for name in PACKED]
        for topic, *row in zip(part.column("topic").to_pylist(), *columns, strict=True):
            yield (
                topic,
                PackedRows(*map(_value, row)),
            )


def _value(element: pa.Scalar) -> Any:
    return memoryview(element.as_buffer()) if pa.types.is_binary(element.type) else element.as_py()
