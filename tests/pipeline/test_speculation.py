"""A task and its twin, which Spark starts beside one that is slow: both write, and the effect is that of one.

A cluster has two workers with a core each. Tasks are held at gates: one on the way to the object store,
others on the way back from Redis. So each of these has done all before its twin begins, and does not know.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from relay.store.keys import KeyNames
from tests.ghosts.slow_line import SlowLine
from tests.pipeline import doomed, on_a_cluster
from tests.pipeline.object_store import BUCKET, CREDENTIALS, Gate, ObjectStore
from tests.pipeline.standalone import Cluster
from tests.pipeline.streams import end, live
from tests.servers import RunningServer, start_server
from tests.worlds.relay.processes import ROOT
from tests.worlds.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

COUNT = 100
SWEPT, LOADED = ("comes first", "comes second"), ("comes third", "comes fourth")
"""What the payloads of two files have in them, for each topic. Each file is a task."""
NAMED = ("--due-unit", "s", "--json")
PATIENT = {"RELAY_REDIS__COMMAND_TIMEOUT": "300"}
STORE = f"s3a://{BUCKET}/twins/cold"
FILES = "twins/cold/timers/part-"
CONF = {
    "spark.speculation": "true",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.task.duration.threshold": "2s",  # for a task that is alone
    "spark.hadoop.fs.s3a.connection.request.timeout": "900s",
    "spark.hadoop.fs.s3a.connection.timeout": "900s",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


class Lines:
    """Two lines on the way to Redis, one behind the other: each holds the replies to a task of its own."""

    def __init__(self, server: RunningServer) -> None:
        self.second = SlowLine(server.port)
        self.first = SlowLine(self.second.port)

    def hold(self, payloads: tuple[str, str]) -> None:
        for line, payload in zip((self.first, self.second), payloads, strict=True):
            line.hold(payload, pass_on=True)

    @property
    def hold_both(self) -> bool:
        return self.first.holds and self.second.holds

    def close(self) -> None:
        self.first.close()
        self.second.close()


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with start_server("valkey") as server:
        yield server


@pytest.fixture
def lines(server: RunningServer) -> Iterator[Lines]:
    lines = Lines(server)
    yield lines
    lines.close()


class Application:
    """An application on the cluster that takes its steps in turn, in a thread."""

    def __init__(
        self, cluster: Cluster, store: ObjectStore, place: Path, steps: list[dict[str, Any]]
    ) -> None:
        self._answers, self._events = place / "answers.jsonl", place / "events"
        self._events.mkdir()
        (place / "steps.json").write_text(json.dumps(steps))
        conf = {**CONF, "spark.eventLog.dir": self._events.as_uri()}
        options = [part for each in conf.items() for part in ("--conf", "=".join(each))]
        self._arguments = (
            *(*options, *store.conf, on_a_cluster.__file__),
            *(str(place / "steps.json"), str(self._answers)),
        )
        environment = {
            **CREDENTIALS,
            **PATIENT,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": sys.executable,
        }
        self._thread = threading.Thread(target=self._run, args=(cluster, environment), daemon=True)
        self._said = ""

    def start(self) -> None:
        self._thread.start()

    def _run(self, cluster: Cluster, environment: dict[str, str]) -> None:
        ran = cluster.submit(*self._arguments, **environment)
        self._said = f"{ran.returncode}: {ran.stdout[-3000:]} {ran.stderr[-5000:]}"

    def until(self, condition: Any, what: str) -> None:
        def there() -> bool:
            assert self._thread.is_alive() or condition(), (what, self._said, self.answers())
            return bool(condition())

        eventually(there, what, doomed.LONGEST)

    def answers(self) -> list[dict[str, Any]]:
        if not self._answers.exists():
            return []
        return [json.loads(line) for line in self._answers.read_text().splitlines() if line.endswith("}")]

    def answer(self, step: int) -> dict[str, Any]:
        """Wait for what a step says; it has to be fine."""
        self.until(lambda: len(self.answers()) > step, f"step {step} is done")
        answer = self.answers()[step]
        assert answer["code"] == 0, answer
        told: dict[str, Any] = json.loads(answer["out"])
        return told

    def beaten(self) -> int:
        """How many tasks were ended since their twin, on the other worker, was first."""
        (log,) = self._events.iterdir()
        hosts: dict[tuple[Any, ...], set[str]] = {}
        beaten = Counter[tuple[Any, ...]]()
        for line in log.read_text().splitlines():
            event: dict[str, Any] = json.loads(line) if line.endswith("}") else {"Event": ""}
            if event["Event"] == "SparkListenerTaskEnd":
                info = event["Task Info"]
                task = (event["Stage ID"], event["Stage Attempt ID"], info["Index"])
                hosts.setdefault(task, set()).add(info["Host"])
                beaten[task] += "another attempt succeeded" in event["Task End Reason"].get("Kill Reason", "")
        return sum(count for task, count in beaten.items() if len(hosts[task]) == 2)


def files(folder: Path, payloads: tuple[str, str]) -> list[str]:
    """Write two files of rows; return their paths."""
    folder.mkdir()
    due = int(time.time()) + 1800
    for name, payload in zip(("first", "second"), payloads, strict=True):
        rows = "".join(f"{name}-{n},{due},{payload}\n" for n in range(COUNT))
        (folder / f"{name}.csv").write_text(f"timer_id,due_time,payload\n{rows}")
    return sorted(map(str, folder.iterdir()))


def steps(place: Path, url: str) -> list[dict[str, Any]]:
    """Two loads into the cold store, and its sweep."""
    cold = ("--topic", "swept", "--cold", STORE, "--horizon", "0s", *NAMED)
    loads = [("schedule", file, *cold) for file in files(place / "swept", SWEPT)]
    sweep = ("sweep", "--cold", STORE, "--horizon", "2h", "--json")
    return [{"argv": argv, "redis": url} for argv in (*loads, sweep)]


def end_before_the_twin(application: Application, lines: Lines, server: RunningServer, topic: str) -> None:
    """The race: both tasks of a load have written all, and neither knows. As the first one hears of it, Spark
    starts a twin of the second one. Meanwhile timers of that one end, as a foreign worker ends them: nothing
    but the ledger says that they were there."""
    application.until(
        lambda: lines.hold_both and len(live(server, topic)) == 2 * COUNT, f"all of {topic} is written"
    )
    for n in range(COUNT // 2):
        end(server, topic, f"second-{n}")
    lines.second.let_pass()
    lines.first.release()


def left() -> set[str]:
    return {f"first-{n}" for n in range(COUNT)} | {f"second-{n}" for n in range(COUNT // 2, COUNT)}


def test_a_load_with_a_run(
    cluster: Cluster, object_store: ObjectStore, server: RunningServer, lines: Lines, tmp_path: Path
) -> None:
    files(tmp_path / "rows", LOADED)
    load = ("schedule", str(tmp_path / "rows"), "--format", "csv", "--topic", "loaded", "--run-id", "1")
    step = {"argv": (*load, *NAMED), "redis": lines.first.url}
    application = Application(cluster, object_store, tmp_path, [step])
    lines.hold(LOADED)
    application.start()
    end_before_the_twin(application, lines, server, "loaded")
    told = application.answer(0)
    assert (told["written"], told["skipped_by_ledger"]) == (COUNT, COUNT)
    assert application.beaten(), "the task was not beaten by a twin"
    assert set(live(server, "loaded")) == left(), "a twin brought back what had ended"


def test_the_cold_store(
    cluster: Cluster, object_store: ObjectStore, server: RunningServer, lines: Lines, tmp_path: Path
) -> None:
    """Of a file and that of its twin the table has one. What a sweep loads, it loads once."""
    application = Application(cluster, object_store, tmp_path, steps(tmp_path, lines.first.url))
    object_store.gate = gate = Gate("PUT", FILES)
    lines.hold(SWEPT)
    application.start()
    application.until(gate.reached.is_set, "a task is about to put its file")
    application.until(lambda: object_store.names(FILES), "its twin has put one")
    gate.opened.set()
    assert application.answer(0)["cold"] == COUNT
    assert len(object_store.names(FILES)) == 2
    table = DeltaTable(f"{STORE}/timers".replace("s3a:", "s3:"), storage_options=object_store.rust)
    assert table.to_pyarrow_table().num_rows == COUNT
    assert application.answer(1)["cold"] == COUNT

    before = application.beaten()
    end_before_the_twin(application, lines, server, "swept")
    assert application.answer(2)["loaded"] == 2 * COUNT
    assert application.beaten() > before, "the task was not beaten by a twin"
    assert set(live(server, "swept")) == left(), "a twin brought back what had ended"
    with server.client() as client:
        assert not client.exists(KeyNames().key("marks", "swept"))
