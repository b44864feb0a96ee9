"""The job `audit`: the journal's lake, judged by the rules of `relay.core.audit`, held against Redis.

    lake, and what the stream has behind it → gaps → one timer after the other → what lives → is it in Redis?
    → verdicts, tables, a report, and what is lost

Each arrow is a table under OUT/work, which goes when all is done.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.audit.report import LIVES, Promise, Verdict, doubts_of
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.pipeline import (
    audit_gaps,
    audit_gather,
    audit_lost,
    audit_page,
    audit_standing,
    audit_tables,
    snapshot_job,
)
from relay.pipeline.audit_replay import FACTS, Judging, Replay
from relay.pipeline.files import Files
from relay.pipeline.hours import hour_of
from relay.pipeline.job import Bar, Summary
from relay.pipeline.journal_rows import EMPTY
from relay.pipeline.journal_source import JournalSource, offsets
from relay.pipeline.lake import Lake, milliseconds
from relay.pipeline.timers_source import TimersDataSource
from relay.store.journal_scan import Mark

WORK = "work"
REPORT = "report.html"
THERE = ("topic", "timer_id", "due_time", "state")
PER_TASK = 400_000
"""Changes that one task sorts and replays, about."""

MOST_STEPS = 240
STEPS = tuple(
    seconds * SECOND
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
)
"""How wide a step of the backlog may be: the narrowest that makes no more than `MOST_STEPS`."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What to judge, and by what.

    `source` has the options of `timers_journal`, to go on behind the lake and to ask Redis; without it
    `snapshot`, a folder that `relay pipeline snapshot` wrote, may stand for Redis. `cold` is a cold store.
    `lost` is where lost timers are written, with payloads from `payloads` (the snapshot, if it is not given).
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


@dataclass(slots=True)
class Judged:
    """One topic's verdict on one promise."""

    topic: str
    promise: Promise
    verdict: Verdict
    checked: int
    refuted: int
    doubts: dict[str, int]


def run(spark: SparkSession, bar: Bar | None, job: Audit) -> Summary:
    """Judge, and write the tables and the report to `out`. Raises what Spark raises, and `InvalidField`."""
    return _Run(spark, job, bar.step if bar is not None else lambda _name: None).run()


class _Run:
    def __init__(self, spark: SparkSession, job: Audit, step: Callable[[str], None]) -> None:
        self.spark, self.job, self.step = spark, job, step
        self.files = Files(spark, job.out)
        self.lake = Lake(spark, job.lake)
        self.topics: dict[str, audit_gaps.Topic] = {}
        self.unknown = spark.createDataFrame(
            [], "topic string, timer_id string, due_time timestamp, state string"
        )
        for source in (JournalSource, TimersDataSource):
            spark.dataSource.register(source)
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

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
        width = step_width(self.topics.values())
        facts = self._kept("facts", self._replayed(rows, width))
        self.step("asking what lives")
        living = self._kept("living", self._asked(facts.where("fact = 'living'"), marks))
        facts = facts.unionByName(self._kept("judged", self._judged(living)))
        self.step("adding up")
        summary = self._written(facts, gaps, living, width)
        self.files.remove(WORK)
        return summary

    def _dry(self) -> Summary:
        """How much there is to judge; the streams behind the lake are not looked at."""
        parts = self.lake.log.state().parts
        shares = [
            (name, share) for part in parts for name, share in part.topics.items() if self._wanted(name)
        ]
        counts = {
            "topics": len({name for name, _ in shares}),
            "records": sum(share.records for _, share in shares),
        }
        return Summary("audit", dry_run=True, counts=counts)

    def _kept(self, name: str, rows: DataFrame) -> DataFrame:
        """A step's result, on disk: it is read several times."""
        path = self.files.at(f"{WORK}/{name}")
        rows.write.parquet(path)
        return self.spark.read.schema(rows.schema).parquet(path)

    # ------------------------------------------------------------------------------ what there is

    def _rows(self) -> tuple[DataFrame, dict[str, Mark]]:
        """Lake and stream, and how far the stream was read. A trigger of the journal job may come between the
        two: so the stream is read from where this state of the lake ends."""
        state = self.lake.log.state()
        rows = self.lake.rows(state, self.job.topics).drop("part")
        marks = {topic: Mark(*mark) for topic, mark in state.marks.items() if self._wanted(topic)}
        if self.job.source:
            tail = self._kept("tail", self._behind(marks))
            rows = rows.unionByName(tail)
            marks |= _ends(tail)
        return audit_gaps.placed(rows), marks

    def _wanted(self, topic: str) -> bool:
        return not self.job.topics or topic in self.job.topics

    def _behind(self, marks: Mapping[str, Mark]) -> DataFrame:
        """The streams behind these marks, to their ends by now."""
        names = self.job.topics or tuple(marks)
        if not names:
            raise InvalidField("topics", "are not named, and the lake has none")
        source = self.spark.read.format("timers_journal").options(**self.job.source)
        source = source.options(
            topics=json.dumps(names), startingOffsets=offsets(marks), failOnDataLoss="false"
        )
        return source.load().withColumn("hour", hour_of(1000 * milliseconds()))

    # ------------------------------------------------------------------------------ the replay

    def _replayed(self, rows: DataFrame, width: int) -> DataFrame:
        """All timers, each with its changes in order, spread over the workers."""
        records = sum(topic.records for topic in self.topics.values())
        tasks = max(math.ceil(records / PER_TASK), self.spark.sparkContext.defaultParallelism)
        changes = _marked(rows.where((f.col("kind") != EMPTY) & f.col("timer_id").isNotNull()))
        key = ("topic", "timer_id", "raw_id")
        ordered = changes.repartition(tasks, *key).sortWithinPartitions(*key, "ms", "seq", "number")
        replay = Replay(
            {name: topic.around() for name, topic in self.topics.items()}, self.job.exclusive, width
        )
        return ordered.mapInArrow(_workers(replay), FACTS)

    def _judged(self, living: DataFrame) -> DataFrame:
        around = {name: topic.around() for name, topic in self.topics.items()}
        epochs = {name: topic.epochs for name, topic in self.topics.items()}
        return living.mapInArrow(
            _workers(Judging(around, epochs, self.job.exclusive, self.job.at_rest)), FACTS
        )

    def _asked(self, living: DataFrame, marks: Mapping[str, Mark]) -> DataFrame:
        """What Redis, or the snapshot, and the cold store say of them; and, aside, what nobody knew of."""
        job = self.job
        if job.source:
            asked = self._kept("asked", audit_standing.in_redis(living, job.source))
            there = self._kept("there", self._in_redis())
            heard = self._kept("heard", audit_standing.heard_of(self._behind(marks)))
            self.unknown = audit_standing.unknown(there, living, heard)
            asked = audit_standing.void(asked, heard)
        elif job.snapshot:
            there, about = snapshot_job.read(self.spark, job.snapshot)
            reach = {name: topic.last_time for name, topic in self.topics.items()}
            began, ended = about["began_us"], about["ended_us"]
            asked = audit_standing.in_snapshot(living, there, began, ended, reach)
            there = there.where(f.col("topic").isin(*self.topics))
            self.unknown = audit_standing.unknown(there, living, living.limit(0))
        else:
            asked = audit_standing.nobody(living)
        resting = audit_standing.resting(self.spark, job.cold, tuple(self.topics)) if job.cold else None
        return audit_standing.cold(asked, resting)

    def _in_redis(self) -> DataFrame:
        if not self.topics:
            return self.unknown  # none named would be all
        source = self.spark.read.format("timers").options(**self.job.source).option("payload", "false")
        return source.option("topic", json.dumps([*self.topics])).load().select(*THERE)

    # ------------------------------------------------------------------------------ the result

    def _written(self, facts: DataFrame, gaps: DataFrame, living: DataFrame, width: int) -> Summary:
        lates = audit_tables.late(facts)
        totals = audit_tables.totals(facts, lates)
        verdicts = self._verdicts(facts)
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
            "verdicts": self.spark.createDataFrame([_row(each) for each in verdicts], VERDICTS),
        }
        for name, table in tables.items():
            table.write.mode("overwrite").parquet(self.files.at(name))
        overall = audit_tables.percentiles(lates, []).collect()  # one row
        summary = self._summary(verdicts, overall[0].asDict() if overall else {})
        summary.counts |= self._lost(living)
        self._report(summary, verdicts)
        return summary

    def _lost(self, living: DataFrame) -> dict[str, int]:
        """What is gone, for `relay pipeline schedule`."""
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

    def _table(self, name: str) -> DataFrame:
        return self.spark.read.parquet(self.files.at(name))

    def _report(self, summary: Summary, verdicts: list[Judged]) -> None:
        """The page, last of all."""
        times = [(topic.first_time, topic.last_time) for topic in self.topics.values()]
        span = (min(first for first, _ in times), max(last for _, last in times)) if times else (0, 0)
        told = [dict(zip(VERDICT_COLUMNS, _row(each), strict=True)) for each in verdicts]
        facts = summary.facts
        page = audit_gather.gather(
            self._table, facts["verdict"], summary.counts, facts["lateness"], span, told, self.job.examples
        )
        self.files.remove(REPORT)
        self.files.publish(REPORT, audit_page.render(page, audit_tables.PER_DECADE))
        summary.facts["report"] = self.files.at(REPORT)

    def _verdicts(self, facts: DataFrame) -> list[Judged]:
        """A row for each topic, promise and reason is looked at."""
        found: dict[tuple[str, int], Counter[str]] = {}
        reasons = (
            facts.where("fact = 'finding'").groupBy("topic", "promise", "name").agg(f.sum("count").alias("n"))
        )
        for row in reasons.collect():
            found.setdefault((row.topic, row.promise), Counter())[row.name] = row.n
        checked = facts.where("fact = 'hour' and name like 'checked:%'").groupBy("topic", "name")
        known = {(row.topic, row.name): row.n for row in checked.agg(f.sum("count").alias("n")).collect()}
        unasked = facts.where("fact = 'unasked'").groupBy("topic").agg(f.sum("count").alias("n")).collect()
        waiting = {row.topic: row.n for row in unasked}
        if self.job.source:
            waiting = {}
        names = sorted({*self.topics, *self.job.topics})
        made = []
        for name in names:
            topic = self.topics.get(name) or audit_gaps.Topic(name)
            general = doubts_of(topic.batches, topic.gaps, topic.missing)
            for promise in Promise:
                reasons_of = found.get((name, int(promise)), Counter())
                doubts = {reason: count for reason, count in reasons_of.items() if reason} | general
                if promise is Promise.AT_LEAST_ONCE and name in waiting:
                    doubts[LIVES.format(waiting[name])] = waiting[name]
                refuted = reasons_of[""]
                verdict = Verdict.of(refuted > 0, bool(doubts))
                count = known.get((name, f"checked:{int(promise)}"), 0)
                made.append(Judged(name, promise, verdict, count, refuted, doubts))
        return made

    def _summary(self, verdicts: list[Judged], lateness: dict[str, Any]) -> Summary:
        worst = dict.fromkeys(Verdict, 0)
        for topic in {each.topic for each in verdicts}:
            own = {each.verdict for each in verdicts if each.topic == topic}
            worst[
                next(each for each in (Verdict.REFUTED, Verdict.UNSAID, Verdict.PROVED) if each in own)
            ] += 1
        counts = {
            "topics": len(self.topics),
            "records": sum(topic.records for topic in self.topics.values()),
            "missing": sum(topic.missing for topic in self.topics.values()),
            "proved": worst[Verdict.PROVED],
            "refuted": worst[Verdict.REFUTED],
            "unsaid": worst[Verdict.UNSAID],
        }
        overall = Verdict.of(worst[Verdict.REFUTED] > 0, worst[Verdict.UNSAID] > 0)
        facts = {"verdict": overall.value, "lateness": lateness, "out": self.files.root}
        return Summary("audit", counts=counts, facts=facts)


VERDICTS = """
topic string, promise int, title string, verdict string, checked bigint, refuted bigint,
doubts map<string,bigint>
"""


VERDICT_COLUMNS = [part.split()[0] for part in VERDICTS.replace("<string,", "<string;").split(",")]


def _row(each: Judged) -> tuple[Any, ...]:
    title, verdict = each.promise.title, each.verdict.value
    return each.topic, int(each.promise), title, verdict, each.checked, each.refuted, each.doubts


def _ends(tail: DataFrame) -> dict[str, Mark]:
    """How far the stream was read: a row for each topic."""
    place = f.struct("ms", "seq")
    found = (
        audit_gaps.placed(tail)
        .groupBy("topic")
        .agg(f.max_by("entry", place).alias("entry"), f.max_by("batch_last", place).alias("last"))
        .collect()
    )
    return {row.topic: Mark(row.entry, row["last"]) for row in found}


def _marked(changes: DataFrame) -> DataFrame:
    """With `used`: whether the nonce of a claim was used in an earlier entry. That nearly never is so, and is
    found out without comparing all entries."""
    claims = changes.where("kind = 'CLAIMED'")
    bounds = [
        f.min("ms").alias("ms_0"),
        f.max("ms").alias("ms_1"),
        f.min("seq").alias("seq_0"),
        f.max("seq").alias("seq_1"),
    ]
    again = claims.groupBy("topic", "nonce").agg(*bounds).where("ms_0 != ms_1 or seq_0 != seq_1")
    keys = ["topic", "nonce"]
    first = (
        claims.join(again.select(*keys), keys, "left_semi")
        .groupBy(*keys)
        .agg(f.min(f.struct("ms", "seq")).alias("first"))
        .cache()
    )
    if first.isEmpty():
        return changes.withColumn("used", f.lit(False))
    later = (f.col("kind") == "CLAIMED") & (f.col("first") < f.struct("ms", "seq"))
    return changes.join(first, keys, "left").withColumn("used", f.coalesce(later, f.lit(False))).drop("first")


def step_width(topics: Any) -> int:
    """How wide a step of the backlog is (microseconds)."""
    times = [(topic.first_time, topic.last_time) for topic in topics if topic.batches]
    span = max((last for _, last in times), default=0) - min((first for first, _ in times), default=0)
    return next((step for step in STEPS if span / step <= MOST_STEPS), STEPS[-1])


Worker = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _workers(work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> Worker:
    """Spark wants a function."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(batches)

    return each
