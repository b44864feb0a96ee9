"""The job `forget`: it erases timers from the journal's lake and from an audit's tables, files and all, and
from a cold store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_

from delta.tables import DeltaTable
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.table import NO_TABLE
from relay.pipeline.cold.upkeep import forget
from relay.pipeline.jobs.audit import REPORT
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.lake.journal_lake import Lake, purge
from relay.pipeline.spark.files import Files

WITH_TIMERS = ("findings", "open", "unknown")
"""The tables of an audit that name timers."""


@dataclass(frozen=True, slots=True)
class Forget:
    """The timers of `topic` with these ids, or whose ids begin with a prefix, and where they are erased.
    `audits` are folders that `relay pipeline audit` wrote."""

    topic: str
    lake: str | None = None
    cold: str | None = None
    ids: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    audits: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def timers(self) -> Column:
        """The condition for their rows."""
        named = [f.col("timer_id").isin(*self.ids)] if self.ids else []
        begun = [f.col("timer_id").startswith(prefix) for prefix in self.prefixes]
        return (f.col("topic") == self.topic) & reduce(or_, named + begun)


def run(spark: SparkSession, bar: Bar | None, job: Forget) -> Summary:
    """Delete their rows; from a lake and an audit's tables, also the files that had them. Raises
    `InvalidField` if there is no lake or store, or no timer is named, and Delta's errors."""
    step = bar.step if bar is not None else lambda _name: None
    if "" in job.prefixes or not (job.ids or job.prefixes):
        raise InvalidField("id", "is missing; name ids, or prefixes that are not empty")
    summary = Summary("forget", job.dry_run)
    if job.cold is not None:
        step("the cold store")
        _of_cold(spark, job, job.cold, summary)
    if job.lake is not None:
        step("the lake")
        _of_lake(spark, job, job.lake, summary)
    for audit in job.audits:
        step(audit)
        _of_audit(spark, job, audit, summary)
    return summary


def _of_cold(spark: SparkSession, job: Forget, path: str, summary: Summary) -> None:
    cold = ColdStore(spark, path)
    if cold.table.version() == NO_TABLE:
        raise InvalidField("cold", f"{path} has no rows")
    summary.counts["cold_rows"] = forget(cold, job.timers, dry_run=job.dry_run)


def _of_lake(spark: SparkSession, job: Forget, path: str, summary: Summary) -> None:
    lake = Lake(spark, path)
    if not lake.exists():
        raise InvalidField("lake", f"{path} has none")
    found = lake.rows().where(job.timers)
    summary.counts["timers"] = found.select("timer_id").distinct().count()
    summary.counts["records"] = found.count() if job.dry_run else lake.forget(job.timers)


def _of_audit(spark: SparkSession, job: Forget, audit: str, summary: Summary) -> None:
    """Delete rows of the audit's tables. The report may show these timers, so it goes as well."""
    files = Files(spark, audit)
    gone = 0
    for name in WITH_TIMERS:
        if not DeltaTable.isDeltaTable(spark, files.at(name)):
            continue
        table = DeltaTable.forPath(spark, files.at(name))
        gone += table.toDF().where(job.timers).count()
        if not job.dry_run:
            table.delete(job.timers)
            purge(spark, files.at(name))
    summary.counts["audit_rows"] = summary.counts.get("audit_rows", 0) + gone
    if gone and not job.dry_run and files.remove(REPORT):
        summary.facts.setdefault("removed", []).append(files.at(REPORT))
