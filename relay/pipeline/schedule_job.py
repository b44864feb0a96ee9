"""The job `schedule`: rows of a table become timers, in Redis, and beyond a horizon in the cold store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from relay.core.errors import InvalidField
from relay.pipeline import preview
from relay.pipeline.columns import check
from relay.pipeline.job import Bar, Summary
from relay.pipeline.reading import PROVENANCE, REJECTS, Reading
from relay.pipeline.session import configured
from relay.pipeline.sources import Source, rows_of
from relay.pipeline.target import Target
from relay.pipeline.writing import Load, Tally, write

if TYPE_CHECKING:
    from pyspark.sql.pandas._typing import ArrowMapIterFunction

COUNTS = ("written", "rejected", "later", "made_ids")
_REJECTED = (
    "topic string, timer_id string, due_time timestamp, payload binary, headers map<string,string>, "
    "content_type string, expire_time timestamp, record binary, file string, line long, field string, "
    "reason string, rejected_at timestamp"
)
_OUT = f"{_REJECTED}, {', '.join(f'{name} long' for name in COUNTS)}"
MOVED = (
    "{stored:,} rows were beyond the horizon when these were stored, and {later:,} when the others were "
    "loaded: some are in both places, or in neither. Due times must not change from one look to the next, as "
    "by now(): make them a table first, and load that"
)
COLD = "topic string, timer_id string, due_us long, expires_us long, envelope binary"
"""What the cold store takes: rows that were checked."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to do. `horizon` in microseconds from now: what is due later goes to the cold store, by `chill`,
    which answers how many rows it took; None: all goes to Redis. What rests there by then of timers that come
    to Redis (`topic, timer_id`) is over by what `superseding` answers. `rejects` is where refused rows go;
    None: the first one ends the job."""

    target: Target
    source: Source
    max_rate: float | None = None
    rejects: str | None = None
    horizon: int | None = None
    chill: Callable[[DataFrame], int] | None = None
    superseding: Callable[[], Callable[[DataFrame], int]] | None = None
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar, job: Schedule) -> Summary:
    """Rows that are refused are put aside; the cold store takes its part first, and Redis the other.

    It may be run again: a timer is replaced by itself. Raises `InvalidField`, and what Spark raises.
    """
    with configured(spark, job.source.conf):
        return _run(spark, bar, job)


def _run(spark: SparkSession, bar: Bar, job: Schedule) -> Summary:
    if job.horizon is not None and job.chill is None:
        raise InvalidField("cold", "is missing; with a horizon, name the cold store")
    reading = Reading(job.target, job.source.constants, make_ids=True)
    load = Load(reading, job.max_rate, _until(job), dry=job.dry_run, strict=job.rejects is None)
    bar.step("looking at the rows")
    rows = rows_of(spark, job.source)
    summary = Summary("schedule", job.dry_run)
    if job.dry_run:
        summary.first = preview.first(rows, reading, preview.SHOWN)
    elif bar.shown:
        bar.say("".join(f"first row: {preview.sentence(each)}" for each in preview.first(rows, reading, 1)))
    if load.until is not None and job.chill is not None and not job.dry_run:
        bar.step("storing what is due later")
        summary.counts["cold"] = job.chill(later(rows, replace(load, strict=False)))
    # Behind the rows that were just stored: a timer with rows on both sides of the horizon comes once.
    supersede = job.superseding() if job.superseding is not None and not job.dry_run else None
    bar.step("counting" if job.dry_run else "loading")
    summary.counts.update(_load(rows, load, None if job.dry_run else job.rejects))
    stored, due_later = summary.counts.get("cold", 0), summary.counts["later"]
    if not job.dry_run and stored != due_later:
        summary.problems.append(MOVED.format(stored=stored, later=due_later))
    if supersede is not None:
        bar.step("superseding what rests of them")
        summary.counts["superseded"] = supersede(sooner(rows, replace(load, strict=False)))
    if summary.counts["rejected"] and job.rejects and not job.dry_run:
        summary.facts["rejects"] = job.rejects
    return summary


def _until(job: Schedule) -> int | None:
    """The horizon as an instant, by the clock of Redis."""
    if job.horizon is None:
        return None
    with job.target.open() as store:
        return store.now() + job.horizon


def _load(rows: DataFrame, load: Load, rejects: str | None) -> dict[str, int]:
    """One pass: workers write to Redis, and what they refuse is what Spark writes."""
    seen = Observation("load")
    refused = (
        rows.mapInArrow(_arrow(partial(_part, replace(load, strict=load.strict and not load.dry))), _OUT)
        .observe(seen, *(sf.sum(name).alias(name) for name in COUNTS))
        .where("reason is not null")
        .drop(*COUNTS)
    )
    if rejects is None:
        refused.write.format("noop").mode("overwrite").save()
    else:
        refused.write.mode("append").parquet(rejects)
    found = seen.get
    return {name: int(found[name] or 0) for name in COUNTS}


def _part(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: its rejects, and at the end one row with its counts."""
    tally = Tally()
    for refused in write(batches, load, tally):
        nothing = [pa.nulls(refused.num_rows, pa.int64())] * len(COUNTS)
        yield _row([*refused.columns, *nothing])
    counts = [pa.array([getattr(tally, name)], pa.int64()) for name in COUNTS]
    yield _row([*(pa.nulls(1, kind) for kind in REJECTS.types), *counts])


def _row(columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=[*REJECTS.names, *COUNTS])


def later(rows: DataFrame, load: Load) -> DataFrame:
    """The rows that Redis does not get yet, as the cold store takes them (`COLD`). Refused ones are left out:
    the pass that loads puts them aside."""
    return rows.drop(*PROVENANCE[:-1]).mapInArrow(_arrow(partial(_later, load)), COLD)


def _later(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    until = load.until or 0
    for rows in batches:
        for group in check(rows, load.reading).good:
            kept = group.where(group.due >= until)
            columns = [
                pa.repeat(kept.topic, len(kept)),
                kept.timer_ids.cast(pa.string()),
                pa.array(kept.due, pa.int64()),
                pa.array(kept.expires, pa.int64(), mask=kept.expires < 0),
                kept.envelopes.cast(pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[part.split()[0] for part in COLD.split(", ")])


def sooner(rows: DataFrame, load: Load) -> DataFrame:
    """The timers that Redis has got: `topic, timer_id`."""
    return rows.drop(*PROVENANCE[:-1]).mapInArrow(
        _arrow(partial(_sooner, load)), "topic string, timer_id string"
    )


def _sooner(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        for group in check(rows, load.reading).good:
            kept = group if load.until is None else group.where(group.due < load.until)
            columns = [pa.repeat(kept.topic, len(kept)), kept.timer_ids.cast(pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["topic", "timer_id"])


def _arrow(function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> ArrowMapIterFunction:
    return function
