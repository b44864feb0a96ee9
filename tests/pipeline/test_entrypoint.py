"""The entry point of the pipeline's image: it starts what Spark on Kubernetes asks for, and else `relay`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import ROOT
from tests.pipeline.standalone import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ENTRY_POINT = ROOT / "deploy" / "spark" / "entrypoint.sh"
MAIN_FILE = ROOT / "deploy" / "spark" / "relay-pipeline.py"
# No worker has as much memory: the only executor is the one that the test starts.
SUM = """
import sys
from relay.pipeline.spark.session import session
big = {"spark.executor.memory": "64g", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
spark = session("entry point", master=sys.argv[1], conf=big)
context = spark.sparkContext
print(context.getConf().get("spark.driver.port"), context.applicationId, flush=True)
print(context.parallelize(range(10), 2).map(lambda n: 2 * n).sum(), flush=True)
spark.stop()
"""
OPENED = ("lang", "lang.invoke", "net", "nio", "util", "util.concurrent")
OPTIONS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """One that is not started, for its environment."""
    return Cluster(tmp_path)


def test_anything_else_follows_relay(cluster: Cluster) -> None:
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ran = subprocess.run(
        [ENTRY_POINT, "--version"],
        env=cluster.environment(PATH=path),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith("relay ")


def test_a_driver_runs_the_main_file(cluster: Cluster) -> None:
    """With the arguments that Spark on Kubernetes gives: a class, properties and a file of the image."""
    properties = cluster.place / "spark.properties"
    properties.write_text("spark.master=local[1]\nspark.ui.enabled=false\n", encoding="utf-8")
    ran = subprocess.run(
        [
            *(ENTRY_POINT, "driver", "--properties-file", properties),
            *("--class", "org.apache.spark.deploy.PythonRunner", f"local://{MAIN_FILE}"),
            *("cold", "--cold", cluster.place / "cold", "--json"),
        ],
        env=cluster.environment(SPARK_DRIVER_BIND_ADDRESS="127.0.0.1", PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1])["rows"] == 0


def test_an_executor_works_for_its_driver(cluster: Cluster) -> None:
    """By what Spark on Kubernetes puts into its environment, in Spark's own class for it."""
    with (
        cluster,
        subprocess.Popen(
            [sys.executable, "-c", SUM, cluster.master],
            env=cluster.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        ) as driver,
    ):
        try:
            assert driver.stdout is not None
            port, application = driver.stdout.readline().split()
            told = {
                "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
                "SPARK_APPLICATION_ID": application,
                "SPARK_EXECUTOR_ID": "1",
                "SPARK_EXECUTOR_CORES": "1",
                "SPARK_EXECUTOR_MEMORY": "512m",
                "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
                "SPARK_EXECUTOR_POD_NAME": "pod",
                "SPARK_RESOURCE_PROFILE_ID": "0",
                **{f"SPARK_JAVA_OPT_{n}": each for n, each in enumerate((*OPTIONS, "-Dsaid=with a space"))},
            }
            ran = subprocess.run(
                [ENTRY_POINT, "executor"],
                env=cluster.environment(**told),
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
                cwd=cluster.place,
            )
            assert driver.stdout.readline() == "90\n", ran.stderr[-3000:]
            assert ran.returncode == 0
        finally:
            driver.kill()
