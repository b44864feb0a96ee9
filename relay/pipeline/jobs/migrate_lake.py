"""The job `migrate-lake`: it copies a lake from before Delta into a new one, and compares both.

Each commit holds some whole topics and says so. So the job can be killed anywhere and run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.core.partitions import topic_of
from relay.pipeline.jobs.job import Bar, Summary
from relay.pipeline.lake.journal_lake import TABLE, Lake
from relay.pipeline.lake.lake_state import LakeState
from relay.pipeline.lake.old_lake import OldLake

PER_COMMIT = 20_000_000
"""The number of records of one commit, unless one topic has more."""


@dataclass(frozen=True, slots=True)
class MigrateLake:
    """From where and to where. `new` has no lake yet, or what an earlier run of this job left."""

    old: str
    new: str
    dry_run: bool = False


def run(spark: SparkSession, bar: Bar | None, job: MigrateLake) -> Summary:
    """Copy what is not there yet, and compare counts and digests of each topic. Raises `InvalidField`, and
    Spark's errors."""
    step = bar.step if bar is not None else lambda _name: None
    old, new = OldLake(spark, job.old), Lake(spark, job.new)
    records = old.records()
    summary = Summary("migrate-lake", job.dry_run, {"topics": len(records), "records": records.total()})
    if job.dry_run:
        return summary
    new.create()
    name = f"migrate-lake {old.version}"
    for number, topics in enumerate(_groups(records)):
        step(f"copying {len(topics)} topics")
        _copy(old, new, topics, name, number)
    step("comparing")
    kept, found = digests(old.rows()), digests(new.rows())
    different = sorted(topic for topic in kept.keys() | found.keys() if kept.get(topic) != found.get(topic))
    summary.problems += [
        f"topic {topic!r} differs in both lakes: don't use the new one" for topic in different
    ]
    summary.facts["lake"] = new.files.root
    return summary


def _groups(records: dict[str, int]) -> Iterator[list[str]]:
    """Cut the topics into groups, always the same ones."""
    group: list[str] = []
    size = 0
    for topic in sorted(records):
        if group and size + records[topic] > PER_COMMIT:
            yield group
            group, size = [], 0
        group.append(topic)
        size += records[topic]
    if group:
        yield group


def _copy(old: OldLake, new: Lake, topics: list[str], name: str, number: int) -> None:
    """Copy these topics, unless that was done. Raises `InvalidField` if the lake has other rows."""
    while True:
        state = new.state()
        if set(state.stored) - {name} or (state.marks and not state.stored):
            raise InvalidField("new", f"{new.files.root} has rows of its own; name a folder without a lake")
        if state.stored.get(name, -1) >= number:
            return
        if new.append(old.rows(topics), _after(old, state, topics, name, number)):
            return


def _after(old: OldLake, state: LakeState, topics: list[str], name: str, number: int) -> LakeState:
    marks = {stream: mark for stream, mark in old.marks.items() if topic_of(stream) in topics}
    # Retention may have left nothing of a topic: what it dropped goes with the first group.
    dropped = old.dropped if number == 0 else {}
    after = state.reached(marks if number else old.marks)
    return replace(after, stored={name: number}, dropped={**state.dropped, **dropped})


def digests(rows: DataFrame) -> dict[str, tuple[int, int, int]]:
    """Return the number of rows of each topic, and two sums of hashes, which don't depend on their order."""
    hashed = [
        f.sum(f.xxhash64(f.lit(seed), *TABLE).cast("decimal(38,0)")).alias(f"digest_{seed}")
        for seed in (1, 2)
    ]
    found = rows.groupBy("topic").agg(f.count("*").alias("rows"), *hashed).collect()  # a row for each topic
    return {row.topic: (row.rows, int(row.digest_1), int(row.digest_2)) for row in found}
