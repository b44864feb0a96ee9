"""The job `schedule`: other queues' exports, times of every kind, rejects, re-runs, dry runs, the command."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.core.timers import Content
from relay.pipeline.inputs.sources import Source, rows_of
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.rows.columns import TIMER
from relay.pipeline.spark.redis_target import Target
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from tests.chaos import count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from relay.pipeline.jobs.job import Summary
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

DUE = 4_000_000_000 * SECOND
COUNTS = dict.fromkeys(("empty_files", *schedule_job.COUNTS), 0)
THERE = (
    "there are topic, timer_id, due_time, payload, headers, content_type, expire_time, seal_with, op, version"
)
MIDNIGHT = 3_786_912_000 * SECOND  # 2090-01-01


@pytest.fixture
def topic(keyspace: Keyspace) -> str:
    return keyspace.topic()


def run(source: Source, server: RunningServer, **options: Any) -> Summary:
    asked = Schedule(Target(server.url), source, **options)
    return job.run("schedule", lambda spark, bar: schedule_job.run(spark, bar, asked), job.Running())


def stored(server: RunningServer, topic: str) -> dict[str, tuple[int, Content]]:
    timeline, payloads, *_ = KeyNames().of(topic)
    with server.client() as client:
        held: Any = client.hgetall(payloads)
        found: Any = client.zrange(timeline, 0, -1, withscores=True)
    return {name.decode(): (round(score * SECOND), envelope.decode(held[name])) for name, score in found}


def lines(path: Path, rows: list[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_an_export_of_celery(spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path) -> None:
    """Times with offsets; task, arguments and headers become the timer's content."""
    export = lines(
        tmp_path / "celery.jsonl",
        [
            {"task_id": "a-1", "task": "mail.send", "args": [1, "x"], "eta": "2090-01-01T02:00:00.25+02:00",
             "headers": {"lang": "de", "root": "r"}},
            {"task_id": "a-2", "task": "mail.send", "args": [2, "ü"], "eta": "2090-01-01T00:00:00Z",
             "headers": None},
        ],
    )  # fmt: skip
    source = Source(
        export,
        columns={"timer_id": "task_id", "due_time": "eta", "payload": "struct(task, args)"},
        constants={"topic": topic},
    )
    summary = run(source, valkey)
    assert summary.counts == COUNTS | {"written": 2}
    first, second = stored(valkey, topic).items()
    assert first[0] == "a-2"
    assert first[1][0] == MIDNIGHT
    assert second[1][0] == MIDNIGHT + SECOND // 4
    assert json.loads(second[1][1].payload) == {"task": "mail.send", "args": ["1", "x"]}
    assert second[1][1].headers == {"lang": "de", "root": "r"}
    assert second[1][1].content_type == "application/json"
    assert first[1][1].headers == {}


def test_json_word_for_word(spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path) -> None:
    """Read as text, a part of a document stays as it was written: numbers, nulls and the order of names."""
    export = lines(tmp_path / "x.jsonl", [{"id": "a", "eta": 4e9, "data": {"b": [1, "x"], "a": None}}])
    parts = {"timer_id": "$.id", "due_time": "$.eta", "payload": "$.data"}
    source = Source(
        export,
        "text",
        columns={name: f"get_json_object(value, '{path}')" for name, path in parts.items()},
        constants={"topic": topic},
        unit="s",
    )
    run(source, valkey)
    content = stored(valkey, topic)["a"][1]
    assert json.loads(content.payload) == {"b": [1, "x"], "a": None}
    assert content.payload.startswith(b'{"b"')


def test_an_export_of_bullmq(spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path) -> None:
    """Due times are computed of two columns, in milliseconds; the payload stays text, byte for byte."""
    export = lines(
        tmp_path / "bull.json",
        [{"id": "42", "timestamp": 3_999_999_999_000, "delay": 1_000, "data": '{"b": 1, "a": null}'}],
    )
    source = Source(
        export,
        columns={"timer_id": "id", "due_time": "timestamp + delay", "payload": "data"},
        constants={"topic": topic, "content_type": "application/json"},
        unit="ms",
    )
    run(source, valkey)
    assert stored(valkey, topic) == {"42": (DUE, Content(b'{"b": 1, "a": null}', {}, "application/json"))}


@pytest.mark.parametrize(
    ("sql", "unit", "due"),
    [
        ("4000000000", "s", DUE),
        ("double(4000000000.25)", "s", DUE + SECOND // 4),
        ("4000000000.0000001", "s", DUE + 1),
        ("4000000000123", "ms", DUE + 123_000),
        ("'4000000000123'", "ms", DUE + 123_000),
        ("4000000000000007", "us", DUE + 7),
        ("'2090-01-01 00:00:00'", None, MIDNIGHT - 19_800 * SECOND),
        ("'2090-01-01T00:00:00+01:00'", None, MIDNIGHT - 3600 * SECOND),
        ("date '2090-01-01'", None, MIDNIGHT - 19_800 * SECOND),
        ("timestamp_ntz '2090-01-01 00:00:00'", None, MIDNIGHT - 19_800 * SECOND),
        ("timestamp '2090-01-01 00:00:00 UTC'", None, MIDNIGHT),
    ],
)
def test_times_of_every_kind(spark: SparkSession, sql: str, unit: str | None, due: int) -> None:
    """What names no zone is of the session's; numbers are of the unit that was named, rounded up."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        spark.sql(f"select {sql} as due_time").createOrReplaceTempView("times")
        source = Source("times", "table", constants={"topic": "t"}, unit=unit)
        found = rows_of(spark, source).frame.selectExpr("unix_micros(due_time)").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    assert found == (due,)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (Source("times", "table", constants={"topic": "t"}), "due_time: is a number; name its unit"),
        (Source("times", "table", unit="s"), "topic: is not a column there"),
        (Source("times", "table", columns={"due_time": "eta"}), "source: .*eta"),
        (Source("times", "table", columns={"due_time": "due time"}), "source: .*"),
        (Source("times", "table", columns={"due": "1"}), "map: due is not a column of a timer"),
        (Source("none", "table"), "source: .*none"),
        (Source("/nowhere/x"), "format: can't be told"),
        (Source("/nowhere/x.csv"), "source: .*PATH_NOT_FOUND"),
    ],
)
def test_what_can_not_be_mapped(spark: SparkSession, source: Source, said: str) -> None:
    """Is told with its name, before anything is done."""
    spark.sql("select 1 as due_time").createOrReplaceTempView("times")
    with pytest.raises(InvalidField, match=said):
        rows_of(spark, source)


def test_rejects_and_a_second_run(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path
) -> None:
    """Rows without an id get one of their content, so a second run doubles nothing."""
    export = tmp_path / "in.csv"
    good = "2090-01-01T00:00:00Z"
    export.write_text(f"due_time,payload\n{good},one\nsoon,two\n{good},three\n,four\n")
    source = Source(str(export), constants={"topic": topic})
    rejects = str(tmp_path / "rejects")
    refused = {"rejected": 2, "made_ids": 2}
    for n in range(2):
        summary = run(source, valkey, rejects=rejects)
        assert summary.counts == COUNTS | {"written": 2 - 2 * n, "skipped_by_ledger": 2 * n} | refused
        run_id = summary.facts["run_id"]
        assert summary.facts["rejects"] == f"{rejects}/run_id={run_id}"
    assert {content.payload for _, content in stored(valkey, topic).values()} == {b"one", b"three"}
    told = {(row.payload.decode(), row.reason) for row in spark.read.parquet(rejects).collect()}
    assert told == {
        ("two", "is 'soon', which is not a time"),
        ("four", "is missing, or not a time"),
    }
    with pytest.raises(job.JobFailed, match=r"due_time: is 'soon', which is not a time \(line 3 of file:"):
        run(source, valkey)


def test_a_dry_run_counts(valkey: RunningServer, topic: str, tmp_path: Path, spark: SparkSession) -> None:
    """And leaves Redis and the place of the rejects alone, bad rows or not."""
    spark.sql(
        "select 'a' as timer_id, timestamp_seconds(4000000000) as due_time union all select 'b{', null"
    ).createOrReplaceTempView("two")
    rejects = tmp_path / "rejects"
    for place in (str(rejects), None):
        source = Source("two", "table", constants={"topic": topic})
        summary = run(source, valkey, rejects=place, dry_run=True)
        assert (summary.counts["written"], summary.counts["rejected"]) == (1, 1)
    assert not rejects.exists()
    assert stored(valkey, topic) == {}


def test_beyond_the_horizon(spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path) -> None:
    """What is due later is handed to the cold store first, checked and encoded; the rest goes to Redis."""
    later = round(datetime.now(UTC).timestamp()) + 7200
    spark.sql(
        f"select 'soon' as timer_id, timestamp_seconds({later - 7000}) as due_time, binary('x') as payload "
        f"union all select 'late', timestamp_seconds({later}), binary('y') "
        f"union all select '{{', timestamp_seconds({later}), null"
    ).createOrReplaceTempView("some")
    taken: list[Any] = []

    def chill(rows: Any) -> int:
        assert stored(valkey, topic) == {}
        taken.extend(rows.collect())
        return len(taken)

    source = Source("some", "table", constants={"topic": topic})
    asked = {"horizon": 3600 * SECOND, "chill": chill, "rejects": str(tmp_path / "rejects")}
    summary = run(source, valkey, **asked)
    assert summary.counts == COUNTS | {"cold": 1, "written": 1, "rejected": 1, "later": 1}
    assert set(stored(valkey, topic)) == {"soon"}
    (row,) = taken
    assert row.asDict() == {
        "topic": topic,
        "timer_id": "late",
        "due_us": later * SECOND,
        "expires_us": None,
        "envelope": envelope.encode(b"y", {}, ""),
    }
    assert run(source, valkey, **asked, dry_run=True).counts["later"] == 1
    assert len(taken) == 1, "a dry run stores nothing"
    with pytest.raises(InvalidField, match="cold: is missing"):
        run(source, valkey, horizon=1)


def test_the_command(
    spark: SparkSession, valkey: RunningServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its summary is JSON; what is wrong is told in a sentence, with the exit code for it."""
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)
    export = tmp_path / "in.csv"
    export.write_text("id;eta\n7;4000000000\n")
    options = ["--topic", topic, "-m", "timer_id=id", "-m", "due_time=eta", "--due-unit", "s", "--json"]
    command = ["pipeline", "schedule", str(export), "--read-option", "sep=;", *options]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    summary = json.loads(told.stdout)
    assert 0 < sum(summary.pop("phases").values()) < summary.pop("seconds") + 0.01  # both are rounded
    assert re.fullmatch("run-[0-9a-f]{16}", summary.pop("run_id"))
    by_field = summary.pop("rejected_by")
    assert (set(by_field.values()), {*TIMER, "op", "version", "record"}) == ({0}, by_field.keys())
    assert summary == {
        "job": "schedule",
        "ok": True,
        "dry_run": False,
        "empty_files": 0,
        "written": 1,
        "rejected": 0,
        "later": 0,
        "made_ids": 0,
        "skipped_by_ledger": 0,
        "skipped_alive": 0,
        "problems": [],
    }
    assert stored(valkey, topic) == {"7": (DUE, Content(b"", {}, ""))}
    wrong = CliRunner().invoke(app, [*command, "-m", "nonsense=1"])
    assert (wrong.exit_code, wrong.stderr) == (
        2,
        f"relay: map: nonsense is not a column of a timer; {THERE}\n",
    )
    monkeypatch.setenv("RELAY_REDIS__URL", "redis://:geheim@127.0.0.1:1/0")
    away = CliRunner().invoke(app, command)
    assert away.exit_code == 4
    assert "nobody listens there" in away.stderr
    assert "geheim" not in away.output + away.stderr


@pytest.mark.slow
def test_many_rows(spark: SparkSession, valkey: RunningServer, topic: str) -> None:
    """The driver sees counts only; each row is in Redis."""
    rows = count(100_000, 1_000_000)
    spark.range(0, rows, 1, 2).selectExpr(
        "concat('t-', id) as timer_id",
        "timestamp_micros(4000000000000000 + id) as due_time",
        f"binary(repeat('x', {300_000_000 // rows})) as payload",
    ).createOrReplaceTempView("many")
    summary = run(Source("many", "table", constants={"topic": topic}), valkey)
    assert summary.counts["written"] == rows
    timeline, payloads, *_ = KeyNames().of(topic)
    with valkey.client() as client:
        assert (client.zcard(timeline), client.hlen(payloads)) == (rows, rows)
