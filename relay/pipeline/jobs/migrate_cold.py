"""The job `migrate-cold`: it moves what rests in a cold store from before Delta into a new one."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from relay.core.errors import InvalidField
from relay.pipeline.cold.old_store import OldStore, move
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.spark.files import Files


@dataclass(frozen=True, slots=True)
class MigrateCold:
    """From where and to where. `new` may be a store in use."""

    old: str
    new: str
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar | None, job: MigrateCold) -> Summary:
    """Move what is not there yet; each topic's rows are compared by count and digest. A dry run counts rows,
    those of writes that were not settled included. Raises `InvalidField`, and Spark's errors."""
    step = bar.step if bar is not None else lambda _name: None
    if Files(spark, job.old).root == Files(spark, job.new).root:
        raise InvalidField("new", "is the old store; name another folder")
    step("reading the old store")
    old, summary = OldStore(spark, job.old), Summary("migrate-cold", job.dry_run)
    if not old.files:
        raise InvalidField("old", f"{job.old} has no rows of a cold store from before Delta")
    if job.dry_run:
        counts = [old.resting(topic).count() for topic in old.topics]
        summary.counts = {"topics": sum(count > 0 for count in counts), "rows": sum(counts)}
        return summary
    step("moving what rests")
    cold = ColdStore(spark, job.new)
    moved = asdict(move(old, cold))
    summary.counts = {"unfinished_writes": moved.pop("unsettled"), **moved}
    summary.facts["cold"] = cold.place
    return summary
