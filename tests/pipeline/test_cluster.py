"""The commands for a cluster, on a standalone master with two workers, by spark-submit. Cold store and
lake lie on S3, the rest in folders that all of them see."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import relay
from tests.chaos import CHAOS
from tests.missing import skip
from tests.pipeline import on_a_cluster
from tests.pipeline.journals import count, long_history, put
from tests.pipeline.object_store import BUCKET, CREDENTIALS, ObjectStore
from tests.pipeline.small_jvm import SMALL, options
from tests.pipeline.standalone import Cluster
from tests.servers import RunningServer, start_server
from tests.worlds.relay.processes import ROOT

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

HOUR = 3600
TIMERS = 20
HISTORY = long_history(range(2))

IN_LONG = frozenset(
    [
        *("audit", "no scripts", "broken python", "another python"),
        *("unseen folder", "unseen glob", "unseen out"),
    ]
)
"""Steps of `make chaos`: each takes as long as a job, and the others show the same checks at work."""


def steps_of(*rows: tuple[str, ...]) -> list[ParameterSet]:
    """Parameters that begin with a step's name."""
    return [pytest.param(*row, marks=[pytest.mark.chaos] * (row[0] in IN_LONG)) for row in rows]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with start_server("valkey") as server:
        yield server


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that has all of the pipeline's dependencies, and no Relay."""
    place = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python3.*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    python = str(place / "bin" / "python")
    told = subprocess.run(
        [python, "-c", "import redis, pyarrow, importlib.util as u; print(u.find_spec('relay'))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
    )
    assert told.stdout == "None\n"
    return python


@pytest.fixture(scope="module")
def wheel_as_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Relay's wheel under a name that `--py-files` takes."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", place],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = place.glob("*.whl")
    return wheel.rename(place / "relay.zip")


@pytest.fixture(scope="module")
def told(
    cluster: Cluster,
    server: RunningServer,
    bare_python: str,
    wheel_as_zip: Path,
    object_store: ObjectStore,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Any]]:
    """What each step of one session on the cluster came to, by the step's name."""
    place = tmp_path_factory.mktemp("told")
    rows(place / "timers.csv")
    put(server, "journaled", HISTORY)
    with start_server("valkey") as restored:
        steps = {
            **commands(place, restored),
            **unfit(place, bare_python, wheel_as_zip),
            **unseen(place, cluster),
        }
        brought = ("--py-files", str(wheel_as_zip), *object_store.conf, *options(SMALL))
        steps = {name: step for name, step in steps.items() if CHAOS or name not in IN_LONG}
        answers = run_steps(cluster, server, place, list(steps.values()), brought, bare_python)
        found = dict(zip(steps, answers, strict=True))
        with restored.client() as client:
            found["restored timers"] = client.zcard("timers_timeline:orders")
        yield found


def rows(file: Path) -> None:
    """Timers of which every other one is due in 30 hours; the last row is none."""
    now = int(time.time())
    with file.open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out)
        table.writerow(("timer_id", "due_time", "payload"))
        table.writerows((f"t{n}", now + HOUR * (30 if n % 2 else 1), f"hello {n}") for n in range(TIMERS))
        table.writerow(("bad", "soon", ""))


def run_steps(
    cluster: Cluster,
    server: RunningServer,
    place: Path,
    steps: list[dict[str, Any]],
    brought: tuple[str, ...],
    bare_python: str,
) -> list[dict[str, Any]]:
    plan, answers = place / "steps.json", place / "answers.jsonl"
    plan.write_text(json.dumps([{"redis": server.url, **step} for step in steps]), encoding="utf-8")
    ran = cluster.submit(
        *(*brought, on_a_cluster.__file__, str(plan), str(answers)),
        **CREDENTIALS,
        PYTHONPATH=str(ROOT),
        PYSPARK_DRIVER_PYTHON=sys.executable,
        PYSPARK_PYTHON=bare_python,
    )
    assert ran.returncode == 0, (ran.stdout[-5000:], ran.stderr[-5000:])
    return [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]


def commands(place: Path, restored: RunningServer) -> dict[str, dict[str, Any]]:
    """Every command of the docs, one after the other."""
    cold, lake = (f"s3a://{BUCKET}/cluster/{name}" for name in ("cold", "lake"))
    copy, rejects, audit = (str(place / name) for name in ("copy", "rejects", "audit"))
    load = ("schedule", str(place / "timers.csv"), "--topic", "orders", "--due-unit", "s")
    return {
        "schedule": {"argv": [*load, "--cold", cold, "--rejects", rejects, "--json"]},
        "cold": {"argv": ["cold", "--cold", cold, "--compact", "2", "--json"]},
        "cancel": {"argv": ["cancel", "--cold", cold, "--topic", "orders", "t0", "t1", "--json"]},
        "sweep": {"argv": ["sweep", "--cold", cold, "--horizon", "40h", "--json"]},
        "snapshot": {"argv": ["snapshot", copy, "--topic", "orders", "--json"]},
        "restore": {"argv": ["restore", copy, "--json"], "redis": restored.url},
        "journal": {"argv": ["journal", "--lake", lake, "--topic", "journaled", "--json"]},
        "audit": {"argv": ["audit", "--lake", lake, "--out", audit, "--json"]},
    }


def unfit(place: Path, bare_python: str, wheel_as_zip: Path) -> dict[str, dict[str, Any]]:
    """Workers that can't do a job."""
    argv = ["schedule", str(place / "timers.csv"), "--topic", "unfit", "--due-unit", "s"]
    other, hollow = place / "other", place / "hollow"
    for folder in (other, hollow):
        with zipfile.ZipFile(wheel_as_zip) as wheel:
            wheel.extractall(folder)
    package = other / "relay" / "__init__.py"
    package.write_text(
        package.read_text(encoding="utf-8").replace(relay.__version__, "0.0.7"), encoding="utf-8"
    )
    shutil.rmtree(hollow / "relay" / "lua")
    another = python_of_another_version()
    found = {
        "no relay": {"argv": argv, "python": bare_python},
        "another relay": {"argv": argv, "python": bare_python, "path": str(other)},
        "no scripts": {"argv": argv, "python": bare_python, "path": str(hollow)},
        "no python": {"argv": argv, "python": "/nowhere/python3"},
        "broken python": {"argv": argv, "python": str(broken_python(place))},
    }
    return {**found, "another python": {"argv": argv, "python": another}} if another else found


def broken_python(place: Path) -> Path:
    """An interpreter that ends at once."""
    script = place / "broken-python"
    script.write_text("#!/bin/sh\necho 'not today' >&2\nexit 1\n", encoding="utf-8")
    script.chmod(0o755)
    return script


def python_of_another_version() -> str | None:
    """One that runs: a shim of pyenv is on PATH even where it leads nowhere."""
    for minor in range(11, 20):
        there = (
            shutil.which(f"python3.{minor}"),
            *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"),
        )
        for python in there:
            if minor != sys.version_info[1] and python is not None:
                if subprocess.run([python, "--version"], capture_output=True, check=False).returncode == 0:
                    return str(python)
    return None


def unseen(place: Path, cluster: Cluster) -> dict[str, dict[str, Any]]:
    """Paths that the second worker does not see."""
    if cluster.second_lacks is None:
        return {}
    lacks = cluster.second_lacks
    rows(lacks / "timers.csv")
    (lacks / "folder").mkdir()
    rows(lacks / "folder" / "timers.csv")
    named = ("--topic", "unseen", "--due-unit", "s", "--format", "csv")
    load = ("schedule", str(place / "timers.csv"), *named)
    return {
        "unseen file": {"argv": ["schedule", str(lacks / "timers.csv"), *named]},
        "unseen folder": {"argv": ["schedule", f"file:{lacks}/folder", *named]},
        "unseen glob": {"argv": ["schedule", f"{lacks}/fol*", *named]},
        "unseen rejects": {"argv": [*load, "--rejects", f"{lacks}/new/rejects"]},
        "unseen cold": {"argv": [*load, "--cold", f"{lacks}/cold"]},
        "unseen out": {"argv": ["snapshot", f"{lacks}/copy", "--topic", "orders"]},
        "unseen dry": {"argv": [*load, "--rejects", f"{lacks}/rejects", "--dry-run", "--json"]},
    }


def summary(told: dict[str, Any], name: str) -> Any:
    step = told[name]
    assert step["code"] == 0, step
    return json.loads(step["out"])


def test_standalone_has_no_cluster_mode_for_python(cluster: Cluster) -> None:
    """Spark says so itself, before anything is started."""
    ran = cluster.submit(
        "--deploy-mode", "cluster", str(on_a_cluster.MAIN_FILE), "cold", "--cold", "/nowhere"
    )
    assert ran.returncode == 1
    assert (
        "Cluster deploy mode is currently not supported for python applications on standalone" in ran.stderr
    )


def test_spark_submit_exits_with_the_jobs_code(cluster: Cluster) -> None:
    asked = ("schedule", "timers.csv", "--due-unit", "years")
    ran = cluster.submit(str(on_a_cluster.MAIN_FILE), *asked, PYSPARK_PYTHON=sys.executable)
    assert ran.returncode == 2
    assert (
        "relay: due_unit: is 'years'; give one of s, ms, us" in ran.stdout.splitlines()
    )  # it makes one of both streams


def test_a_driver_without_relay_says_what_to_do(bare_python: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [bare_python, on_a_cluster.MAIN_FILE, "cold"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith(
        f"relay-pipeline.py: the driver's Python, {bare_python}, has no Relay: install it"
    )


def test_every_command_runs(told: dict[str, Any]) -> None:
    """Load, compact, cancel, sweep, copy, restore, store the journal: with workers that lack Relay, import it
    from what `--py-files` brings, and read its scripts there."""
    loaded = summary(told, "schedule")
    assert (loaded["written"], loaded["cold"], loaded["rejected"]) == (TIMERS / 2, TIMERS / 2, 1)
    assert summary(told, "cold")["rows"] == TIMERS / 2
    assert summary(told, "cancel")["asked"] == 2
    assert summary(told, "sweep")["loaded"] == TIMERS / 2 - 1
    assert summary(told, "snapshot")["timers"] == TIMERS - 2
    assert summary(told, "restore")["loaded"] == told["restored timers"] == TIMERS - 2
    assert summary(told, "journal")["records"] == count(HISTORY)


@pytest.mark.chaos
def test_what_a_cluster_has_stored_is_audited_there(told: dict[str, Any]) -> None:
    """As it is found whole: every promise is proved."""
    assert summary(told, "audit")["verdict"] == "proved"


@pytest.mark.parametrize(
    ("name", "says"),
    steps_of(
        (
            "no relay",
            "can't run Relay: ModuleNotFoundError: No module named 'relay'; install relay-timers[pipeline]",
        ),
        ("another relay", f"has Relay 0.0.7, and the driver {relay.__version__}: install the same version"),
        ("no scripts", "can't run Relay: FileNotFoundError"),
        ("no python", "the workers have no Python at /nowhere/python3: set PYSPARK_PYTHON"),
        (
            "broken python",
            "the workers' Python ended before it could answer: not today; install relay-timers",
        ),
        ("another python", "the workers have another Python than the driver: "),
    ),
)
def test_workers_that_are_unfit(told: dict[str, Any], name: str, says: str) -> None:
    """One sentence, before the first row: which worker, what it lacks, what to do."""
    if name not in told:
        skip("Python of another version")
    assert told[name]["code"] == 1
    assert says in told[name]["err"]
    assert "Traceback" not in told[name]["err"]


def lacked_folder(cluster: Cluster) -> Path:
    """The folder that the second worker lacks; skips where the machine lets nobody mount."""
    if cluster.second_lacks is None:
        skip("right to mount")
    return cluster.second_lacks


@pytest.mark.parametrize(
    ("name", "option", "path"),
    steps_of(
        ("unseen file", "SOURCE", "timers.csv"),
        ("unseen folder", "SOURCE", "folder"),
        ("unseen glob", "SOURCE", "folder"),
        ("unseen rejects", "--rejects", "new/rejects"),
        ("unseen cold", "--cold", "cold"),
        ("unseen out", "OUT", "copy"),
    ),
)
def test_a_path_that_a_worker_does_not_see_is_named(
    told: dict[str, Any], cluster: Cluster, name: str, option: str, path: str
) -> None:
    """Before the first row: nothing is written, and no marker stays."""
    lacked = lacked_folder(cluster)
    assert told[name]["code"] == 2
    assert f"relay: {option}: {lacked}/{path} is a path of the driver's" in told[name]["err"]
    assert {each.name for each in lacked.iterdir()} == {"timers.csv", "folder"}


def test_a_dry_run_leaves_no_marker(told: dict[str, Any], cluster: Cluster) -> None:
    """It writes nothing, and so it doesn't mind where it would."""
    lacked_folder(cluster)
    assert summary(told, "unseen dry")["rejected"] == 1


def test_nothing_was_written_by_jobs_that_were_refused(told: dict[str, Any], server: RunningServer) -> None:
    with server.client() as client:
        assert not client.exists("timers_timeline:unfit", "timers_timeline:unseen")


def test_pip_installs_the_main_file_beside_the_command(wheel_as_zip: Path) -> None:
    """The wheel's scripts go where `relay` is, so a shell finds it."""
    name = f"relay_timers-{relay.__version__}.data/scripts/relay-pipeline.py"
    with zipfile.ZipFile(wheel_as_zip) as wheel:
        assert wheel.read(name) == on_a_cluster.MAIN_FILE.read_bytes()


def test_a_driver_may_run_from_the_archive(wheel_as_zip: Path, bare_python: str, tmp_path: Path) -> None:
    """What `--py-files` brings is for the driver too: it finds the page of an audit's report there."""
    program = "from relay.pipeline.audit import page as p; print(p.__file__, p.template().template)"
    ran = subprocess.run(
        [bare_python, "-c", program],
        env={"PYTHONPATH": str(wheel_as_zip)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert ran.stdout.startswith(str(wheel_as_zip)), ran.stderr
    assert "<html" in ran.stdout
