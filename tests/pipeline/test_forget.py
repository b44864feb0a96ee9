"""Erasure: timers are gone from the lake and from what an audit wrote, in the files too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from relay.core.errors import InvalidField
from relay.pipeline.jobs import forget as forget_job
from relay.pipeline.jobs.forget import Forget
from relay.pipeline.lake.journal_lake import Lake, ends
from tests.pipeline.journals import count, long_history
from tests.pipeline.test_journal_lake import some

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.core.journal import JournalBatch


pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_timer_is_gone_from_every_file(spark: SparkSession, tmp_path: Path) -> None:
    """By id and by prefix; its neighbours stay, and so does another topic's timer of that name. What a
    compaction replaced is gone as well, and a file that is not committed yet stays."""
    journal = long_history(range(2), finish=False)
    lake, place = Lake(spark, str(tmp_path / "lake")), tmp_path / "lake"
    lake.create()
    for topic in ("t", "u"):
        rows = some(spark, tmp_path, journal, topic)
        assert lake.append(rows, lake.state().reached(ends(rows)))
    out = audit(spark, tmp_path / "out", journal)
    before = {row.timer_id for row in lake.rows(topics=["t"]).select("timer_id").distinct().collect()} - {
        None
    }
    erased = {each for each in before if each.startswith("b") or each == "a.1"}
    assert erased < before
    records = sum(record.timer_id in erased for batch in journal for record in batch.records)
    lake.compact()
    draft = place / "part-draft.parquet"
    draft.write_bytes(next(place.glob("part-*.parquet")).read_bytes())
    job = Forget("t", lake=str(place), ids=("a.1",), prefixes=("b",), audits=(str(out),))
    told = forget_job.run(spark, None, replace(job, dry_run=True))
    assert told.counts["records"] == records
    assert (out / "report.html").exists()
    told = forget_job.run(spark, None, job)
    assert (told.counts["timers"], told.counts["records"]) == (len(erased), records)
    assert lake.state().dropped == {"t": records}
    assert lake.rows(topics=["t"]).count() == count(journal) - records
    assert lake.rows(topics=["u"]).count() == count(journal)
    assert draft.exists()
    draft.unlink()
    of_t = {
        row["timer_id"]
        for file in place.glob("*.parquet")  # whether a version names it or not
        for row in pq.read_table(file, columns=["topic", "timer_id"]).to_pylist()
        if row["topic"] == "t"
    }
    assert of_t - {None} == before - erased
    for name in ("findings", "open"):
        left = [row for file in (out / name).glob("*.parquet") for row in pq.read_table(file).to_pylist()]
        assert {row["timer_id"] for row in left if row["topic"] == "t"} == before - erased
        assert {row["timer_id"] for row in left if row["topic"] == "u"} == before
    assert not (out / "report.html").exists()
    again = forget_job.run(spark, None, job)
    assert again.counts == {"timers": 0, "records": 0, "audit_rows": 0}


def audit(spark: SparkSession, out: Path, journal: list[JournalBatch]) -> Path:
    """What erasing reads of an audit: tables that name timers, and the report."""
    named = {record.timer_id for batch in journal for record in batch.records}
    rows = spark.createDataFrame(
        [(topic, timer_id) for topic in "tu" for timer_id in sorted(named)], "topic string, timer_id string"
    )
    for name in ("findings", "open"):
        rows.write.format("delta").save(str(out / name))
    (out / "report.html").write_text("<html>")
    return out


def test_what_is_asked_for_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    """A lake or a store that is there, and timers: an empty prefix would be all of them."""
    with pytest.raises(InvalidField, match="has none"):
        forget_job.run(spark, None, Forget("t", lake=str(tmp_path), ids=("a",)))
    with pytest.raises(InvalidField, match="has no rows"):
        forget_job.run(spark, None, Forget("t", cold=str(tmp_path), ids=("a",)))
    for prefixes in ((), ("",)):
        with pytest.raises(InvalidField, match="is missing"):
            forget_job.run(spark, None, Forget("t", lake=str(tmp_path), prefixes=prefixes))
