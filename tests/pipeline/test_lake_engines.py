"""Other engines read the journal's lake as Spark does: `deltalake`, which is Rust, and DuckDB over it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

from relay.pipeline.lake.journal_lake import Lake, ends
from tests.docs import pages
from tests.pipeline.journals import count, long_history
from tests.pipeline.test_journal_lake import some

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.core.journal import JournalBatch

pytestmark = pytest.mark.timeout(900)

TOPIC = "orders"
START = 1_767_225_600_000
"""The first hour of 2026, in milliseconds."""
ASKED = [block.text for block in pages.run_by(__file__)]


def made(spark: SparkSession, tmp_path: Path, journal: list[JournalBatch]) -> Lake:
    """A lake of three commits."""
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.create()
    for n in range(3):
        rows = some(spark, tmp_path, journal[n::3], TOPIC)
        assert lake.append(rows, lake.state().reached(ends(rows)))
    return lake


def history_of(timer_id: str, journal: list[JournalBatch]) -> list[tuple[int, str]]:
    """A timer's changes, by number and kind."""
    return [
        (batch.first + n, record.kind.name)
        for batch in journal
        for n, record in enumerate(batch.records)
        if record.timer_id == timer_id
    ]


def sorted_rows(rows: Iterable[Any]) -> list[tuple[int, str]]:
    return sorted((row["number"], row["kind"]) for row in rows)


def assert_read(place: Path, journal: list[JournalBatch]) -> None:
    """Both engines see these batches, and a timer's history by its id."""
    timer_id = next(record.timer_id for record in journal[-1].records if record.timer_id)
    table = DeltaTable(str(place))
    lake = table.to_pyarrow_dataset()
    of_timer = (pads.field("topic") == TOPIC) & (pads.field("timer_id") == timer_id)
    assert lake.count_rows() == count(journal)
    found = lake.to_table(["number", "kind"], filter=of_timer).to_pylist()
    assert sorted_rows(found) == history_of(timer_id, journal)
    asked = duckdb.execute(
        f"SELECT number, kind FROM lake WHERE topic = '{TOPIC}' AND timer_id = '{timer_id}' ORDER BY number"
    )
    assert asked.fetchall() == history_of(timer_id, journal)
    assert duckdb.execute("SELECT count(*) FROM lake").fetchall() == [(count(journal),)]
    assert table.protocol().min_reader_version == 1, "every reader of Delta can read it"


def test_other_engines_read_what_relay_wrote(spark: SparkSession, tmp_path: Path) -> None:
    """As it was written, after a compaction, and after a retention."""
    journal = [replace(batch, entry=f"{START + n * 600_000}-0") for n, batch in enumerate(long_history([1]))]
    lake, place = made(spark, tmp_path, journal), tmp_path / "lake"
    assert_read(place, journal)
    assert lake.compact() > 0
    assert_read(place, journal)
    assert lake.retain("2026-01-01-03") == {TOPIC: count(journal[:18])}
    assert_read(place, journal[18:])
    assert DeltaTable(str(place), version=0).to_pyarrow_dataset().count_rows() == 0


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake for the page's questions, as the view `journal` of Spark's too."""
    place = tmp_path_factory.mktemp("asked")
    made(spark, place, long_history(range(3), finish=False)).rows().createOrReplaceTempView("journal")
    return place / "lake"


@pytest.mark.checkout
def test_there_are_ten_questions() -> None:
    assert len(ASKED) == 10


@pytest.mark.checkout
@pytest.mark.parametrize("question", ASKED, ids=range(1, len(ASKED) + 1))
def test_a_question_has_one_answer(spark: SparkSession, asked: Path, question: str) -> None:
    """Spark and DuckDB say the same, and something."""
    told = spark.sql(question)
    moments = [name for name, kind in told.dtypes if kind == "timestamp"]
    told = told.withColumns({name: f.unix_micros(name) for name in moments})
    connection = duckdb.connect()
    connection.register("journal", DeltaTable(str(asked)).to_pyarrow_dataset())
    connection.execute(f"CREATE TEMP VIEW found AS {question.replace('unix_micros', 'epoch_us')}")
    columns = [f"epoch_us({name})" if name in moments else name for name in told.columns]
    rows = connection.execute(f"SELECT {', '.join(columns)} FROM found").fetchall()
    assert [tuple(row) for row in told.collect()] == rows
    assert rows
