"""The job `journal`: it stores streams and exported files in the lake, each record exactly once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from relay.core.partitions import topic_of
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.journal_source import JournalSource
from relay.pipeline.lake.journal_lake import Lake, ends, hour, partition
from relay.pipeline.lake.journal_offsets import (
    JournalOptions,
    chosen,
    from_offset,
    offsets,
    scanning,
    to_offset,
)
from relay.pipeline.lake.journal_rows import GAP
from relay.pipeline.lake.lake_state import LakeState
from relay.pipeline.spark.files import Files
from relay.store.journal.scan import Mark

CHECKPOINT = "_checkpoint"
"""The folder in the lake with how far the streams were read; Delta leaves names with `_` alone."""

TOO_BUSY = "Python worker failed to connect back"
CHANCES = 5
LOOK = 1
"""Seconds between two checks whether a job must stop."""

UPKEEP = 64
"""The commits between two compactions."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What to do. `source` has options of `timers_journal`, `files` are those that `relay journal export`
    wrote.

    `every` is the number of seconds between two looks at the streams; with None the job takes what there is,
    once. `trim` removes from Redis what is safe in the lake. `keep` drops hours of the lake that are older.
    `compact` compacts at the end, also if it is not yet time.
    """

    lake: str
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: tuple[str, ...] = ()
    every: float | None = None
    trim: bool = False
    compact: bool = False
    keep: timedelta | None = None
    checkpoint: str = ""
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar | None, job: Journal, stop: threading.Event | None = None) -> Summary:
    """Store the files, then the streams, then do the upkeep. A job with `every` ends once `stop` is set, or
    by Ctrl-C.

    Raises Spark's error for a stream that fails; what was stored until then stays stored.
    """
    step = bar.step if bar is not None else lambda _name: None
    spark.dataSource.register(JournalSource)
    keeper = Keeper(Lake(spark, job.lake), job)
    if job.dry_run:
        return keeper.waiting()
    keeper.lake.create()
    if job.files:
        step("files")
        keeper.take_files()
    if job.source.get("topics"):
        step("streams")
        try:
            to_the_end(lambda: start(spark, job, keeper), stop)
        except KeyboardInterrupt:
            if job.every is None:
                raise
        keeper.trim()
    step("upkeep")
    keeper.upkeep(at_once=job.compact)
    return keeper.summary()


def to_the_end(begin: Callable[[], StreamingQuery], stop: threading.Event | None = None) -> None:
    """Begin a query and wait until it ends or must stop. On a busy machine Spark gives up on its own
    planner's process after 10 s, and no setting changes that: then the query is begun again, which is
    harmless."""
    for chance in range(CHANCES):
        query = begin()
        try:
            while not query.awaitTermination(LOOK):
                if stop is not None and stop.is_set():
                    return
        except StreamingQueryException as failure:
            if TOO_BUSY not in str(failure) or chance == CHANCES - 1:
                raise
        else:
            return
        finally:
            query.stop()


def start(spark: SparkSession, job: Journal, keeper: Keeper) -> StreamingQuery:
    """Start the stream. It ends by itself unless the job has `every`."""
    source = spark.readStream.format("timers_journal").options(**job.source)
    marks: Mapping[str, Mark] = {}
    if "startingOffsets" not in job.source:  # a new checkpoint goes on where the lake ends
        marks = keeper.lake.state().marks
        source = source.option("startingOffsets", offsets(marks) if marks else "earliest")
    place = job.checkpoint or keeper.lake.files.at(CHECKPOINT)
    keeper.query = Query(Files(spark, place), marks)
    writer = source.load().writeStream.foreachBatch(keeper.store).option("checkpointLocation", place)
    writer = writer.queryName("relay-journal")
    trigger: dict[str, Any] = (
        {"availableNow": True} if job.every is None else {"processingTime": f"{job.every} seconds"}
    )
    return writer.trigger(**trigger).start()


@dataclass(frozen=True, slots=True)
class Query:
    """What Spark's checkpoint says of a query that began at these marks."""

    checkpoint: Files
    began: Mapping[str, Mark]

    @property
    def name(self) -> str:
        """Its id, which the checkpoint keeps across restarts."""
        told = json.loads(self.checkpoint.read("metadata") or "{}")
        name: str = told["id"]
        return name

    def end(self, batch: int) -> Mapping[str, Mark]:
        """Return how far each stream is read by the end of a batch."""
        if batch < 0:
            return self.began
        told = self.checkpoint.read(f"offsets/{batch}") or ""
        return from_offset(json.loads(told.splitlines()[-1]))


class Keeper:
    """Stores batches, and counts them."""

    def __init__(self, lake: Lake, job: Journal) -> None:
        self.lake = lake
        self.query: Query | None = None
        self._job = job
        self._safe: dict[str, str] = {}
        self._count: Counter[str] = Counter()
        self._trimmed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    # ------------------------------------------------------------------------------ storing

    def store(self, rows: DataFrame, batch: int) -> None:
        """Store a batch of the stream. A batch that is stored already is not read again."""
        assert self.query is not None
        self.trim()  # the batches before are stored, and Spark knows it
        began, end = self.query.end(batch - 1), self.query.end(batch)
        if not self._added(rows, began, end, {self.query.name: batch}):
            return
        moved = {stream: mark for stream, mark in end.items() if mark.entry and mark != began.get(stream)}
        self._safe |= {stream: mark.entry for stream, mark in moved.items()}
        if self._job.every is not None and self._due():
            self.upkeep()

    def take_files(self) -> None:
        """Store the rows that the lake does not have."""
        rows = self._files()
        self._added(rows, {}, ends(rows), {})

    def _files(self) -> DataFrame:
        source = self.lake.spark.read.format("timers_journal")
        return source.option("files", json.dumps(self._job.files)).load()

    def _added(
        self, rows: DataFrame, began: Mapping[str, Mark], end: Mapping[str, Mark], stored: dict[str, int]
    ) -> bool:
        """Make the rows a part of the lake; they lie behind `began`, as far as that is known, and reach to
        `end`. Returns whether they were not `stored` already.

        If another job commits meanwhile, this is done again on top of that.
        """
        while True:
            seen = self.lake.state()
            if any(seen.stored.get(name, -1) >= batch for name, batch in stored.items()):
                return False
            common = overlap(seen, began, end)
            fresh = self._fresh(rows, seen, common) if common else rows
            counts = Observation()
            gap = f.col("kind") == GAP
            counted = fresh.observe(counts, f.count_if(~gap).alias("records"), f.count_if(gap).alias("gaps"))
            after = replace(seen.reached(end), stored={**seen.stored, **stored})
            if self.lake.append(counted, after):
                break
        self._count.update(counts.get, batches=1)
        return True

    def _fresh(self, rows: DataFrame, seen: LakeState, streams: Iterable[str]) -> DataFrame:
        """Return the rows whose entries the lake lacks. Rows of these streams may be there already, from a
        file or by another job."""
        first = rows.agg(f.min(hour())).collect()[0][0]  # one row
        known = self.lake.rows(seen, sorted(set(map(topic_of, streams))), first or "")
        known = known.select("topic", "entry", partition().alias("place")).distinct()
        placed = rows.withColumn("place", partition())
        return placed.join(known, ["topic", "entry", "place"], "left_anti").drop("place")

    # ------------------------------------------------------------------------------ upkeep

    def trim(self) -> None:
        """Remove from Redis what is in the lake, except the newest entry."""
        if not self._job.trim or not self._safe:
            return
        with scanning(JournalOptions.of(self._job.source)) as scan:
            for stream, entry in self._safe.items():
                self._trimmed[topic_of(stream)] += scan.trim(stream, entry)
        self._safe.clear()

    def _due(self) -> bool:
        state = self.lake.state()
        return state.commits - state.compacted >= UPKEEP

    def upkeep(self, *, at_once: bool = False) -> None:
        """Do retention; after some commits, or at once, compact, and remove what nobody reads any more."""
        if self._job.keep is not None:
            oldest = datetime.now(UTC) - self._job.keep
            self._dropped.update(self.lake.retain(oldest.strftime("%Y-%m-%d-%H")))
        if at_once or self._due():
            self._count["compacted"] += self.lake.compact()
            self.lake.clean()

    def waiting(self) -> Summary:
        """Count what a run would store; nothing is stored."""
        state, summary = self.lake.state(), Summary("journal", dry_run=True)
        records = 0
        if self._job.files:
            records += self._files().count()
        if self._job.source.get("topics"):
            options = JournalOptions.of(self._job.source)
            with scanning(options) as scan:
                for stream in chosen(scan, options):
                    begin = state.marks.get(stream) or scan.begin(stream)
                    records += max(scan.end(stream).last - begin.last, 0)
        summary.counts["records"] = records
        return summary

    def summary(self) -> Summary:
        """Return the counts under stable names."""
        state = self.lake.state()
        names = ("batches", "records", "gaps", "compacted")
        return Summary(
            "journal",
            counts={name: self._count[name] for name in names},
            facts={
                "lake": self.lake.files.root,
                "version": state.version,
                "trimmed": dict(self._trimmed),
                "dropped": dict(self._dropped),
                "topics": to_offset(state.marks),
            },
        )


def overlap(state: LakeState, began: Mapping[str, Mark], end: Mapping[str, Mark]) -> set[str]:
    """Return the streams of which some entries between these marks may be in the lake."""
    return {
        stream
        for stream, mark in end.items()
        if stream in state.marks
        and mark != began.get(stream)
        and (stream not in began or began[stream].place < state.marks[stream].place)
    }
