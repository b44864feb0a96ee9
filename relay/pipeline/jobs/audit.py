"""The job `audit`: it judges the journal's lake by the rules of `relay.core.audit`, and compares it with
Redis.

    lake, and the stream behind it → gaps → one timer after the other → timers that live → are they in Redis?
    → verdicts, tables, a report, and lost timers

Each arrow is Parquet under OUT/work, which is removed at the end; the tables are Delta tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.audit.report import Promise
from relay.core.errors import InvalidField
from relay.core.partitions import topic_of
from relay.pipeline.audit import gaps as audit_gaps
from relay.pipeline.audit import gather as audit_gather
from relay.pipeline.audit import lost_timers as audit_lost
from relay.pipeline.audit import page as audit_page
from relay.pipeline.audit import people as audit_people
from relay.pipeline.audit import presence
from relay.pipeline.audit import spread as audit_spread
from relay.pipeline.audit import tables as audit_tables
from relay.pipeline.audit.verdicts import VERDICT_COLUMNS, VERDICTS, Judged, judge, overall, row_of
from relay.pipeline.jobs import snapshot as snapshot_job
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.journal_source import JournalSource
from relay.pipeline.lake.journal_lake import Lake, ends, hour
from relay.pipeline.lake.journal_offsets import offsets
from relay.pipeline.lake.journal_rows import GAP
from relay.pipeline.spark.files import Files
from relay.pipeline.timers_source import TimersDataSource
from relay.store.journal.scan import Mark

WORK = "work"
REPORT = "report.html"
THERE = ("topic", "timer_id", "due_time", "state")


@dataclass(frozen=True, slots=True)
class AuditJob:
    """What to judge, and with what it is compared.

    `source` has the options of `timers_journal`, to go on behind the lake and to ask Redis. Without it,
    `snapshot`, a folder that `relay pipeline snapshot` wrote, may stand for Redis. `cold` is a cold store.
    `lost` is where lost timers are written, with payloads from `payloads`, or from the snapshot without that.
    """

    lake: str
    out: str
    topics: tuple[str, ...] = ()
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    snapshot: str = ""
    cold: str = ""
    exclusive: bool = False
    at_rest: bool = False
    lost: str = ""
    payloads: str = ""
    examples: int = 5
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar | None, job: AuditJob) -> Summary:
    """Judge, and write the tables and the report to `out`. Raises `InvalidField`, and Spark's errors."""
    return _Run(spark, job, bar.step if bar is not None else lambda _name: None).run()


class _Run:
    def __init__(self, spark: SparkSession, job: AuditJob, step: Callable[[str], None]) -> None:
        self.spark, self.job, self.step = spark, job, step
        self.files = Files(spark, job.out)
        self.lake = Lake(spark, job.lake)
        self.topics: dict[str, audit_gaps.Topic] = {}
        self.unknown = spark.createDataFrame(
            [], "topic string, timer_id string, due_time timestamp, state string"
        )
        for source in (JournalSource, TimersDataSource):
            spark.dataSource.register(source)

    def run(self) -> Summary:
        if self.job.dry_run:
            return self._dry()
        self.files.remove(WORK)
        self.step("reading what lies behind the lake")
        rows, marks = self._rows()
        self.step("looking for gaps")
        self.topics = audit_gaps.topics(rows)
        gaps = self._kept("gaps", audit_gaps.gaps(rows, self.topics))
        audit_gaps.note(self.topics, gaps)
        self.step("replaying timers")
        width = audit_spread.step_width(self.topics.values())
        facts = self._kept("facts", audit_spread.replayed(rows, self.topics, self.job.exclusive, width))
        self.step("asking what lives")
        living = self._kept("living", self._asked(facts.where("fact = 'living'"), marks))
        told = audit_spread.judged(living, self.topics, self.job.exclusive, self.job.at_rest)
        facts = facts.unionByName(self._kept("judged", told))
        self.step("adding up")
        summary = self._written(facts, gaps, living, width)
        self.files.remove(WORK)
        return summary

    def _dry(self) -> Summary:
        """Count what there is to judge, without the streams behind the lake."""
        kept = self.lake.rows(topics=self.job.topics).where(f.col("kind") != GAP)
        records = [row["count"] for row in kept.groupBy("topic").count().collect()]  # a row for each topic
        counts = {"topics": len(records), "records": sum(records)}
        return Summary("audit", dry_run=True, counts=counts)

    def _kept(self, name: str, rows: DataFrame) -> DataFrame:
        """Keep a step's result on disk, since it is read several times."""
        path = self.files.at(f"{WORK}/{name}")
        rows.write.parquet(path)
        return self.spark.read.schema(rows.schema).parquet(path)

    # ------------------------------------------------------------------------------ what there is

    def _rows(self) -> tuple[DataFrame, dict[str, Mark]]:
        """Return lake and stream, and how far the stream was read. A trigger of the journal job may come
        between the two, so the stream is read from where this state of the lake ends."""
        state = self.lake.state()
        rows = self.lake.rows(state, self.job.topics)
        marks = {stream: mark for stream, mark in state.marks.items() if self._wanted(stream)}
        if self.job.source:
            tail = self._kept("tail", self._behind(marks))
            rows = rows.unionByName(tail)
            marks |= ends(tail)
        return audit_gaps.placed(rows), marks

    def _wanted(self, stream: str) -> bool:
        return not self.job.topics or topic_of(stream) in self.job.topics

    def _behind(self, marks: Mapping[str, Mark]) -> DataFrame:
        """Read the streams behind these marks, to their current ends. Raises `InvalidField`."""
        names = self.job.topics or tuple(sorted(set(map(topic_of, marks))))
        if not names:
            raise InvalidField("topics", "are not named, and the lake has none")
        source = self.spark.read.format("timers_journal").options(**self.job.source)
        source = source.options(
            topics=json.dumps(names), startingOffsets=offsets(marks), failOnDataLoss="false"
        )
        return source.load().withColumn("hour", hour())

    def _asked(self, living: DataFrame, marks: Mapping[str, Mark]) -> DataFrame:
        """Add the answers of Redis or the snapshot, and of the cold store; keep timers that no journal knows
        aside."""
        job = self.job
        if job.source:
            asked = self._kept("asked", presence.in_redis(living, job.source))
            there = self._kept("there", self._in_redis())
            heard = self._kept("heard", presence.named_in(self._behind(marks)))
            self.unknown = presence.unknown(there, living, heard)
            asked = presence.void(asked, heard)
        elif job.snapshot:
            there, about = snapshot_job.read(self.spark, job.snapshot)
            reach = {name: topic.last_time for name, topic in self.topics.items()}
            began, ended = about["began_us"], about["ended_us"]
            asked = presence.in_snapshot(living, there, began, ended, reach)
            there = there.where(f.col("topic").isin(*self.topics))
            self.unknown = presence.unknown(there, living, living.limit(0))
        else:
            asked = presence.nobody(living)
        resting = presence.resting(self.spark, job.cold, tuple(self.topics)) if job.cold else None
        return presence.cold(asked, resting)

    def _in_redis(self) -> DataFrame:
        if not self.topics:
            return self.unknown  # no named topic would mean all topics
        source = self.spark.read.format("timers").options(**self.job.source).option("payload", "false")
        return source.option("topic", json.dumps([*self.topics])).load().select(*THERE)

    # ------------------------------------------------------------------------------ the result

    def _written(self, facts: DataFrame, gaps: DataFrame, living: DataFrame, width: int) -> Summary:
        lates = audit_tables.late(facts)
        totals = audit_tables.totals(facts, lates)
        verdicts = judge(facts, self.topics, self.job.topics, bool(self.job.source))
        people = audit_people.done(self.job.source, self.topics, self._span())
        tables = {
            "hours": audit_tables.hours(facts, lates),
            "topics": totals,
            "kinds": audit_tables.kinds(facts),
            "lateness": audit_tables.histogram(lates),
            "backlog": audit_tables.backlog(facts, width),
            "backlog_all": audit_tables.backlog(facts.withColumn("topic", f.lit("")), width),
            "findings": audit_tables.findings(facts),
            "open": audit_tables.living(living),
            "unknown": self.unknown,
            "gaps": gaps.select("topic", "entry", "missing", "why"),
            "verdicts": self.spark.createDataFrame([row_of(each) for each in verdicts], VERDICTS),
            "people": audit_people.table(self.spark, people),
        }
        for name, table in tables.items():
            self._replace(name, table)
        lateness = audit_tables.percentiles(lates, []).collect()  # one row
        sums = audit_gather.sums(self._table("topics"), facts)
        summary = self._summary(verdicts, sums, lateness[0].asDict() if lateness else audit_tables.NOT_LATE)
        summary.counts |= self._lost(living)
        self._report(summary, verdicts, people)
        return summary

    def _span(self) -> tuple[int, int]:
        """From the first record to the last, in microseconds."""
        times = [(topic.first_time, topic.last_time) for topic in self.topics.values()]
        return (min(first for first, _ in times), max(last for _, last in times)) if times else (0, 0)

    def _replace(self, name: str, table: DataFrame) -> None:
        """Write a table. Readers see the one of the run before until it is there."""
        place = self.files.at(name)
        if not DeltaTable.isDeltaTable(self.spark, place):
            self.files.remove(name)  # Parquet, by a Relay before Delta
        table.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(place)

    def _lost(self, living: DataFrame) -> dict[str, int]:
        """Write lost timers for `relay pipeline schedule`."""
        timers = audit_lost.lost(living)
        counts = {"open": living.count(), "lost": timers.count(), "unknown": self._table("unknown").count()}
        if not self.job.lost:
            return counts
        place = self.job.payloads or (f"{self.job.snapshot}/{snapshot_job.ROWS}" if self.job.snapshot else "")
        contents = audit_lost.contents(self.spark, place) if place else None
        files = Files(self.spark, self.job.lost)
        for name, table in zip(("timers", "bare"), audit_lost.with_content(timers, contents), strict=True):
            table.write.mode("overwrite").parquet(files.at(name))
            counts[f"lost_{name}"] = self.spark.read.parquet(files.at(name)).count()
        return counts

    def _summary(
        self, verdicts: list[Judged], sums: Mapping[str, int], lateness: Mapping[str, int | None]
    ) -> Summary:
        verdict, worst = overall(verdicts)
        counts = {
            "topics": len(self.topics),
            "records": sum(topic.records for topic in self.topics.values()),
            "missing": sum(topic.missing for topic in self.topics.values()),
            **worst,
            **sums,
            "breaks": sum(each.refuted for each in verdicts),
            "early": sum(each.refuted for each in verdicts if each.promise is Promise.NEVER_EARLY),
        }
        facts = {"verdict": verdict.value, "lateness": dict(lateness), "out": self.files.root}
        return Summary("audit", counts=counts, facts=facts)

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.files.at(name))

    def _report(self, summary: Summary, verdicts: list[Judged], people: audit_people.PeopleDid) -> None:
        """Write the page, last of all."""
        told = [dict(zip(VERDICT_COLUMNS, row_of(each), strict=True)) for each in verdicts]
        facts = summary.facts
        page = audit_gather.gather(
            self._table,
            facts["verdict"],
            summary.counts,
            facts["lateness"],
            self._span(),
            told,
            self.job.examples,
            people,
        )
        self.files.remove(REPORT)
        self.files.publish(REPORT, audit_page.render(page, audit_tables.PER_DECADE))
        summary.facts["report"] = self.files.at(REPORT)
