"""Other engines read the journal's lake as Spark does: `deltalake`, which is Rust, and DuckDB over it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.core.journal import JournalBatch, JournalRecord, RecordKind
from relay.pipeline.lake.journal_lake import Lake, ends
from tests.docs import pages
from tests.pipeline.journals import count, long_history
from tests.pipeline.test_journal_lake import some

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

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


B = 1_767_258_000_000_000
"""09:00 on the first day of 2026, in microseconds."""
HOUR = 3_600_000_000
R1, R2 = (relay * 8 for relay in (b"\xaa", b"\xbb"))
"""What the nonces of two relays begin with."""


def nonce(relay: bytes, number: int) -> bytes:
    return relay + number.to_bytes(8)


def story() -> list[JournalBatch]:
    """Five timers, of each of which a question asks."""
    one, two, three, four = nonce(R1, 1), nonce(R2, 1), nonce(R1, 2), nonce(R1, 3)
    told: list[tuple[int, str, RecordKind, dict[str, Any]]] = [
        (0, "a.1", RecordKind.SCHEDULED, {"due": B + HOUR}),
        (1, "a.2", RecordKind.SCHEDULED, {"due": B + HOUR}),
        *((n, "a.2", RecordKind.REPLACED, {"due": B + 24 * HOUR + n}) for n in (2, 3, 4)),
        (5, "a.3", RecordKind.SCHEDULED, {"due": B + HOUR}),
        (6, "a.4", RecordKind.SCHEDULED, {"due": B + 24 * HOUR}),
        (7, "a.4", RecordKind.RUN, {"due": B + 7, "principal": "token:ops"}),
        (8, "a.4", RecordKind.CANCELLED, {"due": B + 24 * HOUR}),
        (HOUR + 100, "a.1", RecordKind.CLAIMED, {"due": B + HOUR, "claims": 1, "nonce": one}),
        (HOUR + 200, "a.1", RecordKind.RECEIVED, {"nonce": one}),
        (HOUR + 300, "a.3", RecordKind.CLAIMED, {"due": B + HOUR, "claims": 1, "nonce": three}),
        (
            HOUR + 350,
            "a.3",
            RecordKind.NACKED,
            {"nonce": three, "attempts": 1, "claims": 1, "received": True},
        ),
        (
            HOUR + 400,
            "a.3",
            RecordKind.CLAIMED,
            {"due": B + HOUR, "attempts": 1, "claims": 2, "nonce": four, "occurrence": three},
        ),
        (HOUR + 450, "a.3", RecordKind.DEAD, {"nonce": four, "attempts": 2, "reason": "max_attempts"}),
        (
            HOUR + 900,
            "a.1",
            RecordKind.CLAIMED,
            {"due": B + HOUR, "attempts": 1, "claims": 2, "nonce": two, "occurrence": one, "received": True},
        ),
        (HOUR + 950, "a.1", RecordKind.ACKED, {"nonce": two}),
        (HOUR + 999, "a.1", RecordKind.GONE, {"nonce": one, "refused": RecordKind.ACKED}),
    ]
    return [
        JournalBatch(
            f"{(B + after) // 1000}-{n}", B + after, n, n, (JournalRecord(kind, timer_id, **fields),)
        )
        for n, (after, timer_id, kind, fields) in enumerate(told, 1)
    ]


def at(after: int) -> int:
    return B + after


RELAYS = R1.hex().upper(), R2.hex().upper()
ANSWERS: dict[str, list[tuple[Any, ...]]] = {
    "What happened to this timer": [
        (at(0), "SCHEDULED", B + HOUR, 0, None, None),
        (at(HOUR + 100), "CLAIMED", B + HOUR, 0, None, None),
        (at(HOUR + 200), "RECEIVED", None, 0, None, None),
        (at(HOUR + 900), "CLAIMED", B + HOUR, 1, None, None),
        (at(HOUR + 950), "ACKED", None, 0, None, None),
        (at(HOUR + 999), "GONE", None, 0, None, "ACKED"),
    ],
    "How late are first claims": [("orders", "2026-01-01-10", 2, 200.0, 298.0, 300)],
    "What falls due": [("orders", "a.2", B + 24 * HOUR + 4)],
    "Which timers were moved": [("orders", "a.2", 3, at(1), B + 24 * HOUR + 4)],
    "What do timers die of": [("orders", "max_attempts", 1, 2, at(HOUR + 450))],
    "What did people do by hand": [("token:ops", "orders", "RUN", 1, at(7))],
    "What may have been done twice": [("orders", "a.1", 1)],
    "Which share": [
        ("orders", RELAYS[0], at(HOUR + 100), at(HOUR + 400), 3, 75.0),
        ("orders", RELAYS[1], at(HOUR + 900), at(HOUR + 900), 1, 25.0),
    ],
    "What do attempts cost": [("orders", 1, 2, 0, 1, 1, 50), ("orders", 2, 2, 1, 0, 0, 100)],
    "How does it grow": [("2026-01-01", "orders", 18, 4, 4, 1)],
    "Which outcomes came too late": [("orders", "ACKED", 1, 1)],
    "Is the lake whole": [("orders", 0, 1, 18, 18, 0)],
}
"""What the page's questions are answered about the story."""


@pytest.fixture(scope="module")
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """DuckDB on a lake of the story, and of random histories of another topic; Spark has the same views."""
    place = tmp_path_factory.mktemp("asked")
    lake = made(spark, place, story())
    rows = some(spark, place, long_history(range(3), finish=False), "noise")
    assert lake.append(rows, lake.state().reached(ends(rows)))
    lake.rows().createOrReplaceTempView("journal")
    views = CliRunner().invoke(app, ["pipeline", "views"]).output
    for statement in filter(str.strip, views.split(";")):
        spark.sql(statement)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    connection.register("journal", DeltaTable(str(place / "lake")).to_pyarrow_dataset())
    connection.execute("CREATE MACRO unix_micros(moment) AS epoch_us(moment)")
    connection.execute(views)
    return connection


@pytest.mark.chaos
@pytest.mark.checkout
def test_every_question_of_the_page_is_answered(
    spark: SparkSession, asked: duckdb.DuckDBPyConnection
) -> None:
    """Spark and DuckDB say the same of all topics, and what is to be said of the story."""
    questions = dict(zip(ASKED, ANSWERS, strict=True))
    for question, title in questions.items():
        told = spark.sql(question)
        moments = [name for name, kind in told.dtypes if kind == "timestamp"]
        found = [tuple(row) for row in told.withColumns({n: f.unix_micros(n) for n in moments}).collect()]
        asked.execute(f"CREATE OR REPLACE TEMP VIEW found AS {question}")
        columns = ", ".join(f"epoch_us({name})" if name in moments else name for name in told.columns)
        assert asked.execute(f"SELECT {columns} FROM found").fetchall() == found, title
        assert [row for row in found if "noise" not in row] == ANSWERS[title], title


@pytest.mark.checkout
def test_the_titles_are_those_of_the_page() -> None:
    page = pages.text("docs/how-to/lake-questions.md")
    assert [title for n, title in enumerate(ANSWERS, 1) if f"**{n}. {title}" not in page] == []
