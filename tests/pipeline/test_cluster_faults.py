"""A standalone cluster that loses workers, and runs a task beside its twin: nothing is lost or comes back."""

from __future__ import annotations

import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.ghosts.slow_line import SlowLine
from tests.pipeline import doomed, killed_executors, on_a_cluster
from tests.pipeline.cold_world import LATE
from tests.pipeline.journals import count, long_history, put
from tests.pipeline.small_jvm import SMALL, options
from tests.pipeline.standalone import Cluster
from tests.servers import start_server
from tests.worlds.relay.processes import ROOT
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("cluster"),
]

TOPIC, COUNT = "loaded", 400
HALF = COUNT // 2
LONGEST = 400.0
"""Seconds for a load on a busy machine to come to its last rows."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "5s",  # by then the line holds nothing more
}
PERSISTENT = {
    "spark.task.maxFailures": "20",
    "spark.ui.liveUpdate.period": "0",  # the killer sees each task that runs
}
HISTORY = long_history(range(2))


@pytest.fixture
def doomed_cluster(tmp_path: Path) -> Iterator[Cluster]:
    place = tmp_path / "cluster"
    place.mkdir()
    with Cluster(place) as cluster:
        yield cluster


@pytest.mark.parametrize("fault", ["twin", "killed worker"])
def test_a_task_that_another_one_does_again(
    doomed_cluster: Cluster, stage: Stage, tmp_path: Path, fault: str
) -> None:
    """What a task sends to Redis is held on its way. Its twin on the other worker, or the next try after its
    worker was killed, writes the same rows, and a relay delivers them. Then the line lets go: nothing of it
    comes back."""
    server = stage.redis()
    relay = stage.relay()
    stage.application(relay, TOPIC)
    folder = tmp_path / "timers"
    folder.mkdir()
    for name, first, payload in (("first", 0, "x"), ("second", HALF, LATE)):
        rows = [f"t{n},2026-01-01T00:00:00Z,{payload}" for n in range(first, first + HALF)]
        (folder / f"{name}.csv").write_text("timer_id,due_time,payload\n" + "\n".join(rows) + "\n")
    conf = {**SMALL, **(SPECULATION if fault == "twin" else {})}
    load = ("schedule", str(folder), "--format", "csv", "--topic", TOPIC, "--run-id", "spring", "--json")

    def gone() -> bool:
        return stage.left(TOPIC) == (0, 0, 0)

    # The line closes first, and so a load that it holds ends.
    with ThreadPoolExecutor(1) as pool, SlowLine(server.port) as line:
        line.hold(LATE)
        ran = pool.submit(
            partial(
                doomed_cluster.submit, *options(conf), str(on_a_cluster.MAIN_FILE), *load,
                RELAY_REDIS__URL=line.url, PYTHONPATH=str(ROOT), PYSPARK_PYTHON=sys.executable,
            )
        )  # fmt: skip
        eventually(lambda: line.holds or ran.done(), "what is late is held", LONGEST)
        assert line.holds, ran.result().stderr[-3000:]
        line.let_pass()
        if fault == "killed worker":
            (sender,) = line.senders()
            doomed.end(worker_of(sender, doomed_cluster))
        done = ran.result(LONGEST)
        assert done.returncode == 0, done.stderr[-3000:]
        assert line.holds, "the first task's rows have not come yet"
        eventually(lambda: len(stage.journal.ended()) == COUNT, "all timers are delivered", 120.0)
        eventually(gone, "and committed")
        line.deliver()
    eventually(gone, "nothing is left")
    assert stage.journal.ended() == {f"t{n}": 1 for n in range(COUNT)}


def worker_of(port: int, cluster: Cluster) -> int:
    """Return the process id of the worker whose task has this port."""
    for worker in cluster.workers:
        for process in psutil.Process(worker).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any(each.laddr.port == port for each in process.net_connections("tcp")):
                    return worker
    raise AssertionError(f"no worker has a task with port {port}")


def test_executors_are_killed_under_every_command(doomed_cluster: Cluster, tmp_path: Path) -> None:
    """Executors of both workers are killed while their tasks run: each command ends as if none had been."""
    rows = [f"t{n},{'2090-01-01' if n % 2 else '2026-01-01'}T00:00:00Z,x" for n in range(COUNT)]
    source, plan, answers = (tmp_path / name for name in ("timers.csv", "steps.json", "answers.jsonl"))
    source.write_text("timer_id,due_time,payload\n" + "\n".join(rows) + "\n")
    cold, lake, copy, audit = (str(tmp_path / name) for name in ("cold", "lake", "copy", "audit"))
    with start_server("valkey") as server, start_server("valkey") as restored:
        put(server, "journaled", HISTORY)
        steps: list[dict[str, Any]] = [
            {"argv": ["schedule", str(source), "--topic", TOPIC, "--cold", cold, "--json"]},
            {"argv": ["sweep", "--cold", cold, "--horizon", "36500d", "--json"]},
            {"argv": ["snapshot", copy, "--topic", TOPIC, "--json"]},
            {"argv": ["restore", copy, "--json"], "redis": restored.url},
            {"argv": ["journal", "--lake", lake, "--topic", "journaled", "--json"]},
            {"argv": ["audit", "--lake", lake, "--out", audit, "--json"]},
        ]
        plan.write_text(json.dumps([{"redis": server.url, **step} for step in steps]))
        ran = doomed_cluster.submit(
            *options({**SMALL, **PERSISTENT}),
            *(killed_executors.__file__, str(plan), str(answers), *map(str, doomed_cluster.workers)),
            PYTHONPATH=str(ROOT),
            PYSPARK_PYTHON=sys.executable,
        )
        assert ran.returncode == 0, (ran.stdout[-5000:], ran.stderr[-5000:])
        told = [json.loads(line) for line in answers.read_text().splitlines()]
        with restored.client() as client:
            assert client.zcard(f"timers_timeline:{TOPIC}") == COUNT
    found = dict(zip((step["argv"][0] for step in steps), told, strict=True))
    assert all(each["code"] == 0 for each in told), found
    assert all(each["kills"] for each in told), found
    assert len(sum((Counter(each["kills"]) for each in told), Counter[str]())) == 2, "of one worker only"

    def summary(name: str) -> Any:
        return json.loads(found[name]["out"])

    assert (summary("schedule")["written"], summary("schedule")["cold"]) == (HALF, HALF)
    assert summary("sweep")["loaded"] == HALF
    assert summary("snapshot")["timers"] == COUNT
    assert summary("restore")["loaded"] == COUNT
    assert summary("journal")["records"] == count(HISTORY)
    assert summary("audit")["verdict"] == "proved"
