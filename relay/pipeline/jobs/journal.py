"""The job `journal`: it stores streams and exported files in the lake, each record exactly once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from relay.core.partitions import topic_of
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.journal_source import JournalSource
from relay.pipeline.lake.journal_lake import Lake, partition
from relay.pipeline.lake.journal_offsets import JournalOptions, chosen, offsets, scanning
from relay.pipeline.lake.lake_log import LakeChange, LakePart, LakeState
from relay.pipeline.spark.files import Files
from relay.store.journal.scan import Mark, place

CHECKPOINT = "checkpoint"
TOO_BUSY = "Python worker failed to connect back"
CHANCES = 5
LOOK = 1
"""Seconds between two checks whether a job must stop."""

UPKEEP = 64
"""The batches between two compactions of a job that goes on."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What to do. `source` has options of `timers_journal`, `files` are those that `relay journal export`
    wrote.

    `every` is the number of seconds between two looks at the streams; with None the job takes what there is,
    once. `trim` removes from Redis what is safe in the lake. `keep` drops hours of the lake that are older.
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
    keeper.upkeep()
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
    marks = {stream: Mark(*mark) for stream, mark in keeper.lake.log.state().marks.items()}
    source = spark.readStream.format("timers_journal").options(**job.source)
    if "startingOffsets" not in job.source:  # a new checkpoint goes on where the lake ends
        source = source.option("startingOffsets", offsets(marks) if marks else "earliest")
    place = job.checkpoint or keeper.lake.files.at(CHECKPOINT)
    keeper.stream = Files(spark, place)
    writer = source.load().writeStream.foreachBatch(keeper.store).option("checkpointLocation", place)
    writer = writer.queryName("relay-journal")
    trigger: dict[str, Any] = (
        {"availableNow": True} if job.every is None else {"processingTime": f"{job.every} seconds"}
    )
    return writer.trigger(**trigger).start()


class Keeper:
    """Stores batches, and counts them."""

    def __init__(self, lake: Lake, job: Journal) -> None:
        self.lake = lake
        self.stream: Files | None = None
        self._job = job
        self._safe: dict[str, str] = {}
        self._count: Counter[str] = Counter()
        self._trimmed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    # ------------------------------------------------------------------------------ storing

    def store(self, rows: DataFrame, batch: int) -> None:
        """Store a batch of the stream. A batch that is stored already is not read again."""
        query = self._query()
        if self.lake.log.state().stored.get(query, -1) >= batch:
            return
        self.trim()  # the batches before are stored, and Spark knows it
        part = self._added(rows, "batch", {query: batch})
        for stream, share in part.topics.items():
            self._safe[stream] = share.last_entry
        if self._job.every is not None and batch % UPKEEP == UPKEEP - 1:
            self.upkeep()

    def _query(self) -> str:
        """The stream's id, which its checkpoint keeps across restarts."""
        assert self.stream is not None
        told = json.loads(self.stream.read("metadata") or "{}")
        name: str = told["id"]
        return name

    def take_files(self) -> None:
        """Return the rows that the lake does not have."""
        self._added(self._files(), "import", {})

    def _files(self) -> DataFrame:
        source = self.lake.spark.read.format("timers_journal")
        return source.option("files", json.dumps(self._job.files)).load()

    def _added(self, rows: DataFrame, why: str, stored: dict[str, int]) -> LakePart:
        """Write the rows and make them a part of the lake.

        Rows whose entries may be there already, from a file or by another job, are compared with the lake. If
        the lake changes meanwhile, this is done again.
        """
        while True:
            seen = self.lake.log.state()
            part = self.lake.write(rows)
            if overlaps(part, seen):
                self.lake.files.remove(part.folder)
                known = self.lake.rows(seen, sorted(set(map(topic_of, part.topics))))
                known = known.select("topic", "entry", partition().alias("place")).distinct()
                placed = rows.withColumn("place", partition())
                fresh = placed.join(known, ["topic", "entry", "place"], "left_anti").drop("place")
                part = self.lake.write(fresh)
            if self.lake.log.commit(lambda state: self._change(state, seen, part, why, stored)) is not None:  # noqa: B023
                break
            self.lake.files.remove(part.folder)
            if any(self.lake.log.state().stored.get(name, -1) >= batch for name, batch in stored.items()):
                return part  # another run of this job was faster
        if not part.topics:
            self.lake.files.remove(part.folder)
        self._count["batches"] += 1
        self._count["records"] += part.records
        self._count["gaps"] += sum(share.gaps for share in part.topics.values())
        return part

    def _change(
        self, state: LakeState, seen: LakeState, part: LakePart, why: str, stored: dict[str, int]
    ) -> LakeChange | None:
        if any(state.stored.get(name, -1) >= batch for name, batch in stored.items()):
            return None
        if state.version != seen.version and overlaps(part, state):
            return None
        return LakeChange(why, (part,) if part.topics else (), stored=stored)

    # ------------------------------------------------------------------------------ upkeep

    def trim(self) -> None:
        """Remove from Redis what is in the lake, except the newest entry."""
        if not self._job.trim or not self._safe:
            return
        with scanning(JournalOptions.of(self._job.source)) as scan:
            for stream, entry in self._safe.items():
                self._trimmed[topic_of(stream)] += scan.trim(stream, entry)
        self._safe.clear()

    def upkeep(self) -> None:
        """Do retention and compaction, and remove what nobody reads any more."""
        if self._job.keep is not None:
            oldest = datetime.now(UTC) - self._job.keep
            self._dropped.update(self.lake.retain(oldest.strftime("%Y-%m-%d-%H")))
        if self._job.compact:
            self._count["compacted"] += self.lake.compact()
        if self._job.compact or self._job.keep is not None:
            self.lake.clean()

    def waiting(self) -> Summary:
        """Count what a run would store; nothing is stored."""
        state, summary = self.lake.log.state(), Summary("journal", dry_run=True)
        records = 0
        if self._job.files:
            records += self._files().count()
        if self._job.source.get("topics"):
            options = JournalOptions.of(self._job.source)
            with scanning(options) as scan:
                for stream in chosen(scan, options):
                    begin = state.marks[stream][1] if stream in state.marks else scan.begin(stream).last
                    records += max(scan.end(stream).last - begin, 0)
        summary.counts["records"] = records
        return summary

    def summary(self) -> Summary:
        """Return the counts under stable names."""
        state = self.lake.log.state()
        names = ("batches", "records", "gaps", "compacted")
        marks = {topic: {"entry": entry, "last": last} for topic, (entry, last) in state.marks.items()}
        return Summary(
            "journal",
            counts={name: self._count[name] for name in names} | {"folders": len(state.parts)},
            facts={
                "lake": self.lake.files.root,
                "version": state.version,
                "trimmed": dict(self._trimmed),
                "dropped": dict(self._dropped),
                "topics": marks,
            },
        )


def overlaps(part: LakePart, state: LakeState) -> bool:
    """Whether some entries of the rows may be in the lake."""
    marks = state.marks
    return any(
        topic in marks and place(share.first_entry) <= place(marks[topic][0])
        for topic, share in part.topics.items()
    )
