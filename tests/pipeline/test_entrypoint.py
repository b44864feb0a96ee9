"""The entry point of the pipeline's image: it starts what Spark on Kubernetes asks for, and else `relay`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.small_jvm import BARE, QUICK
from tests.pipeline.standalone import LONGEST, Cluster
from tests.worlds.relay.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ENTRY_POINT = ROOT / "deploy" / "spark" / "entrypoint.sh"
MAIN_FILE = ROOT / "deploy" / "spark" / "relay-pipeline.py"
# No worker has as much memory: the only executor is the one that the test starts.
SUM = """
import sys
from relay.pipeline.spark.session import session
from tests.pipeline.standalone import DRIVER
big = {**DRIVER, "spark.executor.memory": "64g", "spark.ui.enabled": "false"}
spark = session("entry point", master=sys.argv[1], conf=big)
context = spark.sparkContext
print(context.getConf().get("spark.driver.port"), context.applicationId, flush=True)
print(context.parallelize(range(10), 2).map(lambda n: 2 * n).sum(), flush=True)
spark.stop()
"""
OPENED = ("lang", "lang.invoke", "net", "nio", "util", "util.concurrent")
OPTIONS = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]


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


def test_a_driver_runs_the_main_file(cluster: Cluster, tmp_path: Path) -> None:
    """With the arguments that Spark on Kubernetes gives: a class, properties and a file of the image."""
    properties = tmp_path / "spark.properties"
    given = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.extraJavaOptions": QUICK}
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()), encoding="utf-8")
    ran = subprocess.run(
        [
            *(ENTRY_POINT, "driver", "--properties-file", properties),
            *("--class", "org.apache.spark.deploy.PythonRunner", f"local://{MAIN_FILE}"),
            *("cold", "--cold", tmp_path / "cold", "--json"),
        ],
        env=cluster.environment(SPARK_DRIVER_BIND_ADDRESS="127.0.0.1", PYSPARK_PYTHON=sys.executable),
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1])["rows"] == 0


def test_an_executor_works_for_its_driver(cluster: Cluster, tmp_path: Path) -> None:
    """By what Spark on Kubernetes puts into its environment, in Spark's own class for it."""
    with subprocess.Popen(
        [sys.executable, "-c", SUM, cluster.master],
        env=cluster.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as driver:
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
                **{
                    f"SPARK_JAVA_OPT_{n}": each
                    for n, each in enumerate((*OPTIONS, *BARE.split(), "-Dsaid=with a space"))
                },
            }
            ran = subprocess.run(
                [ENTRY_POINT, "executor"],
                env=cluster.environment(**told),
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
                cwd=tmp_path,
            )
            assert driver.stdout.readline() == "90\n", ran.stderr[-3000:]
            assert ran.returncode == 0
        finally:
            driver.kill()
