"""A standalone Spark cluster on loopback: a master and two workers with one core each, as real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

import pyspark

from relay.pipeline.spark import delta
from relay.pipeline.spark.java import java_home
from tests.pipeline.small_jvm import QUICK, options
from tests.servers import free_port

SPARK_HOME = Path(pyspark.__file__).parent
MEMORY = "512m"
START_TIMEOUT = 400.0  # seconds
LONGEST = 1500.0
"""Seconds for an application: many commands on a busy machine."""
CONF = {
    "spark.executor.memory": MEMORY,
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",  # both executors are there before the first task
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10min",  # however long that takes
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": QUICK,
    **delta.SETTINGS,
}
DRIVER = {"spark.driver.memory": MEMORY, "spark.driver.extraJavaOptions": QUICK}
HIDING = 'mount -t tmpfs tmpfs "$1" && shift && exec "$@"'


class Cluster:
    """The second worker has a host of its own: Spark starts no task beside its twin on one host.

    `second_lacks` is a folder that is empty for the second worker, as on a machine without a shared mount.

    It is None where this machine allows no mount.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port, self._web = free_port(), free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        """The master, and the two workers."""
        unshared = ("unshare", "--map-root-user", "--mount", "sh", "-c", HIDING, "sh")
        folder = place / "of-one-machine"
        folder.mkdir()
        able = (
            shutil.which("unshare")
            and subprocess.run([*unshared, folder, "true"], check=False).returncode == 0
        )
        self.second_lacks: Path | None = folder if able else None
        self._second = (*unshared, str(folder)) if able else ()

    def environment(self, **more: str) -> dict[str, str]:
        """That of the cluster's processes, and of whoever submits to it."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        return {
            **inherited,
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.place / "local"),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_LAUNCHER_OPTS": QUICK,  # the JVM that makes up each command line
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.master.rest.enabled=false",
            **more,
        }

    def __enter__(self) -> Self:
        try:
            at = ("--host", "127.0.0.1", "--port", str(self.port), "--webui-port", str(self._web))
            self._start("master.Master", *at)
            self._until_workers(0)
            for number, around in enumerate(((), self._second)):
                host = f"127.0.0.{number + 1}"
                at = ("--host", host, "--port", str(free_port()), "--webui-port", str(free_port()))
                folder = ("--work-dir", str(self.place / f"worker-{number}"))
                size = ("--cores", "1", "--memory", MEMORY)
                self._start("worker.Worker", *at, *folder, *size, self.master, around=around)
            self._until_workers(2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()  # a worker ends its executors
        for process in self._processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def workers(self) -> list[int]:
        """The process ids of the two workers."""
        return [each.pid for each in self._processes[1:]]

    def _start(self, what: str, *arguments: str, around: tuple[str, ...] = ()) -> None:
        script = str(SPARK_HOME / "bin" / "spark-class")
        command = [*around, script, f"org.apache.spark.deploy.{what}", *arguments]
        with (self.place / f"{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(command, env=self.environment(), stdout=log, stderr=subprocess.STDOUT)
            )

    def _until_workers(self, count: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while self._workers() != count:
            ended = [process for process in self._processes if process.poll() is not None]
            assert not ended, f"ended with {ended[0].returncode}: {self._said()}"
            assert time.monotonic() < deadline, f"not up within {START_TIMEOUT:g} s: {self._said()}"
            time.sleep(0.05)

    def _workers(self) -> int | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=10) as told:
                document: dict[str, Any] = json.load(told)
        except (OSError, ValueError):  # it is not up yet, or not wholly
            return None
        return int(document["aliveworkers"])

    def _said(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in sorted(self.place.glob("*.log")))

    def submit(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`spark-submit`, in the small; `environment` is the driver's."""
        small = options({**CONF, **DRIVER})
        return subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", "--master", self.master, *small, *arguments],
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
