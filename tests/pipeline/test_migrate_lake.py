"""A lake from before Delta comes over whole, also where the move is killed between two topics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.jobs import migrate_lake as migrate_job
from relay.pipeline.jobs.migrate_lake import MigrateLake
from relay.pipeline.lake.journal_lake import Lake, ends, hour, stream
from relay.store.journal.scan import Mark
from tests.pipeline.journals import count, long_history
from tests.pipeline.test_journal_lake import assert_holds, job, ran, some

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

LONG = "/" * 90
"""A topic whose name no folder can have."""


def part(spark: SparkSession, tmp_path: Path, topic: str, batches: Any, folder: str) -> dict[str, Any]:
    """A folder of an old lake, and what its log says of it."""
    rows = some(spark, tmp_path, batches, topic)
    name = topic if topic != LONG else "short+0"
    placed = rows.withColumn("hour", hour())
    placed = placed.withColumn("whole_topic", f.lit(topic if topic != name else None).cast("string"))
    placed = placed.withColumn("topic", f.lit(name))
    placed.write.partitionBy("topic", "hour").parquet(str(tmp_path / "old" / folder))
    shares = {
        each.stream: {"records": each["count"], "gaps": 0, "first_entry": "", "last_entry": "", "last": 0}
        for each in rows.groupBy(stream().alias("stream")).count().collect()
    }
    for name, mark in ends(rows).items():
        shares[name] |= {"last_entry": mark.entry, "last": mark.last}
    return {"folder": folder, "level": 0, "first_hour": "", "last_hour": "", "topics": shares}


@pytest.fixture
def old(spark: SparkSession, tmp_path: Path) -> Path:
    """Three topics; of one a folder was replaced, and one was never named."""
    journal = long_history([1])
    parts = [
        part(spark, tmp_path, "a", journal[:9], "data/part=0"),
        part(spark, tmp_path, "a", journal[9:], "data/part=1"),
        part(spark, tmp_path, LONG, journal, "data/part=2"),
        part(spark, tmp_path, "c", journal, "data/part=3"),
    ]
    part(spark, tmp_path, "c", journal[:5], "data/part=stray")
    merged = {**part(spark, tmp_path, "a", journal[:9], "data/part=4")}
    nothing: dict[str, Any] = {"format": 1, "why": "batch", "remove": [], "stored": {}, "dropped": {}}
    versions = [{**nothing, "add": [each], "state": None} for each in parts]
    versions.append(
        {**nothing, "add": [merged], "remove": ["data/part=0"], "dropped": {"a": 7}, "state": None}
    )
    (tmp_path / "old" / "log").mkdir()
    for n, version in enumerate(versions):
        (tmp_path / "old" / "log" / f"{n:010d}.json").write_text(json.dumps(version))
    return tmp_path / "old"


def test_it_comes_over_whole(
    spark: SparkSession, old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the second commit and after the third; then run to the end, and once more."""
    journal = long_history([1])
    monkeypatch.setattr(migrate_job, "PER_COMMIT", count(journal))
    asked = MigrateLake(str(old), str(tmp_path / "lake"))
    assert migrate_job.run(spark, None, replace(asked, dry_run=True)).counts["records"] == 3 * count(journal)
    for dies_at, after in ((2, False), (2, True)):
        with monkeypatch.context() as patch:
            patch.setattr(Lake, "append", dying(dies_at, after=after))
            with pytest.raises(RuntimeError, match="died"):
                migrate_job.run(spark, None, asked)
    for _ in range(2):
        told = migrate_job.run(spark, None, asked)
        assert (told.problems, told.counts) == ([], {"topics": 3, "records": 3 * count(journal)})
    for topic in ("a", LONG, "c"):
        assert_holds(spark, tmp_path, topic, journal)
    state = Lake(spark, str(tmp_path / "lake")).state()
    assert (state.commits, state.dropped) == (3, {"a": 7})
    assert state.marks == dict.fromkeys(("a", LONG, "c"), Mark(journal[-1].entry, journal[-1].last))


def dying(at: int, *, after: bool) -> Any:
    append, calls = Lake.append, 0

    def dies(self: Lake, *given: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            raise RuntimeError("died")
        done = append(self, *given)
        if calls == at:
            raise RuntimeError("died")
        return done

    return dies


def test_a_difference_is_told(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    """A row that is missing in the new lake, and one that is another."""
    asked = MigrateLake(str(old), str(tmp_path / "lake"))
    migrate_job.run(spark, None, asked)
    spark.sql(f"DELETE FROM delta.`{tmp_path}/lake` WHERE topic = 'a' AND number = 3")
    spark.sql(f"UPDATE delta.`{tmp_path}/lake` SET kind = 'GONE' WHERE topic = 'c' AND number = 3")
    problems = migrate_job.run(spark, None, asked).problems
    assert [problem.partition(" differs")[0] for problem in problems] == ["topic 'a'", "topic 'c'"]


def test_what_can_not_be_moved(spark: SparkSession, old: Path, tmp_path: Path) -> None:
    """No lake, a log with a hole, a target with rows; and no job stores into an old lake."""
    with pytest.raises(InvalidField, match="no whole log"):
        migrate_job.run(spark, None, MigrateLake(str(tmp_path / "nothing"), str(tmp_path / "lake")))
    with pytest.raises(InvalidField, match="migrate-lake"):
        ran(spark, replace(job(tmp_path, None, ""), lake=str(old)))
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.create()
    rows = some(spark, tmp_path, long_history([2]), "t")
    lake.append(rows, lake.state().reached(ends(rows)))
    with pytest.raises(InvalidField, match="rows of its own"):
        migrate_job.run(spark, None, MigrateLake(str(old), str(tmp_path / "lake")))
    (old / "log" / "0000000002.json").unlink()
    with pytest.raises(InvalidField, match="no whole log"):
        migrate_job.run(spark, None, MigrateLake(str(old), str(tmp_path / "other")))
