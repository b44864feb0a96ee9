"""What all jobs have beside their own options: variables, expectations, events of OpenLineage.

And loads of rows that cancel and move timers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.cli.pipeline.expectations import Expectation
from relay.cli.pipeline.variables import filled, parsed
from relay.core.errors import InvalidField
from relay.pipeline.jobs import lineage as lineage_job
from relay.pipeline.jobs.job import JobFailed, Summary
from relay.pipeline.jobs.lineage import Dataset, Datasets, Lineage, at_path, datasets, in_redis
from tests.pipeline.streams import live
from tests.pipeline.test_textfile import figures
from tests.worlds.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

SOON, LATER = "2090-01-01T00:00:00Z", "2091-01-01T00:00:00Z"
AT = {SOON: 3786912000.0, LATER: 3818448000.0}
COLUMNS = {"timer_id": "id", "due_time": "at", "op": "change", "version": "lsn"}


def test_a_table_of_changes(
    spark: SparkSession,
    valkey: RunningServer,
    keyspace: Keyspace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One load as a scheduler starts it; then one that is held back, and one that is not as expected."""
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/orders.load/0190a5b2-0000-7000-8000-000000000000")
    topic, events, metrics = keyspace.topic("orders"), tmp_path / "events.jsonl", tmp_path / "load.prom"
    first, second = (tmp_path / f"changes-2030-01-{day}.csv" for day in (30, 31))
    first.write_text(
        "lsn,change,id,at\n"
        f"1,,o-1,{SOON}\n2,schedule,o-2,{SOON}\n4,move,o-2,{LATER}\n3,cancel,o-1,\n5,schedule,o-4,{LATER}\n"
        f"6,schedule,o-5,soon\n7,drop,o-6,{SOON}\nlast,schedule,o-7,{SOON}\n"
    )
    second.write_text(f"lsn,change,id,at\n4,cancel,o-4,\n9,cancel,o-2,\n2,schedule,o-1,{SOON}\n8,,o-8,soon\n")
    maps = [word for name, column in COLUMNS.items() for word in ("--map", f"{name}={column}")]
    load = ["schedule", str(tmp_path / "changes-{{ day }}.csv"), "--topic", topic, *maps]
    load += ["--rejects", str(tmp_path / "rejects")]

    def run(day: int, *options: str, more: tuple[str, ...] = ()) -> tuple[int, str]:
        told = [f"{{day: 2030-01-{day}}}", "--lineage", str(events), "--metrics", str(metrics)]
        done = CliRunner().invoke(app, ["pipeline", "--vars", *told, *options, *load, *more])
        return done.exit_code, done.output

    by_field = [
        word for name in ("due_time", "op", "version") for word in ("--expect", f"rejected_by.{name}=1")
    ]
    code, said = run(30, "--expect", "written=2", "--expect", "rejected <= 3", *by_field)
    assert (code, "due_time 1, op 1, version 1\n" in said) == (0, True), said
    assert live(valkey, topic) == {"o-2": AT[LATER], "o-4": AT[LATER]}
    refused = spark.read.parquet(str(tmp_path / "rejects")).select("timer_id", "field").collect()
    assert sorted(map(tuple, refused)) == [("o-5", "due_time"), ("o-6", "op"), ("o-7", "version")]

    code, said = run(31, more=("--min-rows", "4"))
    assert (code, "3 rows can be timers, and min_rows asks for 4; nothing was written" in said) == (5, True)
    assert live(valkey, topic) == {"o-2": AT[LATER], "o-4": AT[LATER]}

    code, said = run(31, "--expect", "rejected=0")
    assert (code, "expected rejected=0, and rejected is 1" in said) == (6, True)
    assert live(valkey, topic) == {"o-4": AT[LATER]}, "late rows have lost, and what was done stands"
    assert figures(metrics)["schedule:ok"] == 0

    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [event["eventType"] for event in told] == ["START", "COMPLETE", "START", "FAIL", "START", "FAIL"]
    assert len({event["run"]["runId"] for event in told}) == 3
    assert {event["job"]["name"] for event in told} == {f"pipeline.schedule.{topic}"}
    begun, ended = told[:2]
    assert begun["run"]["facets"]["parent"]["job"] == {"namespace": "airflow", "name": "orders.load"}
    assert [(each["namespace"], each["name"]) for each in begun["inputs"]] == [("file", str(first))]
    rows = [each["outputFacets"]["outputStatistics"]["rowCount"] for each in ended["outputs"]]
    assert [each["name"] for each in ended["outputs"]] == [str(tmp_path / "rejects"), topic]
    assert (rows, ended["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"]) == ([3, 2], 5)
    assert "min_rows asks for 4" in told[3]["run"]["facets"]["errorMessage"]["message"]
    assert told[5]["run"]["facets"]["errorMessage"]["message"] == "expected rejected=0, and rejected is 1"


@pytest.mark.parametrize("more", [["--cold", "cold"], ["--create-only"]])
def test_changes_that_go_nowhere(
    spark: SparkSession, valkey: RunningServer, tmp_path: Path, more: list[str]
) -> None:
    """The cold store keeps no changes, and one of two rules says which timer stands."""
    file = tmp_path / "changes.csv"
    file.write_text(f"op,id,at\ncancel,a,{SOON}\n")
    asked = ["pipeline", "schedule", str(file), "--topic", "t", "-m", "op=op", "-m", "due_time=at", *more]
    done = CliRunner().invoke(app, asked, env={"RELAY_REDIS__URL": valkey.url})
    assert (done.exit_code, "map: op " in done.output) == (2, True), done.output


def test_variables() -> None:
    values = parsed("{day: 2030-01-31, n: 07, 'zone': Europe/Berlin}")
    assert filled(["a/{{ day }}/{{n}}", "{{zone}}", "{x}"], values) == [
        "a/2030-01-31/07",
        "Europe/Berlin",
        "{x}",
    ]
    assert filled(["{{ day }}"], parsed('{"day": "2030-01-31"}')) == ["2030-01-31"]


@pytest.mark.parametrize(
    ("text", "argument", "said"),
    [
        ("day", "x", "--vars: is 'day'; give a mapping"),
        ("{day: [1]}", "{{ day }}", "--vars: day has several values"),
        ("{a-b: 1}", "x", "--vars: 'a-b' is not a name"),
        ("{day: 1}", "{{ dya }}", "--vars: has no dya, which {{ dya }} names; there are day"),
        ("{day: 1, hour: 2}", "{{ day }}", "--vars: hour is not used; write {{ hour }} where it belongs"),
    ],
)
def test_variables_that_mean_nothing(
    text: str, argument: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        filled([argument], parsed(text))
    assert ended.value.exit_code == 2
    assert said in capsys.readouterr().err


def test_expectations(capsys: pytest.CaptureFixture[str]) -> None:
    """Of figures that a summary has, also those of a part."""
    document = {"ok": True, "seconds": 1.5, "loaded": 7, "lateness": {"p99_us": 900, "of": "first"}}
    texts = ("loaded>=7", "loaded = 7", "seconds<2", "lateness.p99_us <= 900", "loaded>6.5")
    assert [Expectation.of(text).unmet(document) for text in texts] == [""] * 5
    assert Expectation.of("loaded<7").unmet(document) == "expected loaded<7, and loaded is 7"
    for text, said in (
        ("ok=1", "ok is not a figure of this job; there are seconds"),
        ("loaded", "is 'loaded';"),
    ):
        with pytest.raises(typer.Exit):
            Expectation.of(text).unmet(document)
        assert said in capsys.readouterr().err


def test_names_of_datasets() -> None:
    """As OpenLineage names them, and without credentials."""
    places = ("s3a://k:secret@timers/cold/", "abfss://data@acc.dfs.core.windows.net/x", "hdfs://nn:8020/x")
    found = [(each.namespace, each.name) for each in (at_path("--cold", place) for place in places)]
    assert found == [
        ("s3://timers", "cold"),
        ("abfss://data@acc.dfs.core.windows.net", "x"),
        ("hdfs://nn:8020", "/x"),
    ]
    (topic,) = in_redis("rediss://relay:secret@redis:6379/3?ssl_ca_certs=x", ())
    assert (topic.namespace, topic.name) == ("rediss://redis:6379/3", "*")
    swept = datasets("sweep", {}, {"--cold": "/c"}, Datasets(written=[topic]))
    assert [each.name for each in swept.read] == ["/c"]
    assert [each.name for each in swept.written] == ["/c", "*"]


class Collector(HTTPServer):
    """Takes events; its `code` is what it answers."""

    code = 201

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[tuple[str, str | None, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"] or 0)
        event = json.loads(self.rfile.read(length) or "{}")
        self.server.taken.append((self.path, self.headers["Authorization"], event))
        self.send_response(self.server.code)
        self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_events_go_to_a_collector(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses, or names another place, does not end the job."""
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k")
    monkeypatch.setattr(lineage_job, "PATIENCE", PATIENCE)
    warned: list[str] = []
    lineage, found = Lineage.to(collector.url, warned.append), Datasets([Dataset("OLD", "file", "/x")])
    with lineage.of("migrate-lake", found) as told:
        told(Summary("migrate-lake"))
    with pytest.raises(JobFailed), lineage.of("migrate-lake", found):
        raise JobFailed("no room")
    with pytest.raises(KeyboardInterrupt), lineage.of("migrate-lake", found):
        raise KeyboardInterrupt
    assert {taken[:2] for taken in collector.taken} == {("/api/v1/lineage", "Bearer k")}
    kinds = [event["eventType"] for _, _, event in collector.taken]
    assert kinds == ["START", "COMPLETE", "START", "FAIL", "START", "ABORT"]
    assert collector.taken[3][2]["run"]["facets"]["errorMessage"]["message"] == "no room"
    assert warned == []
    collector.taken.clear()
    for collector.code in (307, 302, 500):
        with lineage.of("migrate-lake", found) as told:
            told(Summary("migrate-lake", problems=["half of it"]))
    assert {path for path, _, _ in collector.taken} == {"/api/v1/lineage"}
    assert len(warned) == len(collector.taken) == 6
    assert warned[-1] == "--lineage: the event FAIL was not sent: Internal Server Error"


def test_a_place_that_takes_no_events(tmp_path: Path) -> None:
    for target, said in ((str(tmp_path), "can't be written to"), ("kafka://x/y", "has the scheme kafka")):
        with pytest.raises(InvalidField, match=said):
            Lineage.to(target, print)
    warned: list[str] = []
    Lineage.to("http://127.0.0.1:1", warned.append)._send({"eventType": "START"})
    assert len(warned) == 1
