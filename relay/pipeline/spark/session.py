"""The Spark session that every job runs in."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from pyspark.sql import SparkSession

from relay.core.errors import InvalidField
from relay.pipeline.spark import delta, s3
from relay.pipeline.spark.java import java_home
from relay.pipeline.spark.java_log import JavaLog

DRIVER_MEMORY = "512m"
"""The driver's memory. It is enough for a million timers, since no job gathers rows in the driver."""

_ALWAYS = {
    # The data sources push due times and topics down; without it every read of theirs fails.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.showConsoleProgress": "false",  # the jobs have a bar of their own
}
_LOCAL = {
    "spark.driver.memory": DRIVER_MEMORY,
    # G1 works beside the job, on the cores that the job needs: 1 to 2 s of them in a sweep of a million.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.python.daemon.module": "relay.pipeline.workers",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}
"""What a local session has besides."""


def session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    log: JavaLog | None = None,
) -> SparkSession:
    """Return the session of the job `name`: the current one, or a new one.

    `master` is Spark's; None means that of spark-submit, or `local[*]`. `conf` overrides our defaults. `log`
    takes the standard error of a JVM that is started here. Raises `NoJava`; `InvalidField` for Spark Connect.
    """
    if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        raise InvalidField(
            "master",
            "is a Spark Connect server, and a job calls Delta Lake in its own driver: give a cluster, such as"
            " spark://host:7077, and unset SPARK_REMOTE",
        )
    active = SparkSession.getActiveSession()
    if active is None:
        with log.inherited() if log else nullcontext():
            active = _start(name, master, conf or {})
    for key, value in _ALWAYS.items():
        if key.startswith("spark.sql."):
            active.conf.set(key, value)
    return active


def _start(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    submitted = "SPARK_ENV_LOADED" in os.environ  # spark-submit chose Java and master
    local = not submitted and (master is None or master.startswith("local"))
    if not submitted:
        os.environ["JAVA_HOME"] = str(java_home())
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise workers take python3 from PATH
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder: Any = SparkSession.Builder().appName(f"relay pipeline {name}")
    if not submitted:
        builder = builder.master(master or "local[*]")
    with_delta = delta.conf(conf, submitted=submitted)
    ours = {**delta.SETTINGS, **(_LOCAL if local else {})} if not submitted else {}
    for key, value in {**ours, **s3.SETTINGS, **_ALWAYS, **conf, **with_delta}.items():
        builder = builder.config(key, value)
    started: SparkSession = builder.getOrCreate()
    return started


@contextmanager
def configured(spark: SparkSession, conf: Mapping[str, str]) -> Generator[None, None, None]:
    """Set configuration of Spark's SQL for the queries within the block, and restore the previous values."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
