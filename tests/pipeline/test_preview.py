"""What a dry run shows of the first rows, and a load on a terminal of its first."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.pipeline.inputs import preview
from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs.job import Bar
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.spark.redis_target import Target

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows(folder: Path) -> str:
    path = folder / "in.csv"
    long = "ä" * 100
    path.write_text(
        "timer_id,due_time,payload,lang\n"
        'a,2090-01-01T00:00:00Z,"{""k"": ""\x1b[31m""}",de\n'
        f"b,2090-07-01 00:00:00,{long},\n"
        "c,soon,x,en\n"
        "d,2090-01-01T00:00:00Z\n"
        "e,2090-01-01T00:00:00Z,,\n"
        "f,2090-01-01T00:00:00Z,not shown,\n"
    )
    return str(path)


def test_a_dry_run_shows_the_first_rows(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As they would become timers, in two zones, or why not. Nothing in them steers a terminal."""
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)
    topic = keyspace.topic()
    command = ["pipeline", "schedule", rows(tmp_path), "--topic", topic, "--dry-run"]
    command += ["--time-zone", "Europe/Berlin", "-m", "headers=map('lang', lang)"]
    told = CliRunner().invoke(app, [*command, "--json"])
    assert told.exit_code == 0, told.output
    summary = json.loads(told.stdout)
    assert (summary["written"], summary["rejected"]) == (1, 5)
    first, second, *rest = summary["first"]
    assert first == {
        "topic": topic,
        "timer_id": "a",
        "due_time": "2090-01-01T00:00:00.000000Z",
        "due_time_local": "2090-01-01T01:00:00.000000+01:00 Europe/Berlin",
        "payload_bytes": 14,
        "payload_start": '{"k": "\x1b[31m"}',
        "content_type": "text/plain",
        "headers": {"lang": "de"},
    }
    assert second["rejected"]["reason"] == "'lang' has no value; give one, or leave it out"
    assert [each["rejected"]["line"] for each in rest[:2]] == [4, 5]
    assert len(summary["first"]) == preview.SHOWN

    shown = CliRunner().invoke(app, command).stdout
    assert "\x1b" not in shown
    assert re.search(r"^asked redis +yes$", shown, re.MULTILINE)
    assert "/a, due 2090-01-01T00:00:00.000000Z (2090-01-01T01:00:00.000000+01:00 Europe/Berlin)" in shown
    assert "payload of 14 bytes '{\"k\": \"\\x1b[31m\"}', text/plain, lang='de'" in shown
    assert "rejected: due_time: is 'soon', which is not a time (line 4 of file:/" in shown


def test_a_load_shows_its_first_row(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """On a terminal, above the bar and before anything is written; elsewhere nothing is looked at for it."""
    source = Source(rows(tmp_path), constants={"topic": keyspace.topic()})
    job = Schedule(Target(valkey.url), source, rejects=str(tmp_path / "rejects"))
    out = Terminal()
    with Bar(spark, "schedule", out) as bar:
        summary = schedule_job.run(spark, bar, job)
    line = next(each for each in out.getvalue().split("\n") if "first row" in each)
    assert f"first row: {source.constants['topic']}/a, due 2090-01-01T00:00:00.000000Z" in line
    assert summary.first == []
    plain = io.StringIO()
    assert not Bar(spark, "schedule", plain).shown
    assert plain.getvalue() == ""


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"", ""),
        (b"x" * 81, "x" * 80),
        ("ä".encode() * 41, "ä" * 40),
        (b"a" + "ä".encode() * 41, "a" + "ä" * 39),
        (b"\xff\x00", "\\xff\x00"),
        (b"a\xc3", "a\\xc3"),
    ],
)
def test_the_first_bytes(payload: bytes, shown: str) -> None:
    """80 of them: as text where they are text, up to the last whole character."""
    assert preview._start(payload) == shown


@pytest.mark.parametrize(
    ("zone", "local"),
    [
        ("UTC", None),
        ("Europe/Berlin", "1970-01-01T01:00:00.000001+01:00 Europe/Berlin"),
        ("+05:30", "1970-01-01T05:30:00.000001+05:30 +05:30"),
        ("Nowhere/Else", None),
    ],
)
def test_zones(zone: str, local: str | None) -> None:
    """As Spark names them."""
    assert preview._local(1, zone) == local
