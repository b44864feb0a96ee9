"""Gathers what the report shows from the audit's tables: sums, and the first few rows of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from relay.core.audit.report import Promise, PromiseVerdict
from relay.pipeline.audit import plots, tables
from relay.pipeline.audit.page import ReportPage
from relay.pipeline.audit.people import PeopleDid

WORST_TOPICS = 15
WORST_HOURS = 20
MOST_ACTIONS = 100
"""The most actions of people that the page shows."""
COLUMNS = 360
"""The most columns of the heat map, one for each hour."""
MOST_BUCKETS = 20 * tables.PER_DECADE
"""More than a column can have: microseconds are 64-bit numbers, below 10¹⁹."""

ORDER = [PromiseVerdict.REFUTED.value, PromiseVerdict.UNSAID.value, PromiseVerdict.PROVED.value]


def gather(
    table: Callable[[str], DataFrame],
    verdict: str,
    counts: Mapping[str, int],
    lateness: Mapping[str, int | None],
    span: tuple[int, int],
    verdicts: Sequence[Mapping[str, Any]],
    examples: int,
    people: PeopleDid,
) -> ReportPage:
    """Gather the page. `table` returns the audit's tables by name; a bounded number of rows is read from
    each."""
    return ReportPage(
        verdict=verdict,
        counts=counts,
        lateness=lateness,
        began=span[0],
        ended=span[1],
        verdicts=_by_topic(verdicts),
        heat=_heat(table("lateness")),
        backlog=_backlog(table("backlog_all")),
        topics=_topics(table("topics")),
        hours=_hours(table("hours")),
        findings=_findings(table("findings"), examples),
        gaps=_rows(table("gaps").orderBy("topic", "entry"), examples * 4),
        lost=_timers(table("open").where("state = 'gone'").orderBy("due_time"), examples * 4),
        oldest=_timers(table("open").where("state != 'gone'").orderBy("last_heard"), examples * 2),
        unknown=_timers(table("unknown").orderBy("due_time"), examples * 2),
        people=sorted(people.rows, key=lambda row: (row["time"], row["entry"]), reverse=True)[:MOST_ACTIONS],
        people_unread=people.unread,
    )


def _rows(table: DataFrame, most: int) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.limit(most).collect()]


def sums(topics: DataFrame, facts: DataFrame) -> dict[str, int]:
    """Add up the table `topics`, and count the open timers that were overdue at the journal's end."""
    names = [name for name in tables.COUNTS if name not in ("began", "ended")]
    overdue = facts.where("fact = 'step' and name = 'overdue'").agg(_sum("count").alias("overdue"))
    found = topics.agg(*(_sum(name).alias(name) for name in names)).join(overdue)
    return found.collect()[0].asDict()


def _sum(name: str) -> Column:
    return f.coalesce(f.sum(name), f.lit(0))


def _by_topic(verdicts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for each in verdicts:
        rows.setdefault(each["topic"], {"topic": each["topic"]})[str(each["promise"])] = each
    numbers = [str(int(promise)) for promise in Promise]

    def badness(row: dict[str, Any]) -> tuple[int, int, str]:
        worst = min(ORDER.index(row[number]["verdict"]) for number in numbers)
        return worst, -sum(row[number]["refuted"] for number in numbers), row["topic"]

    return sorted(rows.values(), key=badness)


def _heat(lateness: DataFrame) -> dict[tuple[int, int], int]:
    """Return the counts by hour and bucket; if there are too many hours, the latest ones."""
    hour = f.unix_seconds("hour") / 3600
    cells = lateness.groupBy(hour.cast("bigint").alias("at"), "bucket").agg(f.sum("deliveries").alias("n"))
    latest = cells.orderBy(f.desc("at")).limit(COLUMNS * MOST_BUCKETS).collect()
    return {(row.at, row.bucket): row.n for row in latest if row.at > latest[0].at - COLUMNS}


def _backlog(backlog: DataFrame) -> list[tuple[int, int, int]]:
    rows = backlog.orderBy("at").select(f.unix_seconds("at").alias("at"), "open", "overdue").limit(500)
    return [(row.at, row.open, row.overdue) for row in rows.collect()]


def _topics(topics: DataFrame) -> list[tuple[str, list[int], str]]:
    late = topics.where("p99_9_us is not null")
    rows = late.orderBy(f.desc("p99_9_us"), f.desc("max_us")).limit(WORST_TOPICS)
    names = ("p50_us", "p99_us", "p99_9_us", "max_us")
    return [
        (row.topic, [row[name] for name in names], f"{plots.short(row.lateness_count)} deliveries")
        for row in rows.collect()
    ]


def _hours(hours: DataFrame) -> list[dict[str, Any]]:
    worst = hours.orderBy(f.desc("breaks"), f.desc_nulls_last("max_us")).limit(WORST_HOURS)
    return _rows(worst.withColumn("at", micros("hour")), WORST_HOURS)


def _findings(findings: DataFrame, examples: int) -> list[dict[str, Any]]:
    """Return some findings of each promise, breaks before doubts."""
    told = findings.where("what is not null").withColumn("at", micros("at"))
    first = Window.partitionBy("promise").orderBy("reason", "topic", "at")
    some = told.withColumn("nth", f.row_number().over(first)).where(f.col("nth") <= examples)
    rows = some.orderBy("promise", "nth").drop("nth").collect()  # promises × examples
    return [row.asDict() for row in rows]


def _timers(timers: DataFrame, most: int) -> list[dict[str, Any]]:
    names = timers.columns
    heard = micros("last_heard") if "last_heard" in names else f.lit(None)
    entry = f.col("entry") if "entry" in names else f.lit("")
    due = micros("due_time").alias("due")
    shown = timers.limit(most).select(
        "topic", "timer_id", "state", due, heard.alias("heard"), entry.alias("entry")
    )
    return [row.asDict() for row in shown.collect()]


def micros(name: str) -> Column:
    """Turn a timestamp into microseconds."""
    return f.unix_micros(f.col(name))
