"""The jobs of the cold store: `sweep`, `cancel`, `cold`, and the part of `schedule` that stores rows
there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField, ServiceError, StoreUnavailable
from relay.core.validate import MAX_NAME_BYTES
from relay.pipeline.cold import compaction, plans
from relay.pipeline.cold.plans import Plans, topics
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import CANCELLED, ColdStore, DataFile, Write
from relay.pipeline.cold.sweep import Sweep, SweepBusy, SweepLost, SweepOptions, Swept, now
from relay.pipeline.jobs.job import Bar, JobFailed, Summary, translated
from relay.pipeline.spark.redis_target import Target

TABLE = "table"
ORPHANED = 86_400.0
"""Seconds after which a folder that nobody names is taken for the remains of a killed job."""

NO_NAME = r"[\x{00}-\x{1F}\x{7F}-\x{9F}{}]"


@dataclass(frozen=True, slots=True)
class SweepJob:
    """What to sweep. No topics means all that rest in the store."""

    target: Target
    cold: str
    options: SweepOptions
    topics: tuple[str, ...] = ()
    keep: int = compaction.KEEP
    dry_run: bool = False


def sweep(spark: SparkSession, bar: Bar, job: SweepJob) -> Summary:
    """Sweep one topic after the other. A topic that is busy, or fails, is a problem of its own, and holds up
    no other.

    Raises `StoreUnavailable`, or Spark's form of it.
    """
    cold, summary = ColdStore(spark, job.cold), Summary("sweep", job.dry_run)
    bar.step("looking at the cold store")
    chosen = [job.target.admit(topic) for topic in job.topics] or topics(cold, cold.writes())
    total = one_by_one(
        summary,
        "swept",
        chosen,
        lambda topic: _dry(cold, job, topic) if job.dry_run else _sweep(spark, bar, cold, job, topic),
    )
    summary.counts = {"topics": len(chosen), **asdict(total), "superseded": total.planned - total.staged}
    if job.dry_run:
        summary.counts = {name: summary.counts[name] for name in ("topics", "planned")}
    else:
        bar.step("removing what is no longer needed")
        kept = compaction.retain(cold, now(job.target), job.keep)
        summary.counts |= asdict(kept) | {"orphans_removed": compaction.orphans(cold, ORPHANED, time.time())}
    writes = cold.writes()
    summary.counts["unfinished_writes"] = len(writes) - len(cold.settled(writes))
    return summary


def one_by_one(summary: Summary, done: str, chosen: Sequence[str], work: Callable[[str], Swept]) -> Swept:
    """Work on one topic after the other. A topic that is busy, or fails, is a problem that names it (it was
    not `done`), and holds up no other. Raises `StoreUnavailable`, or Spark's form of it, which concerns all
    topics."""
    total = Swept()
    for topic in chosen:
        try:
            total = total.plus(work(topic))
        except (SweepBusy, SweepLost) as busy:
            summary.problems.append(str(busy))
        except (PySparkException, Py4JError, ServiceError) as failure:
            told = failure if isinstance(failure, ServiceError) else translated(failure)
            if isinstance(told, StoreUnavailable) or (isinstance(told, JobFailed) and told.unavailable):
                raise
            summary.problems.append(f"{topic!r} was not {done}: {told}")
    return total


def _sweep(spark: SparkSession, bar: Bar, cold: ColdStore, job: SweepJob, topic: str) -> Swept:
    def step(name: str) -> None:
        bar.step(f"{topic}: {name}")

    return Sweep(spark, cold, job.target, topic, job.options, step).run()


def _dry(cold: ColdStore, job: SweepJob, topic: str) -> Swept:
    """Count what a sweep would take: rows, before versions are compared."""
    mine = Plans(cold.files, topic)
    number = mine.following()
    until = None if job.options.horizon is None else now(job.target, topic) + job.options.horizon
    plan = mine.plan(number) or plans.make(cold, mine, number, "", until, job.options.batch)
    return Swept(planned=plan.rows)


# ----------------------------------------------------------------------------------- rows that come


def chill(cold: ColdStore, target: Target, rows: DataFrame) -> int:
    """Put checked rows of `topic, timer_id, due_us, expires_us, envelope` into the cold store, and remove
    what they replace from Redis; return how many there were."""
    return _finish(cold, target, cold.write(rows, cold.version(now(target))))


def ways(spark: SparkSession, target: Target, path: str, horizon: int) -> dict[str, Any]:
    """Return what the job `schedule` needs to divide its rows between Redis and a cold store."""
    cold = ColdStore(spark, path)
    return {
        "horizon": horizon,
        "chill": partial(chill, cold, target),
        "superseding": partial(superseding, cold, target),
    }


def superseding(cold: ColdStore, target: Target) -> Callable[[DataFrame], int]:
    """Return `supersede` with a version of now: after all that rests now, and before what comes to Redis
    next."""
    return partial(supersede, cold, version=cold.version(now(target)))


def supersede(cold: ColdStore, timers: DataFrame, version: int) -> int:
    """End rows of the cold store for these timers (`topic, timer_id`): newer intents went to Redis directly.

    Call it when they are there, with a version from before; returns how many rows that took.
    """
    held = topics(cold, cold.writes())
    # Timers that live in Redis are newer, so nothing is retired.
    write = cold.cancel(timers.where(f.col("topic").isin(held)), version, settled=True) if held else None
    return write.rows if write else 0


def cancel(spark: SparkSession, bar: Bar, target: Target, path: str, timers: DataFrame) -> Summary:
    """Cancel timers (`topic, timer_id`), wherever they are. Raises `InvalidField` for an invalid name."""
    cold, summary = ColdStore(spark, path), Summary("cancel")
    for name in ("topic", "timer_id"):
        _check(timers, name)
    bar.step("writing down what is cancelled")
    write = cold.cancel(timers.dropDuplicates(), cold.version(now(target)))
    bar.step("cancelling what lives in Redis")
    lived = retire(cold, target, write) if write else 0
    summary.counts = {"asked": write.rows if write else 0, "lived_in_redis": lived}
    return summary


def named(spark: SparkSession, topic: str, names: Sequence[str]) -> DataFrame:
    """Return timers of one topic, by ids that somebody typed."""
    return spark.createDataFrame([(topic, name) for name in names], "topic string, timer_id string")


def listed(spark: SparkSession, source: str, source_format: str, topic: str | None) -> DataFrame:
    """Return timers as a table lists them, with `topic` if it has no such column. Raises `InvalidField`."""
    table = spark.table(source) if source_format == TABLE else spark.read.format(source_format).load(source)
    missing = {"timer_id", "topic"} - set(table.columns) - ({"topic"} if topic is not None else set())
    if missing:
        raise InvalidField(min(missing), f"is not a column of {source}; there are {', '.join(table.columns)}")
    of_row = f.col("topic") if "topic" in table.columns else f.lit(topic)
    return table.select(of_row.cast("string").alias("topic"), f.col("timer_id").cast("string"))


def _check(timers: DataFrame, name: str) -> None:
    column = f.col(name)
    wrong = column.isNull() | ~f.octet_length(column).between(1, MAX_NAME_BYTES) | column.rlike(NO_NAME)
    found = timers.where(wrong).select(column.alias("name")).first()
    if found is not None:
        raise InvalidField(
            name, f"{found['name']!r} is invalid: give 1 to 256 bytes without braces and control characters"
        )


def _finish(cold: ColdStore, target: Target, write: Write | None) -> int:
    if write is None:
        return 0
    retire(cold, target, write)
    return write.rows


# ------------------------------------------------------------------------------------------- status


def status(spark: SparkSession, path: str) -> Summary:
    """Report what the manifests say: the rows of each topic and hour, before versions are compared."""
    cold, summary = ColdStore(spark, path), Summary("cold")
    writes = cold.writes()
    settled = cold.settled(writes)
    hours: dict[str, dict[str, int]] = {}
    files: list[DataFile] = []
    for topic in topics(cold, writes):
        mine = Plans(cold.files, topic)
        resting = [file for file in mine.holdings(settled).resting if file.hour != CANCELLED]
        files += resting
        for file in sorted(resting, key=lambda file: file.hour):
            per_hour = hours.setdefault(topic, {})
            per_hour[file.hour] = per_hour.get(file.hour, 0) + file.rows
    summary.counts = {
        "topics": len(hours),
        "rows": sum(file.rows for file in files),
        "files": len(files),
        "unfinished_writes": len(writes) - len(settled),
    }
    summary.facts["hours"] = hours
    return summary


def compact(spark: SparkSession, bar: Bar, path: str, least: int) -> Summary:
    """Merge many files into few, topic by topic. A topic that is being swept is left alone."""
    cold, summary = ColdStore(spark, path), Summary("compact")
    before = after = done = 0
    for topic in topics(cold, cold.writes()):
        bar.step(topic)
        made = compaction.compact(cold, topic, least)
        if made is not None:
            before, after, done = before + made[0], after + made[1], done + 1
    summary.counts = {"topics": done, "files_before": before, "files_after": after}
    return summary


def for_people(summary: Summary) -> None:
    """Print a line for each topic, instead of one for each hour."""
    for topic, each in summary.facts.pop("hours").items():
        span = f"{min(each)} to {max(each)} (UTC)"
        summary.facts[topic] = f"{sum(each.values()):,} rows in {len(each)} hours, {span}"
