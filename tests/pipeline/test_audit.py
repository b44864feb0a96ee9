"""The audit over a lake says what the audit of one journal says: the same journals, judged by both."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from relay.core.audit import Audit as Core
from relay.core.audit import Promise, Report
from relay.core.audit.hand_overs import NO_DEPARTURE
from relay.core.audit.knowledge import FOREIGN
from relay.core.audit.rules import OLDER
from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord, RecordKind, place_of
from relay.pipeline.audit import tables
from relay.pipeline.audit.replay import Around, Judging, Replay
from relay.pipeline.jobs import audit as audit_job
from relay.pipeline.jobs.audit import AuditJob
from relay.pipeline.lake import journal_rows
from relay.pipeline.lake.journal_lake import Lake, milliseconds
from relay.pipeline.spark.hour_folders import hour_of
from relay.store.journal.scan import place
from tests.audit import test_hand_overs as hand_overs
from tests.audit.cases import CASES
from tests.audit.cases_at_odds import CASES as AT_ODDS
from tests.audit.forge import renumbered
from tests.audit.test_mutations import MUTATIONS, mutants
from tests.chaos import count
from tests.pipeline.journals import history, long_history
from tests.pipeline.tables import rows_at

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Journals = dict[str, list[JournalBatch]]


def in_order(batches: list[JournalBatch]) -> list[JournalBatch]:
    """Entries as a stream would give them: rising."""
    return [replace(batch, entry=f"{1_767_225_600_000 + n * 977}-{n % 3}") for n, batch in enumerate(batches)]


def forged() -> Journals:
    """Histories that break a promise, their legal twins, and what a foreign writer may have done."""
    found: Journals = {}
    for name, case in (*CASES.items(), *AT_ODDS.items()):
        found[f"broken: {name}"] = in_order(case.broken().batches)
        found[f"legal: {name}"] = in_order(case.legal().batches)
    return found


def random() -> Journals:
    """Legal histories, some of them at rest; and the same with a record dropped, doubled or altered."""
    seeds = range(count(6, 12))
    found: Journals = {f"random {seed}": list(history(seed, finish=seed % 2 == 0)) for seed in seeds}
    chance = Random(7)
    for name, (kinds, mutation) in MUTATIONS.items():
        for seed in range(count(1, 2)):
            made = [batches for _, batches in mutants(list(history(seed)), kinds, mutation)]
            for n, batches in enumerate(chance.sample(made, min(len(made), 3))):
                found[f"{name} {seed} {n}"] = in_order(batches)
    return found


def holed() -> Journals:
    """Journals with gaps of all sorts."""
    whole = long_history(range(3))
    part = replace(whole[9], records=whole[9].records[:-1])
    more = replace(whole[9], records=(*whole[9].records, JournalRecord(RecordKind.PURGED, dead_id="1-1")))
    found: Journals = {
        "no end": whole[:-3],
        "trimmed": whole[5:],
        "one missing": [*whole[:20], *whole[21:]],
        "two missing": [*whole[:20], *whole[21:40], *whole[60:]],
        "went back": [*whole[:30], *whole[20:]],
        "began anew": [*whole[:30], *long_history([5])],
        "empty batch": [*whole[:9], replace(whole[9], records=()), *whole[10:]],
        "short batch": [*whole[:9], part, *whole[10:]],
        "long batch": [*whole[:9], more, *whole[10:]],
        "hidden": renumbered([*whole[:20], *whole[21:]]),
    }
    return {name: in_order(batches) for name, batches in found.items()}


def divided() -> Journals:
    """Journals of two partitions, between which timers go: legal ones, broken ones, and with gaps in one."""
    found: Journals = {}
    broken = {name: begun for name, (begun, _) in hand_overs.BROKEN.items()}
    for name, begun in (hand_overs.LEGAL | broken).items():
        parts = begun()
        for at in ("old", "new"):
            found[f"{name}, {at} alone"] = getattr(parts, at).batches
        found[f"divided: {name}"] = by_id(parts.old.batches, parts.new.batches)
        for n in range(len(parts.old.batches) - 1):
            found[f"{name}, without {n}"] = by_id(
                parts.old.batches[:n] + parts.old.batches[n + 1 :], parts.new.batches
            )
    return found


def by_id(*streams: list[JournalBatch]) -> list[JournalBatch]:
    """As the ids of their entries are in order."""
    return sorted((batch for stream in streams for batch in stream), key=lambda batch: order_of(batch.entry))


def order_of(entry: str) -> tuple[int, int, int]:
    number, bare = place_of(entry)
    return (*place(bare), number)


def table(spark: SparkSession, journals: Journals) -> DataFrame:
    """As the lake has them."""
    batches = [rows for topic, journal in journals.items() for rows in journal_rows.arrow(topic, journal)]
    rows = spark.createDataFrame(pa.Table.from_batches(batches, journal_rows.ARROW))
    return rows.repartition(2).withColumns(
        {"hour": hour_of(1000 * milliseconds()), "part": milliseconds().cast("string")}
    )


def told_by_core(batches: list[JournalBatch], *, exclusive: bool, at_rest: bool) -> Report:
    core = Core(exclusive=exclusive, examples=1000)
    for batch in batches:
        core.add(batch)
    return core.report(at_rest=at_rest)


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_both_audits_say_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verdicts, what was checked, breaks and doubts with all examples, counts, lateness, gaps, by topic."""
    made = {**forged(), **random(), **holed(), **divided()}
    rows = table(spark, made)
    monkeypatch.setattr(Lake, "rows", lambda *_: rows)
    out = str(tmp_path / "out")
    audit_job.run(spark, None, AuditJob(str(tmp_path / "lake"), out, exclusive=True, at_rest=True))
    found = Found(spark, out)
    for topic, batches in made.items():
        report = told_by_core(batches, exclusive=True, at_rest=True)
        assert found.of(topic) == expected(report), topic


@pytest.mark.parametrize(("exclusive", "at_rest"), [(True, False), (False, False), (False, True)])
def test_the_workers_rules_are_the_audits(exclusive: bool, at_rest: bool) -> None:
    """The same without Spark, for who else may have written, and what may live: breaks, doubts and counts."""
    made = {**forged(), **random(), **holed(), **divided()}
    found = told_by_workers(made, exclusive=exclusive, at_rest=at_rest)
    for topic, batches in made.items():
        report = told_by_core(batches, exclusive=exclusive, at_rest=at_rest)
        breaks = Counter({(int(each.promise), ""): each.refuted for each in report.judgements})
        for each in report.judgements:
            breaks.update(
                {(int(each.promise), reason): n for reason, n in each.doubts.items() if reason in OWN}
            )
        assert found[topic] == (+breaks, Counter(report.counts)), topic


OWN = {FOREIGN, OLDER, NO_DEPARTURE}
"""Reasons for doubt that a timer's records give; all others are a topic's."""


def told_by_workers(journals: Journals, *, exclusive: bool, at_rest: bool) -> dict[str, Any]:
    """Findings and counts of each topic."""
    around = {topic: around_of(batches) for topic, batches in journals.items()}
    facts = list(Replay(around, exclusive, SECOND)(sorted_rows(journals)))
    told = pa.Table.from_batches(facts)
    living = told.filter(pc.equal(told["fact"], "living"))
    nothing = pa.nulls(living.num_rows, pa.bool_())
    asked = living.append_column("missed", nothing).append_column("remembered", nothing)
    judged = Judging(around, exclusive, at_rest)(asked.to_batches())
    found: dict[str, Any] = {topic: (Counter(), Counter()) for topic in journals}
    for row in pa.Table.from_batches([*facts, *judged]).to_pylist():
        breaks, counts = found[row["topic"]]
        if row["fact"] == "finding":
            breaks[row["promise"], row["name"]] += row["count"]
        elif row["fact"] == "hour" and ":" not in row["name"] and row["name"] not in ("began", "ended"):
            counts[row["name"]] += row["count"]
    return found


def around_of(batches: list[JournalBatch]) -> Around:
    """Where the gaps are, as the numbers tell."""
    gaps: dict[int, tuple[tuple[int, int], ...]] = {}
    last: dict[int, int] = {}
    for batch in batches:
        number, bare = batch.place
        count = (batch.lost_since(last.get(number, 0)) != 0) + (
            batch.last - batch.first + 1 != len(batch.records)
        )
        gaps[number] = (*gaps.get(number, ()), *[place(bare)] * count)
        last[number] = batch.last
    return Around(gaps, batches[-1].entry, batches[-1].time)


def sorted_rows(journals: Journals) -> list[pa.RecordBatch]:
    """As Spark brings them to a worker."""
    seen: dict[tuple[str, bytes], str] = {}
    made = []
    for topic, batches in journals.items():
        used = [
            record.kind is RecordKind.CLAIMED
            and seen.setdefault((topic, record.nonce), batch.entry) != batch.entry
            for batch in batches
            for record in batch.records or [JournalRecord(RecordKind.RESUMED)]
        ]
        rows = pa.Table.from_batches(list(journal_rows.arrow(topic, batches)))
        places = [place(entry) for entry in rows["entry"].to_pylist()]
        numbers = rows["partition"].to_pylist()
        entries = [
            entry if number is None else f"{entry}#{number}"
            for entry, number in zip(rows["entry"].to_pylist(), numbers, strict=True)
        ]
        for name, values in (
            ("ms", [ms for ms, _ in places]),
            ("seq", [seq for _, seq in places]),
            ("place", [number or 0 for number in numbers]),
            ("used", used),
        ):
            rows = rows.append_column(name, pa.array(values))
        rows = rows.set_column(rows.schema.get_field_index("entry"), "entry", pa.array(entries))
        made.append(rows.filter(pc.is_valid(rows["timer_id"])))
    order = [(name, "ascending") for name in ("topic", "timer_id", "raw_id", "ms", "seq", "place", "number")]
    return list(pa.concat_tables(made).sort_by(order).to_batches(max_chunksize=1000))


def expected(report: Report) -> dict[str, Any]:
    told: dict[str, Any] = {
        each.promise.title: (each.verdict.value, each.checked, each.refuted, dict(each.doubts))
        for each in report.judgements
    }
    counts = {name: report.counts.get(core, 0) for name, core in COUNTED.items()}
    examples = {
        (int(each.promise), found.timer_id, found.what, found.time, found.entries[-1])
        for each in report.judgements
        for found in each.examples
    }
    return told | {
        "counts": counts,
        "lateness": (report.lateness_count, *report.lateness.values()) if report.lateness else (0,),
        "open": report.open_count,
        "gaps": sorted((gap.entry, gap.missing, gap.why) for gap in report.gaps),
        "examples": examples,
    }


COUNTED = {
    title: name for title, name in tables.COUNTS.items() if ":" not in name and name not in ("began", "ended")
}


class Found:
    """An audit's tables, by topic."""

    def __init__(self, spark: SparkSession, out: str) -> None:
        self._tables = {
            name: rows_at(spark, out, name).collect()
            for name in ("verdicts", "topics", "open", "gaps", "findings")
        }

    def of(self, topic: str) -> dict[str, Any]:
        rows = {name: [row for row in rows if row.topic == topic] for name, rows in self._tables.items()}
        told: dict[str, Any] = {
            row.title: (row.verdict, row.checked, row.refuted, row.doubts) for row in rows["verdicts"]
        }
        total = rows["topics"][0]
        lateness = [total[name] for name in ("lateness_count", "p50_us", "p99_us", "p99_9_us", "max_us")]
        return told | {
            "counts": {name: total[name] for name in COUNTED},
            "lateness": tuple(lateness) if total.lateness_count else (0,),
            "open": len(rows["open"]),
            "gaps": sorted((row.entry, row.missing, row.why) for row in rows["gaps"]),
            "examples": self._examples(rows["findings"], told),
        }

    def _examples(self, rows: list[Any], told: dict[str, Any]) -> set[Any]:
        """Of breaks if there are any, else of doubts."""
        chosen: set[Any] = set()
        for promise in Promise:
            refuted = told[promise.title][2] > 0
            own = [
                row for row in rows if row.promise == promise and row.what and (row.reason == "") == refuted
            ]
            for row in own:
                at = round(row.at.timestamp() * 1_000_000)
                chosen.add((int(promise), row.timer_id, row.what, at, row.entry))
        return chosen
