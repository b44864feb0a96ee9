"""A plan's rows on their way to Redis: of each timer the latest intent, in the order of due times, in
batches.

A batch is a pinned set of rows, known by its number: the ledger in Redis knows no more of it. So each row
carries its batch's number, and whoever loads a batch makes sure that it has all of it.
"""

from __future__ import annotations

import uuid

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from relay.pipeline.cold import ColdStore
from relay.pipeline.plans import Plan, Plans, Staged, folder_name

STAGED = "timer_id string, version long, due_us long, expires_us long, envelope binary, batch long"
QUICK = {"compression": "none", "parquet.enable.dictionary": "false"}
"""Staged rows are read once, and soon."""

FILE_BITS = 24
"""A batch's number is the file's, shifted by so much, plus its place in the file."""


def stage(cold: ColdStore, plans: Plans, plan: Plan) -> Staged:
    """Write the plan's rows, and say where; or what somebody else has said of this plan before."""
    folder = f"{folder_of(plan.topic)}/{plan.number:08d}-{uuid.uuid4().hex}"
    rows = _numbered(latest(cold, plan).orderBy("due_us", "timer_id"), plan.batch)
    rows.write.options(**QUICK).parquet(cold.files.at(folder))
    staged = Staged(folder, _files(cold, folder), plan.batch)
    if plans.stage(plan.number, staged):
        return staged
    cold.files.remove(folder)
    others = plans.staged(plan.number)
    assert others is not None  # or else ours would count
    return others


def folder_of(topic: str) -> str:
    """Where a topic's rows are staged."""
    return f"staged/{folder_name(topic)}"


def latest(cold: ColdStore, plan: Plan) -> DataFrame:
    """The plan's inputs without rows that have a newer one, or a cancel, in inputs or rivals.

    Few timers have more than one row, so these are found by a hash of their ids, and only they are compared.
    """
    inputs = cold.read(plan.inputs)
    if (
        not plan.rivals
        and all(file.single for file in plan.inputs)
        and len({file.folder for file in plan.inputs}) == 1
    ):
        return inputs
    intents = inputs.select("timer_id", "version", "due_us").unionAll(
        cold.read(plan.rivals).select("timer_id", "version", "due_us")
    )
    contested = intents.groupBy(_key().alias("key")).count().where("count > 1").select("key").cache()
    try:
        if contested.isEmpty():
            return inputs
        rank = f.struct("version", f.coalesce("due_us", f.lit(-1)))
        winners = (
            intents.join(contested, _key() == f.col("key"), "left_semi")
            .groupBy(f.col("timer_id").alias("id"))
            .agg(f.max(rank).alias("rank"))
        )
        alone = inputs.join(contested, _key() == f.col("key"), "left_anti")
        won = inputs.join(winners, (f.col("timer_id") == f.col("id")) & (rank == f.col("rank")), "left_semi")
        return alone.unionAll(won.dropDuplicates(["timer_id"]))
    finally:
        contested.unpersist()


def _key() -> Column:
    return f.xxhash64("timer_id")


def _numbered(rows: DataFrame, batch: int) -> DataFrame:
    """With their batch: `monotonically_increasing_id` counts the rows of each partition, which is a file."""
    place = f.monotonically_increasing_id()
    file = f.shiftright(place, 33)
    within = f.floor(place.bitwiseAND(f.lit((1 << 33) - 1)) / batch).cast("long")
    return rows.select(
        *(name.split()[0] for name in STAGED.split(", ")[:-1]),
        (f.shiftleft(file, FILE_BITS) + within).alias("batch"),
    )


def _files(cold: ColdStore, folder: str) -> tuple[tuple[int, str, int], ...]:
    """Number, name and rows of each file; a row a file."""
    table = cold.spark.read.schema(STAGED).parquet(cold.files.at(folder))
    found = (
        table.groupBy(
            f.shiftright("batch", FILE_BITS).alias("file"), f.col("_metadata.file_name").alias("name")
        )
        .agg(f.count("*").alias("rows"))
        .sort("file")
    )
    told = [(row.file, row.name, row.rows) for row in found.toLocalIterator()]
    if len({file for file, *_ in told}) != len(told):
        raise RuntimeError(
            f"a partition of {folder} was written to more than one file; unset maxRecordsPerFile"
        )
    return tuple(told)
