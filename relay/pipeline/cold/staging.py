"""A plan's rows on their way to Redis: the latest intent of each timer, in batches, each file in the order of
due times.

A staged row is a batch, packed as it goes over the wire. So a batch is a fixed set of timers that comes whole
or not at all, and the ledger in Redis needs only its number. A load, for which Redis and its relays have to
make room, does nothing but send.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relay.core.partitions import Layout
from relay.pipeline.cold.plans import Plan, Plans, Staged, folder_name
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.rows.packing import pack_rows
from relay.pipeline.spark.session import configured
from relay.store.bulk.columns_call import PackedRows

if TYPE_CHECKING:
    from pyspark.sql.pandas._typing import ArrowMapIterFunction

_ARROW = (*(pa.int64(),) * 3, *(pa.binary(),) * 3, *(pa.string(),) * 2, pa.int64())
STAGED = (
    "batch long, size long, first long, scores binary, timer_ids binary, envelopes binary, versions string, "
    "expires string, partition long"
)
"""Those columns of `PackedRows` that a batch of timers has."""
PACKED = PackedRows._fields[: len(_ARROW)]

QUICK = {
    "compression": "none",  # staged rows are read once, and soon
    "parquet.enable.dictionary": "false",
    # A row may have 1 MiB: a writer must not gather a hundred of them before it looks at their size.
    "parquet.block.size": str(16 << 20),
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "16",
}
ARROW = {"spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20)}
"""The rows that a worker packs at a time."""

HELD = 32 << 20
"""Bytes of rows that wait for more, so that each of many partitions gets large batches."""

FILE_BITS = 24
"""A batch's number is its partition's, shifted by this many bits, plus its place there."""


def stage(cold: ColdStore, plans: Plans, plan: Plan) -> Staged:
    """Write the plan's rows, and return where they are; or return the staging of somebody who was faster."""
    folder = f"{folder_of(plan.topic)}/{plan.number:08d}-{uuid.uuid4().hex}"
    with configured(cold.spark, ARROW):
        count = Layout.parse(plan.topic, plan.layout).count
        packed = _in_order(cold, plan).mapInArrow(_packing(plan.batch, count), STAGED)
        packed.write.options(**QUICK).parquet(cold.files.at(folder))
    staged = Staged(folder, _written(cold, folder), STAGED)
    if plans.stage(plan.number, staged):
        return staged
    cold.files.remove(folder)
    others = plans.staged(plan.number)
    assert others is not None  # otherwise ours would count
    return others


def is_there(cold: ColdStore, staged: Staged) -> bool:
    """Whether all files of a staging exist, with the columns that a load reads. They don't if somebody has
    removed them, or if another release staged them."""
    names = {name for name, *_ in staged.files}
    return staged.columns == STAGED and names <= set(cold.files.names(staged.folder))


def folder_of(topic: str) -> str:
    """Return the folder where a topic's rows are staged."""
    return f"staged/{folder_name(topic)}"


def _in_order(cold: ColdStore, plan: Plan) -> DataFrame:
    """Return the latest rows, each task's in the order of due times.

    Redis is quicker with timers that come in order, and several such streams don't slow it down. So rows stay
    with the task that reads them: a sort of all would send each to another task, which takes as long as all
    the rest. Rows that were compared have moved already, and move once more to come together.
    """
    rows, compared = _compared(cold, plan)
    if compared:
        rows = rows.repartitionByRange("due_us", "timer_id")
    return rows.sortWithinPartitions("due_us")


def latest(cold: ColdStore, plan: Plan) -> DataFrame:
    """Return the plan's inputs without rows that have a newer row, or a cancel, in inputs or rivals."""
    return _compared(cold, plan)[0]


def _compared(cold: ColdStore, plan: Plan) -> tuple[DataFrame, bool]:
    """Return the latest rows, and whether a timer had more than one row.

    Few timers have more than one, so these are found by a hash of their ids, and only they are compared.
    """
    inputs = cold.read(plan.inputs)
    if (
        not plan.rivals
        and all(file.single for file in plan.inputs)
        and len({file.folder for file in plan.inputs}) == 1
    ):
        return inputs, False
    intents = inputs.select("timer_id", "version", "due_us").unionAll(
        cold.read(plan.rivals).select("timer_id", "version", "due_us")
    )
    contested = intents.groupBy(_key().alias("key")).count().where("count > 1").select("key").cache()
    try:
        if contested.isEmpty():
            return inputs, False
        # Among one write's rows of a timer, the soonest counts.
        rank = f.struct("version", f.coalesce(-f.col("due_us"), f.lit(-1 << 62)))
        winners = (
            intents.join(contested, _key() == f.col("key"), "left_semi")
            .groupBy(f.col("timer_id").alias("id"))
            .agg(f.max(rank).alias("rank"))
        )
        alone = inputs.join(contested, _key() == f.col("key"), "left_anti")
        won = inputs.join(winners, (f.col("timer_id") == f.col("id")) & (rank == f.col("rank")), "left_semi")
        return alone.unionAll(won.dropDuplicates(["timer_id"])), True
    finally:
        contested.unpersist()


def _key() -> Column:
    return f.xxhash64("timer_id")


def _packing(size: int, partitions: int) -> ArrowMapIterFunction:
    """Pack the rows of a task: yield one row for each batch, which is of one of the partitions."""

    def packing(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None  # there is one in a task
        number = context.partitionId() << FILE_BITS
        for part in gathered(parts, size * partitions if partitions > 1 else 0):
            packed = pack_rows(part, size, partitions)
            batches = [each._replace(batch=number + n) for n, each in enumerate(packed)]
            number += len(batches)
            if batches:
                columns = map(pa.array, zip(*batches, strict=True), _ARROW)  # those behind are empty
                yield pa.RecordBatch.from_arrays(list(columns), list(PACKED))

    return packing


def gathered(parts: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Join batches of Arrow's until they have `rows` rows, or `HELD` bytes; the last may have less."""
    held: list[pa.RecordBatch] = []
    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= rows or sum(each.nbytes for each in held) >= HELD:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)


def _written(cold: ColdStore, folder: str) -> tuple[tuple[str, int, int], ...]:
    """Return name, batches and rows of each file; the file with the earliest timer comes first."""
    table = cold.spark.read.schema(STAGED).parquet(cold.files.at(folder))
    found = (
        table.groupBy(f.col("_metadata.file_name").alias("name"))
        .agg(f.min("first").alias("first"), f.count("*").alias("batches"), f.sum("size").alias("rows"))
        .sort("first")
    )
    return tuple((row.name, row.batches, row.rows) for row in found.toLocalIterator())
