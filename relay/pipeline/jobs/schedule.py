"""The job `schedule`: rows of a table become timers in Redis, and beyond a horizon in the cold store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from relay.core.errors import InvalidField
from relay.core.timers import REPLACE, OnConflict
from relay.pipeline.inputs import preview
from relay.pipeline.inputs.files_found import skipped
from relay.pipeline.inputs.run_ids import MaxRejects, TooFewRows, checked, derived
from relay.pipeline.inputs.sources import Source, rows_of
from relay.pipeline.jobs.job import Bar, JobFailed, Summary, translated
from relay.pipeline.rows.columns import OP, REJECTED, TIMER, VERSION, ddl
from relay.pipeline.rows.new_timers import check
from relay.pipeline.rows.packing import Group
from relay.pipeline.rows.reading import PROVENANCE, REJECTS, Reading
from relay.pipeline.rows.sealing import RowSealing
from relay.pipeline.rows.writing import Load, WriteTally, why_not_asked, write
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import configured
from relay.store.bulk.inserting import RunLedger

if TYPE_CHECKING:
    from pyspark.sql.pandas._typing import ArrowMapIterFunction

COUNTS = ("written", "rejected", "later", "made_ids", "skipped_by_ledger", "skipped_alive")
FIELDS = (*TIMER, OP, VERSION, "record")
"""What a row can be refused for."""
BY = "rejected_by_{}"
_OUT = ddl({**REJECTED, **dict.fromkeys(COUNTS, "long")})
MOVED = (
    "{stored:,} rows were beyond the horizon when these were stored, and {later:,} when the others were "
    "loaded: some are in both places, or in neither. Due times must not change between two reads, as they do "
    "with now(): write them to a table first, and load that"
)
AGAIN = (
    "run {run} has inserted all {count:,} timers of this table before, and none {was} inserted again. "
    "Whatever has become of them since stands. --replace inserts them again, in the place of existing timers"
)
NOT_ASKED = (
    "Redis was not asked, so rows that a load would skip count as written: those that this run has "
    "inserted before, and those whose timers stand by --create-only or --on-conflict. {why}"
)
FEW = "{count:,} rows can be timers, and min_rows asks for {least:,}; nothing was written"
CHANGES = "What becomes of rows with op or version is decided where they are written"
MENDED = "; rows that were inserted before it stay: once it is mended, --run-id {run} inserts only the others"
COLD = "topic string, timer_id string, due_us long, expires_us long, envelope binary"
"""The columns of checked rows, as the cold store takes them."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What to do. `spread` (microseconds) is the window in which each timer has a place. `horizon` is in
    microseconds from now: later timers go to the cold store by `chill`, which
    returns how many rows it took; with None all go to Redis. `superseding` makes the function that ends what
    rests in the cold store of timers that go to Redis (`topic, timer_id`). `rejects` is where refused rows
    go; with None the first one ends the job. A `run_id` of None is derived from the input. With `replace`,
    rows replace existing timers, even if this run has inserted them before. `on_conflict`
    says which timer stands where one exists. Nothing is written if more rows are refused than `max_rejects`
    allows, or fewer than `min_rows` can be timers."""

    target: Target
    source: Source
    max_rate: float | None = None
    rejects: str | None = None
    horizon: int | None = None
    chill: Callable[[DataFrame], int] | None = None
    superseding: Callable[[], Callable[[DataFrame], int]] | None = None
    run_id: str | None = None
    replace: bool = False
    on_conflict: OnConflict = REPLACE
    spread: int = 0
    max_rejects: MaxRejects | None = None
    min_rows: int = 0
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar, job: Schedule) -> Summary:
    """Load the rows: refused ones are put aside, the cold store takes its part first, then Redis the rest.

    It may be run again: timers that the same run has inserted before stay as they are. Raises `InvalidField`,
    `HeldBack`, and Spark's errors.
    """
    with configured(spark, job.source.conf):
        return _run(spark, bar, job)


def _run(spark: SparkSession, bar: Bar, job: Schedule) -> Summary:
    _check(job)
    bar.step("looking at the rows")
    rows, empty = rows_of(spark, job.source)
    run_id = checked(job.run_id) if job.run_id is not None else derived(spark, job.source)
    reading = Reading(
        job.target,
        job.source.constants,
        make_ids=True,
        spread=job.spread,
        ops=OP in job.source.columns,
        versions=VERSION in job.source.columns,
    )
    load = Load(
        reading,
        "" if job.replace else run_id,
        job.on_conflict,
        job.max_rate,
        _until(job),
        dry=job.dry_run,
        strict=job.rejects is None,
    )
    summary = Summary("schedule", job.dry_run, {"empty_files": len(empty)}, {"run_id": run_id})
    if empty:
        summary.warnings.append(skipped(empty))
    if job.max_rejects is not None or job.min_rows:
        bar.step("counting rejects")
        _hold(job, *_first_look(rows, load))
    if job.dry_run:
        summary.first = preview.first(rows, reading, preview.SHOWN)
        bar.step("counting")
        _count(rows, load, summary)
        return summary
    if bar.shown:
        bar.say("".join(f"first row: {preview.sentence(each)}" for each in preview.first(rows, reading, 1)))
    try:
        _write(rows, load, bar, job, summary)
    except PySparkException as failure:
        told = translated(failure)
        if told.kind is not InvalidField or not load.run:
            raise
        raise JobFailed(f"{told}{MENDED.format(run=run_id)}", told.kind) from failure
    return summary


def _check(job: Schedule) -> None:
    """Raises `InvalidField` for what can't go together."""
    changes = [name for name in (OP, VERSION) if name in job.source.columns]
    if changes and job.horizon is not None:
        raise InvalidField("map", f"{changes[0]} is for timers in Redis; leave it or the cold store out")
    if changes and job.on_conflict is not REPLACE:
        raise InvalidField("map", f"{changes[0]} says which row counts; leave it or on_conflict out")
    if job.horizon is not None and job.chill is None:
        raise InvalidField("cold", "is missing; with a horizon, name the cold store")
    if job.horizon is not None and job.on_conflict in (OnConflict.KEEP_EARLIEST, OnConflict.KEEP_LATEST):
        raise InvalidField("on_conflict", "compares due times, which the cold store does not; leave one out")


def _hold(job: Schedule, count: int, rejected: int, example: str) -> None:
    """Raises `HeldBack` if there are too many rejects, or too few rows without them."""
    if job.max_rejects is not None:
        job.max_rejects.hold(count, rejected, example)
    if count - rejected < job.min_rows:
        raise TooFewRows(FEW.format(count=count - rejected, least=job.min_rows))


def _count(rows: DataFrame, load: Load, summary: Summary) -> None:
    """Count what a load would do, and ask Redis what it would skip, if Redis can be asked."""
    if load.run:
        why = CHANGES if load.reading.ops or load.reading.versions else why_not_asked(load)
        load = replace(load, asks=not why)
        summary.facts["asked_redis"] = load.asks
        if why:
            summary.warnings.append(NOT_ASKED.format(why=why))
    counts = summary.counts
    _take(summary, _load(rows, load, None))
    if counts["skipped_by_ledger"] and not any(
        counts[each] for each in ("written", "skipped_alive", "later")
    ):
        known = counts["skipped_by_ledger"]
        summary.warnings.append(AGAIN.format(run=load.run, count=known, was="would be"))


def _write(rows: DataFrame, load: Load, bar: Bar, job: Schedule, summary: Summary) -> None:
    """Load the cold store's part, then that of Redis, then end what rests of timers that went to Redis."""
    counts, known = summary.counts, 0
    if load.until is not None and job.chill is not None:
        bar.step("storing what is due later")
        counts["cold"], known = _chill(rows, load, job.chill)
    # This comes after the rows that were just stored, so a timer with rows on both sides of the horizon comes
    # once.
    supersede = job.superseding() if job.superseding is not None else None
    bar.step("loading")
    rejects = None if job.rejects is None else f"{job.rejects.rstrip('/')}/run_id={summary.facts['run_id']}"
    _take(summary, _load(rows, load, rejects))
    counts["skipped_by_ledger"] += known
    stored = counts.get("cold", 0)
    if stored + known != counts["later"]:
        summary.problems.append(MOVED.format(stored=stored + known, later=counts["later"]))
    if supersede is not None:
        bar.step("superseding what rests of them")
        counts["superseded"] = supersede(sooner(rows, load))
    if load.run and load.until is not None:
        # This comes last: if a timer has rows on both sides of the horizon, the sooner one must go to Redis.
        bar.step("noting what the cold store was told")
        _tell(rows, load)
    if counts["rejected"] and rejects:
        summary.facts["rejects"] = rejects
    if counts["skipped_by_ledger"] and not counts["written"] and not stored:
        known = counts["skipped_by_ledger"]
        summary.warnings.append(AGAIN.format(run=summary.facts["run_id"], count=known, was="was"))


def _until(job: Schedule) -> int | None:
    """Return the horizon as an instant, by the clock of Redis."""
    if job.horizon is None:
        return None
    with job.target.open() as store:
        return store.now() + job.horizon


def _take(summary: Summary, found: Mapping[str, int]) -> None:
    """Note a pass: its counts, and how many rows were refused for each field."""
    summary.counts.update({name: found[name] for name in COUNTS})
    summary.facts["rejected_by"] = {name: found[BY.format(name)] for name in FIELDS}


def _load(rows: DataFrame, load: Load, rejects: str | None) -> dict[str, int]:
    """Make one pass: workers write to Redis, and Spark writes the refused rows in the place of earlier
    ones."""
    by = {BY.format(name): sf.count_if(sf.col("field") == name) for name in FIELDS}
    told, refused = _passed(rows, load, **by)
    if rejects is None:
        refused.write.format("noop").mode("overwrite").save()
    else:
        refused.write.mode("overwrite").parquet(rejects)
    found = told.get
    return {name: int(found[name] or 0) for name in (*COUNTS, *by)}


def _first_look(rows: DataFrame, load: Load) -> tuple[int, int, str]:
    """Make a pass that writes nothing: count the rows and the refused ones, with the reason of one."""
    example = sf.min(sf.concat("field", sf.lit(": "), "reason"))
    told, refused = _passed(rows, replace(load, dry=True), example=example)
    refused.write.format("noop").mode("overwrite").save()
    found = told.get
    count = sum(int(found[name] or 0) for name in ("written", "rejected", "later"))
    return count, int(found["rejected"] or 0), str(found["example"] or "")


def _passed(rows: DataFrame, load: Load, **more: Column) -> tuple[Observation, DataFrame]:
    """Return an observation of the passing rows (`COUNTS` and `more`), and the refused rows."""
    seen = Observation("load")
    passed = rows.mapInArrow(_arrow(partial(_part, replace(load, strict=load.strict and not load.dry))), _OUT)
    told = [sf.sum(name).alias(name) for name in COUNTS]
    told += [column.alias(name) for name, column in more.items()]
    return seen, passed.observe(seen, *told).where("reason is not null").drop(*COUNTS)


def _part(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do one task: yield its rejects, and at the end one row with its counts."""
    tally = WriteTally()
    for refused in write(batches, load, tally):
        nothing = [pa.nulls(refused.num_rows, pa.int64())] * len(COUNTS)
        yield _row([*refused.columns, *nothing])
    counts = [pa.array([getattr(tally, name)], pa.int64()) for name in COUNTS]
    yield _row([*(pa.nulls(1, kind) for kind in REJECTS.types), *counts])


def _row(columns: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=[*REJECTS.names, *COUNTS])


def later(rows: DataFrame, load: Load) -> DataFrame:
    """Return the rows that Redis does not get yet, in the form of the cold store (`COLD`), and whether the
    run has stored them before (`known`). Refused rows are left out: the pass that loads puts them aside."""
    return _plain(rows).mapInArrow(_arrow(partial(_later, load)), f"{COLD}, known boolean")


def _chill(rows: DataFrame, load: Load, chill: Callable[[DataFrame], int]) -> tuple[int, int]:
    """Count the rows that the cold store took, and those that it had from this run before."""
    found = later(rows, load)
    known = found.where("known").count() if load.run else 0
    return chill(found.where("not known").drop("known")), known


def _later(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with load.reading.target.open() as store:
        ledger, sealing = RunLedger(store, load.run), RowSealing(load.reading.target, store)
        for group in _good(load, batches, sealing):
            kept = sealing.of(group.where(group.due >= (load.until or 0)))
            told = ledger.is_told(kept.topic, kept.ids()) if load.run else [False] * len(kept)
            columns = [
                pa.repeat(kept.topic, len(kept)),
                kept.timer_ids.cast(pa.string()),
                pa.array(kept.due, pa.int64()),
                pa.array(kept.expires, pa.int64(), mask=kept.expires < 0),
                kept.envelopes.cast(pa.binary()),
                pa.array(told, pa.bool_()),
            ]
            names = [*(part.split()[0] for part in COLD.split(", ")), "known"]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def sooner(rows: DataFrame, load: Load) -> DataFrame:
    """Return the timers that Redis has got (`topic, timer_id`) and that the cold store has not ended yet."""
    return _plain(rows).mapInArrow(_arrow(partial(_sooner, load)), "topic string, timer_id string")


def _sooner(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with load.reading.target.open() as store:
        ledger, sealing = RunLedger(store, load.run), RowSealing(load.reading.target, store, gives=False)
        for group in _good(load, batches, sealing):
            kept = group if load.until is None else group.where(group.due < load.until)
            if load.run:
                kept = kept.where(~np.array(ledger.is_told(kept.topic, kept.ids()), dtype=bool))
            columns = [pa.repeat(kept.topic, len(kept)), kept.timer_ids.cast(pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["topic", "timer_id"])


def _tell(rows: DataFrame, load: Load) -> None:
    """Note in the ledger that the cold store has these timers, or has ended what rested of them."""
    noted = _plain(rows).mapInArrow(_arrow(partial(_note, load)), "topic string")
    noted.write.format("noop").mode("overwrite").save()


def _note(load: Load, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with load.reading.target.open() as store:
        ledger, sealing = RunLedger(store, load.run), RowSealing(load.reading.target, store, gives=False)
        for group in _good(load, batches, sealing):
            ledger.note_told(group.topic, group.ids())
    yield from ()


def _good(load: Load, batches: Iterable[pa.RecordBatch], sealing: RowSealing) -> Iterator[Group]:
    for rows in batches:
        yield from check(rows, load.reading, sealing.refused).good


def _plain(rows: DataFrame) -> DataFrame:
    """Return the rows without columns that only rejects need."""
    return rows.drop(*PROVENANCE[:-1])


def _arrow(function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> ArrowMapIterFunction:
    return function
