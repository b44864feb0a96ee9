"""The job `restore`: it brings a snapshot's timers back to Redis, by a sweep over the snapshot.

A timer that lives there is newer than the snapshot, and stays. A restored timer begins a new life: its
due time, its expiry and its envelope are those of the snapshot, byte for byte, and its attempts are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.cold.intents import is_taken
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import Sweep, now
from relay.pipeline.cold.sweep_options import SweepOptions
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.jobs.snapshot import digest_of, read
from relay.pipeline.jobs.sweep import told
from relay.pipeline.spark.redis_target import Target

WORK = "_relay_restore"
"""The folder beside the snapshot with its rows as a cold store, and the plans that make a restore
restartable."""

BEFORE = (
    "earlier runs have restored the timers that `before` counts, and this run left them alone, whether "
    "they live "
    "or not; to restore them once more, or to another Redis, name another --work than {work}"
)


@dataclass(frozen=True, slots=True)
class Restore:
    """What to restore. No topics means all of the snapshot. `work` is where the restore keeps how far it is;
    another `work` restores the same snapshot once more. `take_over` is as for a sweep."""

    target: Target
    snapshot: str
    topics: tuple[str, ...] = ()
    work: str | None = None
    rate: float | None = None
    take_over: bool = False
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar, job: Restore) -> Summary:
    """Compare the snapshot with its manifest, and load the timers that don't live in Redis. A topic that is
    busy, or fails, holds up no other. Raises `InvalidField`, and `StoreUnavailable` or Spark's form of it."""
    summary = Summary("restore", job.dry_run)
    rows, about = read(spark, job.snapshot)
    chosen = list(dict.fromkeys(job.topics)) or about["topics"]
    unknown = sorted(set(chosen) - set(about["topics"]))
    if unknown:
        raise InvalidField("topic", f"{unknown[0]!r} is not in {job.snapshot}")
    bar.step("comparing the snapshot with its manifest")
    found = digest_of(rows)
    if (found["timers"], found["digest"]) != (about["timers"], about["digest"]):
        raise InvalidField("snapshot", f"{job.snapshot} is not what its manifest says: nothing was restored")
    summary.facts["digest"] = found["digest"]
    whole = rows.where(
        f.col("topic").isin(chosen) & f.col("envelope").isNotNull() & (f.col("state") != "unreadable")
    )
    summary.counts["without_payload"] = found["without_payload"]
    summary.counts["unreadable"] = found["unreadable"]
    if job.dry_run:
        summary.counts["timers"] = whole.count()
        return summary
    cold = ColdStore(spark, job.work or f"{job.snapshot}/{WORK}")
    bar.step("preparing")
    _prepare(cold, job.target, whole, chosen)
    before = _taken(cold, chosen)

    options = SweepOptions(horizon=None, rate=job.rate, take_over=job.take_over)
    sweep = Sweep(spark, cold, job.target, chosen, options, bar.step)
    total = told(summary, sweep, "restored")
    kept = ("loaded", "live", "marked", "again", "batches")
    summary.counts |= {"timers": total.planned, **{name: asdict(total)[name] for name in kept}}
    summary.counts["before"] = before
    if before:
        summary.facts["told"] = BEFORE.format(work=cold.place)
    if total.loaded + total.live + total.marked != total.staged:
        summary.problems.append("not every timer of the snapshot is accounted for: run the restore again")
    return summary


def _taken(cold: ColdStore, chosen: Sequence[str]) -> int:
    """Count the rows that earlier runs have finished, in whichever Redis that was."""
    state = cold.state()
    rows = cold.table.rows(state.table).where(f.col("topic").isin(list(chosen)))
    return rows.where(is_taken(state.done.taken, state.known)).count()


def _prepare(cold: ColdStore, target: Target, rows: DataFrame, chosen: Sequence[str]) -> None:
    """Store the rows as settled writes, each topic once, even if an earlier run restored other topics.
    Nothing is retired, since timers that live in Redis are newer."""
    for write in cold.state().unsettled:
        cold.settle(write)
    stored = {
        row["topic"] for row in cold.table.rows(cold.state().table).select("topic").distinct().collect()
    }
    missing = sorted(set(chosen) - stored)
    if missing:
        made = cold.write(_rows(rows.where(f.col("topic").isin(missing))), cold.version(now(target)))
        if made is not None:
            cold.settle(made)


def _rows(rows: DataFrame) -> DataFrame:
    """Return the rows in the form of the cold store. If a snapshot read a timer twice, because it moved
    meanwhile, the sweep takes one row."""
    expires = f.unix_micros("expire_time").alias("expires_us")
    return rows.select("topic", "timer_id", "due_us", expires, "envelope")
