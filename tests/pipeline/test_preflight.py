"""Mistakes that are found before Spark starts, and where Java's stack traces go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relay.core.errors import UnfitServer
from relay.pipeline.inputs import preflight
from relay.pipeline.inputs.sources import Source
from relay.pipeline.spark.redis_target import Target
from relay.settings import load
from tests.pipeline.small_jvm import QUICK
from tests.servers import free_port, start_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

COMMANDS = """
import json, sys
from typer.testing import CliRunner
from relay.cli.commands import app
for line in sys.stdin:
    arguments, environment = json.loads(line)
    told = CliRunner().invoke(app, ["pipeline", "schedule", *arguments], env=environment)
    print(json.dumps([told.exit_code, told.stderr]), flush=True)
"""
"""Commands of one process, one after the other: exit code and standard error of each."""

STAND_IN = '#!/bin/sh\necho called >> "$0.called"\nexit 1\n'


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One row with the columns id, eta and data."""
    file = tmp_path / "table.parquet"
    pq.write_table(pa.table({"id": ["a"], "eta": [4_000_000_000], "data": ["x" * 100_000]}), file)
    return file


@pytest.mark.slow
def test_mistakes_are_found_before_spark_starts(
    table: Path, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Each ends the command with a sentence that names the option. No Java is started: the one that JAVA_HOME
    names would note that it was called, as it does when Spark's session looks for one."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(STAND_IN)
    java.chmod(0o755)
    empty = tmp_path / "empty.parquet"
    empty.mkdir()
    hollow = tmp_path / "hollow.csv"
    hollow.touch()
    text = tmp_path / "text.parquet"
    text.write_text("no Parquet")
    occupied = keyspace.topic()
    with valkey.client() as client:
        client.set(f"timers_payloads:{occupied}", "x")
    topic = ["--topic", keyspace.topic()]
    right = [str(table), *topic, "-m", "timer_id=id", "-m", "due_time=eta", "--due-unit", "s"]
    away = f"redis://127.0.0.1:{free_port()}/0"
    no_cluster = f"redis+cluster://127.0.0.1:{valkey.port}"
    mistakes: list[tuple[list[str], dict[str, str], int, str]] = [
        ([*right, "--topic", "a{b"], {}, 2, "topic: "),
        ([*right, "--topic", occupied], {}, 1, f"timers_payloads:{occupied} holds a string, not a hash"),
        (
            [*right, "--topic", "a{b"],
            {"RELAY_REDIS_URL": away},
            2,
            "RELAY_REDIS_URL is not a setting",
        ),
        (right, {"RELAY_REDIS__URL": away}, 4, "Redis can't be reached: nobody listens there"),
        (right, {"RELAY_REDIS__URL": "redis://a:b:c:d/x"}, 2, "redis.url: "),
        (
            right,
            {"RELAY_REDIS__URL": no_cluster},
            1,
            "the server is not a node of a Cluster: name it in redis.url",
        ),
        ([*right, "--due-unit", "h"], {}, 2, "due_unit: is 'h'; give one of s, ms, us"),
        ([*right, "--time-zone", "Europe/Berlim"], {}, 2, "time_zone: is 'Europe/Berlim'; give a zone"),
        ([*right, "--horizon", "soon"], {}, 2, "--horizon"),
        ([*right, "--master", "sprak://x"], {}, 2, "master: is 'sprak://x'; give local[2]"),
        ([*right, "--conf", "x"], {}, 2, "--conf x: give NAME=VALUE"),
        ([*right, "--read-option", "x"], {}, 2, "--read-option x: give NAME=VALUE"),
        ([*right, "--format", "parqet"], {}, 2, "format: is 'parqet'; did you mean parquet?"),
        ([*right, "-m", "due=1"], {}, 2, "map: due is not a column of a timer"),
        ([*right, "-m", "payload=dta"], {}, 2, "map: payload=dta: there is no column dta; there are id, eta"),
        ([str(table), *topic], {}, 2, "due_time: is not a column there; map it"),
        ([str(table), *right[3:]], {}, 2, "topic: is not a column there; name it"),
        ([str(tmp_path / "no.csv"), *topic], {}, 2, f"source: {tmp_path}/no.csv does not exist"),
        ([str(empty), *topic], {}, 2, f"source: {empty} holds no files"),
        ([str(hollow), *topic], {}, 2, f"source: holds no records: {hollow} is empty"),
        ([str(text), *topic], {}, 2, f"source: {text} is not a Parquet file"),
        ([str(tmp_path / "no"), *topic], {}, 2, "format: can't be told from"),
        ([*right, "--rejects", str(table)], {}, 2, f"rejects: {table} is a file; name a folder"),
        ([*right, "--cold", str(table)], {}, 2, f"cold: {table} is a file; name a folder"),
        ([*right, "--max-rejects", "5"], {}, 2, "--max-rejects: name a folder"),
        ([*right, "--rejects", "r", "--max-rejects", "x"], {}, 2, "max_rejects: is 'x'"),
        ([*right, "--run-id", "a:b"], {}, 2, "run_id: is 'a:b'"),
        ([*right, "--create-only", "--replace"], {}, 2, "--create-only: leave it out with --replace"),
        ([*right, "--on-conflict=keep-latest", "--replace"], {}, 2, "--on-conflict: leave it out with --rep"),
        ([*right, "--on-conflict=replace", "--create-only"], {}, 2, "--on-conflict: leave it out with --cre"),
        ([*right, "--on-conflict=keep-latest", "--cold=c"], {}, 2, "--on-conflict: leave it out with --cold"),
        ([*right, "--spread", "soon"], {}, 2, "--spread: must be a length of time"),
    ]
    commands = [(arguments, environment) for arguments, environment, *_ in mistakes]
    environment = {"JAVA_HOME": str(java.parent.parent), "RELAY_REDIS__URL": valkey.url}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment, "PATH": f"{java.parent}:/usr/bin:/bin"},
        text=True,
    )
    with process:
        told, _ = process.communicate("".join(json.dumps(each) + "\n" for each in commands), timeout=900)
    assert process.returncode == 0
    answers = [json.loads(line) for line in told.splitlines()]
    for (arguments, _, code, said), (found, stderr) in zip(mistakes, answers, strict=True):
        assert (found, stderr.startswith(f"relay: {said}")) == (code, True), (arguments, found, stderr)
        assert stderr.count("\n") == 1 + ("has no effect" in stderr), stderr
    assert not java.with_name("java.called").exists()
    control = subprocess.run(
        [sys.executable, "-c", "from relay.pipeline.spark.java import java_home; print(java_home())"],
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert control.stdout.strip() != environment["JAVA_HOME"]
    assert java.with_name("java.called").exists(), "the stand-in does not notice a call"


def test_folders_that_spark_passes_over(table: Path, tmp_path: Path) -> None:
    """The log of a Delta table is Parquet, too, but no timers; `_y=1` is the value of a column."""
    folder = tmp_path / "lake.parquet"
    for name in ("_delta_log/1.checkpoint.parquet", ".hidden/a.parquet", "part-0.parquet", "_y=1/b.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = pa.table({"add": ["x"]}) if name.startswith(("_delta", ".")) else pq.read_table(table)
        pq.write_table(content, folder / name)
    assert [file.name for file in preflight._files(str(folder))] == ["b.parquet", "part-0.parquet"]
    source = Source(
        str(folder), columns={"timer_id": "id", "due_time": "eta"}, constants={"topic": "t"}, unit="s"
    )
    preflight.check_source(source, Target.of(load(environ={})), {})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_javas_stack_traces_go_to_a_file(
    table: Path, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """A file turns out to be broken when it is read: the terminal sees one sentence, which names the log."""
    content = bytearray(table.read_bytes())
    content[100:400] = bytes(300)
    table.write_bytes(content)
    (tmp_path / "tmp").mkdir()
    options = ["-m", "timer_id=id", "-m", "due_time=eta", "-m", "payload=data", "--due-unit", "s"]
    options += ["--topic", keyspace.topic(), "--master", "local[1]"]
    options += ["--conf", f"spark.driver.extraJavaOptions={QUICK}"]
    told = subprocess.run(
        [sys.executable, "-m", "relay.cli", "pipeline", "schedule", str(table), *options],
        env={**os.environ, "RELAY_REDIS__URL": valkey.url, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (told.returncode, told.stdout) == (1, "")
    (log,) = (tmp_path / "tmp").glob("relay-schedule-*.log")
    (line,) = told.stderr.splitlines()
    assert line.startswith("relay: ")
    assert line.endswith(f" (Spark's log: {log})")
    assert "\tat org.apache.spark" in log.read_text()


@pytest.mark.parametrize(
    ("place", "conf", "environment", "here"),
    [
        ("/x/a.csv", {}, {}, True),
        ("file:///x/a.csv", {}, {"SPARK_ENV_LOADED": "1"}, True),
        ("s3a://x/a.csv", {}, {}, False),
        ("/x/a.csv", {"spark.hadoop.fs.defaultFS": "hdfs://n"}, {}, False),
        ("/x/a.csv", {}, {"SPARK_ENV_LOADED": "1"}, False),
        ("/x/a.csv", {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, False),
    ],
)
def test_a_path_of_another_file_system_is_left_to_spark(
    place: str,
    conf: dict[str, str],
    environment: dict[str, str],
    here: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What Hadoop's default file system is, only Spark knows for sure."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert preflight._is_here(place, conf) is here


def test_a_server_that_lacks_a_command_is_refused_by_name() -> None:
    """As a relay refuses it at its start."""
    with start_server("valkey", config={"rename-command": "ZMSCORE NOBODYS"}) as server:
        settings = load(environ={"RELAY_REDIS__URL": server.url})
        with pytest.raises(UnfitServer, match="has no command ZMSCORE, which Relay needs to schedule"):
            preflight.check_redis(settings, None)
