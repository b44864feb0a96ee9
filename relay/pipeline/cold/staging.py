"""A plan's rows on their way to Redis: the latest intent of each timer, in batches, each file in the order of
due times.

A staged row is a batch, packed as it goes over the wire. So a batch is a fixed set of timers that comes whole
or not at all, and the ledger in Redis needs only its number. A load, for which Redis and its relays have to
make room, does nothing but send.

Staged rows are plain Parquet: they are written by one job, read once, in an order of files that the plan has
written down, and removed. A table's log would add a commit and a look-up, and no reader.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relay.core.partitions import Layout
from relay.pipeline.cold.intents import latest
from relay.pipeline.cold.plans import Plan, Staged
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.table import FAILURES, TableGone, is_gone
from relay.pipeline.rows.packing import pack_rows
from relay.pipeline.rows.sealing import seal_plain, sealed_topics
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import configured
from relay.store.bulk.columns_call import PackedRows

if TYPE_CHECKING:
    from pyspark.sql.pandas._typing import ArrowMapIterFunction

_ARROW = (*(pa.int64(),) * 3, *(pa.binary(),) * 3, *(pa.string(),) * 2, pa.int64())
FOLDER = "staged"
STAGED = (
    "topic string, batch long, size long, first long, scores binary, timer_ids binary, envelopes binary, "
    "versions string, expires string, partition long"
)
"""A batch's topic, and the columns of `PackedRows` that a batch of timers has."""
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


def stage(cold: ColdStore, plan: Plan, target: Target) -> Staged:
    """Write the plan's rows, and return where they are; or return the staging of somebody who was faster. If
    there is a keyring, what rests in the clear of sealed topics is sealed. Raises `TableGone`."""
    sealed = sealed_topics(target, plan.topics) if target.keyring else frozenset()
    folder = f"{FOLDER}/{plan.number:08d}-{uuid.uuid4().hex}"
    counts = {topic: Layout.parse(topic, share.layout).count for topic, share in plan.topics.items()}
    try:
        with configured(cold.spark, ARROW):
            packing = _packing(plan.batch, counts, target, sealed)
            packed = _in_order(cold, plan).mapInArrow(packing, STAGED)
            packed.write.options(**QUICK).parquet(cold.files.at(folder))
    except FAILURES as failure:
        if is_gone(failure):
            raise TableGone(str(failure)) from failure
        raise
    staged = Staged(folder, _written(cold, folder), STAGED)
    if cold.plans.stage(plan.number, staged):
        return staged
    cold.files.remove(folder)
    others = cold.plans.staged(plan.number)
    assert others is not None  # otherwise ours would count
    return others


def is_there(cold: ColdStore, staged: Staged) -> bool:
    """Whether all files of a staging exist, with the columns that a load reads. They don't if somebody has
    removed them, or if another release staged them."""
    names = {name for name, *_ in staged.files}
    return staged.columns == STAGED and names <= set(cold.files.names(staged.folder))


def _in_order(cold: ColdStore, plan: Plan) -> DataFrame:
    """Return the latest rows, each task's topic by topic in the order of due times.

    Redis is quicker with timers that come in order, and several such streams don't slow it down. So rows stay
    with the task that reads them: a sort of all would send each to another task, which takes as long as all
    the rest. Rows that were compared have moved already, and move once more to come together.
    """
    rows, compared = latest(cold, plan)
    # A name is long to compare: one topic is not sorted by it.
    order = ["due_us"] if len(plan.topics) == 1 else ["topic", "due_us"]
    if compared or len(plan.topics) > 1:
        rows = rows.repartitionByRange(*order, "timer_id")
    return rows.sortWithinPartitions(*order)


def _packing(
    size: int, partitions: Mapping[str, int], target: Target, sealed: frozenset[str]
) -> ArrowMapIterFunction:
    """Pack the rows of a task: yield one row for each batch, which is of one partition of one topic."""

    def packing(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None  # there is one in a task
        number = context.partitionId() << FILE_BITS
        contents = target.contents() if sealed else None
        for topic, same in groupby(_by_topic(parts), lambda each: each[0]):
            count = partitions[topic]
            for part in gathered((each for _, each in same), size * count if count > 1 else 0):
                rows = seal_plain(part, topic, contents) if contents and topic in sealed else part
                packed = pack_rows(rows, size, count)
                batches = [each._replace(batch=number + n) for n, each in enumerate(packed)]
                number += len(batches)
                if batches:
                    columns = map(pa.array, zip(*batches, strict=True), _ARROW)  # those behind are empty
                    topics = pa.array([topic] * len(batches), pa.string())
                    yield pa.RecordBatch.from_arrays([topics, *columns], ["topic", *PACKED])

    return packing


def _by_topic(parts: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Divide batches whose rows come topic by topic; they are not copied."""
    for part in parts:
        if not len(part):
            continue
        topics = part.column("topic")
        ends = pc.run_end_encode(topics.combine_chunks() if isinstance(topics, pa.ChunkedArray) else topics)
        start = 0
        for end, topic in zip(ends.run_ends.to_pylist(), ends.values.to_pylist(), strict=True):
            yield topic, part.slice(start, end - start)
            start = end


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
