"""Removes from Redis what a write to the cold store replaces, so that each timer is in one place.

The rows are written first, then Redis changes: a job that is killed between the two has stored a timer twice
and not lost it. The write is settled last, and no sweep takes it before. So the timers that are retired can't
be ones that a sweep has loaded from these rows. Nor can they come from newer rows: a write takes away the
permits of older ones, which begin again and leave out what it has. A sweep that finishes a write whose writer
is silent takes the writer's permit in the same way. A write also begins again when the topic has got other
partitions, in which it has no permit yet.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from relay.core.errors import OtherLayout
from relay.core.partitions import Layout
from relay.pipeline.cold.intents import committed
from relay.pipeline.cold.store import ColdStore, Write
from relay.pipeline.rows.packing import divided
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.store import BATCH
from relay.store.bulk.sweeping import Fenced, Loading

COUNTS = "asked long, lived long, fenced long"
TRIES = 10


def retire(cold: ColdStore, target: Target, write: Write) -> int:
    """Remove from Redis what the write replaces or cancels, and settle the write; return how many timers
    lived there.

    It may be run again, at any time and by anybody, until the write is settled. Raises `Fenced` if others
    began it again and again, and Spark's errors if Redis or a worker is gone.
    """
    lived = 0
    for _ in range(TRIES):
        if cold.is_settled(write):
            return lived
        token = _permit(target, write)
        _, found, fenced = _counts(_retired(target, write.version, token, _not_newer(cold, write)))
        lived += found
        if not fenced:
            break
    else:
        raise Fenced("others go on with this write to the cold store; run the job again")
    cold.settle(write)
    with target.open() as store:
        for topic in sorted(write.topics):
            Loading(store.server).has_retired(store.at_rest(topic), write.version)
    return lived


def _permit(target: Target, write: Write) -> str:
    token = secrets.token_hex(8)
    with target.open() as store:
        for topic in sorted(write.topics):
            Loading(store.server).may_retire(store.at_rest(topic), write.version, token)
    return token


def _not_newer(cold: ColdStore, write: Write) -> DataFrame:
    """Return the write's timers without those that have a newer committed row. Call it after taking the
    permit: a write that is committed later takes the permit away."""
    state = cold.state()
    rows = cold.table.rows(state.table)
    timers = rows.where(f.col("version") == write.version).select("topic", "timer_id")
    if write.version >= state.known.last:
        return timers
    newer = rows.where((f.col("version") > write.version) & committed(state.known))
    return timers.join(newer, ["topic", "timer_id"], "left_anti")


def _retired(target: Target, version: int, token: str, timers: DataFrame) -> DataFrame:
    def of_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _retire(target, version, token, batches)

    return timers.mapInArrow(of_partition, COUNTS)


def _counts(told: DataFrame) -> tuple[int, ...]:
    found = told.agg(*(f.coalesce(f.sum(name), f.lit(0)) for name in told.columns)).first()
    assert found is not None  # an aggregate without groups has one row
    return tuple(found)


def _retire(
    target: Target, version: int, token: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with target.open() as store:
        loading = Loading(store.server)
        for batch in batches:
            lived = fenced = 0
            for topic, timer_ids in _by_topic(batch):
                layout = store.at_rest(topic)
                for partition, some in _by_partition(layout, timer_ids):
                    try:
                        lived += loading.retire(partition, version, token, some)
                    except Fenced:
                        fenced += 1
                    except OtherLayout as told:
                        store.layouts.learn(topic, told.layout)
                        fenced += 1  # the partitions of that one have permits of their own
            yield pa.RecordBatch.from_pydict(
                {"asked": [batch.num_rows], "lived": [lived], "fenced": [fenced]}
            )


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    topics = batch.column("topic")
    for topic in topics.unique().to_pylist():
        yield topic, batch.filter(pc.equal(topics, topic)).column("timer_id")


def _by_partition(layout: Layout, timer_ids: pa.Array) -> Iterator[tuple[str, list[Any]]]:
    """Yield parts of at most `BATCH` timers, each with the partition that has them."""
    places, parts = divided(timer_ids, layout.count)
    names = timer_ids.take(pa.array(places)).to_pylist()
    last = 0
    for number, size in parts:
        first, last = last, last + size
        for start in range(first, last, BATCH):
            yield layout.partitions[number], names[start : min(start + BATCH, last)]
