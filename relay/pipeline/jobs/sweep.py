"""The jobs of the cold store: `sweep`, `cancel`, `cold`, and the part of `schedule` that stores rows
there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.core.validate import MAX_NAME_BYTES
from relay.pipeline.cold import upkeep
from relay.pipeline.cold.counting import tell_what_rests
from relay.pipeline.cold.intents import untaken
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import ColdStore, Write
from relay.pipeline.cold.sweep import Sweep, SweepLost, TopicRefused, now
from relay.pipeline.cold.sweep_options import SweepOptions, Swept
from relay.pipeline.cold.table import NO_TABLE
from relay.pipeline.cold.topic_marks import SweepBusy
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.spark.hour_folders import hour_of
from relay.pipeline.spark.redis_target import Target

TABLE = "table"
NO_NAME = r"[\x{00}-\x{1F}\x{7F}-\x{9F}{}]"


@dataclass(frozen=True, slots=True)
class SweepJob:
    """What to sweep. No topics means all that rest in the store."""

    target: Target
    cold: str
    options: SweepOptions
    topics: tuple[str, ...] = ()
    keep: int = upkeep.KEEP
    dry_run: bool = False


def sweep(spark: SparkSession, bar: Bar, job: SweepJob) -> Summary:
    """Sweep all topics together. A topic that is busy, or fails, is a problem of its own, and holds up no
    other.

    Raises `StoreUnavailable`, or Spark's form of it.
    """
    cold, summary = ColdStore(spark, job.cold), Summary("sweep", job.dry_run)
    chosen = tuple(job.target.admit(topic) for topic in job.topics) or None
    sweep = Sweep(spark, cold, job.target, chosen, job.options, bar.step)
    if job.dry_run:
        bar.step("looking at the cold store")
        rows = sweep.look().rows
        summary.counts = {"topics": len(rows), "planned": sum(count for count, _ in rows.values())}
    else:
        total = told(summary, sweep, "swept")
        summary.counts = {"topics": sweep.topics, **asdict(total), "superseded": total.planned - total.staged}
        bar.step("counting what rests")
        summary.counts["resting"] = tell_what_rests(cold, job.target, chosen, now(job.target))
        bar.step("removing what is no longer needed")
        summary.counts |= asdict(upkeep.keep_small(cold, now(job.target), job.keep))
    summary.counts["unfinished_writes"] = len(cold.state().unsettled)
    return summary


def told(summary: Summary, sweep: Sweep, done: str) -> Swept:
    """Sweep, and tell of the topics that were left out, and so not `done`. Raises `StoreUnavailable`, or
    Spark's form of it."""
    total = Swept()
    try:
        total = sweep.run()
    except (SweepBusy, SweepLost) as busy:
        summary.problems.append(str(busy))
    for version, why_not in sweep.unfinished.items():
        summary.problems.append(f"the write {version} could not be finished, and waits: {why_not}")
    for topic, why in sweep.left_out.items():
        refused = isinstance(why, TopicRefused)
        summary.problems.append(f"{topic!r} was not {done}: {why}" if refused else str(why))
    return total


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
    if cold.table.version() == NO_TABLE:
        cold.give_back(version)
        return 0
    held = cold.table.rows().select("topic").distinct()
    # Timers that live in Redis are newer, so nothing is retired.
    write = cold.cancel(timers.join(f.broadcast(held), "topic", "left_semi"), version, settled=True)
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
    """Report what rests: the rows of each topic and hour, before versions are compared."""
    cold, summary = ColdStore(spark, path), Summary("cold")
    hour = hour_of(f.col("due_us")).alias("hour")
    hours: dict[str, dict[str, int]] = {}
    for row in untaken(cold).groupBy("topic", hour).count().sort("topic", "hour").toLocalIterator():
        hours.setdefault(row["topic"], {})[row["hour"]] = row["count"]
    summary.counts = {
        "topics": len(hours),
        "rows": sum(sum(each.values()) for each in hours.values()),
        "files": cold.table.size()[0],
        "unfinished_writes": len(cold.state().unsettled),
    }
    summary.facts["hours"] = hours
    return summary


def compact(spark: SparkSession, bar: Bar, path: str, least: int) -> None:
    """Merge the table's files, if there are at least `least` more than its size asks for."""
    bar.step("merging files")
    upkeep.compact(ColdStore(spark, path), least)


def for_people(summary: Summary) -> None:
    """Print a line for each topic, instead of one for each hour."""
    for topic, each in summary.facts.pop("hours").items():
        span = f"{min(each)} to {max(each)} (UTC)"
        summary.facts[topic] = f"{sum(each.values()):,} rows in {len(each)} hours, {span}"
