"""What every job shares: a session, a progress bar, a summary, and failures in one sentence."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, TextIO

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relay.core import errors
from relay.core.errors import ServiceError, StoreUnavailable
from relay.pipeline.jobs.cluster import NO_PATHS, Paths, check_workers
from relay.pipeline.spark import s3
from relay.pipeline.spark.java import NoJava
from relay.pipeline.spark.java_log import JavaLog
from relay.pipeline.spark.session import session

GONE = (ConnectionError, Py4JNetworkError)
"""The errors of calls to a JVM that has ended. A Redis that is away is a `StoreUnavailable` here."""


@dataclass(slots=True)
class Summary:
    """What a job did. `counts` are by name, `facts` are paths and digests; `problems` make it a failure.
    `warnings` go to standard error only. `first` has the first rows as documents
    (`relay.pipeline.inputs.preview`)."""

    job: str
    dry_run: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    """The seconds of each step, in the order in which they began; a step for each topic is counted once."""
    first: list[dict[str, Any]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON with stable names."""
        return {
            "job": self.job,
            "ok": not self.problems,
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            "phases": {name: round(seconds, 3) for name, seconds in self.phases.items()},
            **self.counts,
            **self.facts,
            **({"first": self.first} if self.first else {}),
            "problems": self.problems,
        }


@dataclass(frozen=True, slots=True)
class Running:
    """How a job runs: Spark's master and configuration, and the session's time zone. None means Spark's
    default.

    The workers of a cluster must see `paths` as the driver does.
    """

    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    time_zone: str | None = None
    bar: bool = True
    paths: Paths = NO_PATHS


class JobFailed(ServiceError):
    """A job failed. The message is that of a worker or of Spark, without its stack."""

    def __init__(self, message: str, kind: type[ServiceError] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        """The class of the error, if it was one of Relay's."""

    @property
    def unavailable(self) -> bool:
        """Redis could not be reached: try again."""
        return self.kind is StoreUnavailable


def run(name: str, work: Callable[[SparkSession, Bar], Summary], running: Running) -> Summary:
    """Run `work` in the current session, or in one of its own, which ends with it.

    Raises `JobFailed` for errors of Spark or a worker, and Relay's own errors as they are. Before the first
    row it raises `UnfitWorkers`, and `InvalidField` for a path that a worker does not see.
    """
    began = time.monotonic()
    if SparkSession.getActiveSession() is not None:
        summary = _run(name, work, running)
    else:
        log = JavaLog(name)
        try:
            with log:
                summary = _run(name, work, running, log)
        except JobFailed as failure:
            if log.path.stat().st_size == 0:  # under spark-submit, which has its own logs
                log.path.unlink()
                raise
            raise JobFailed(f"{failure} (Spark's log: {log.path})", failure.kind) from failure
        except (ServiceError, NoJava):
            log.path.unlink()  # the failure is not Spark's
            raise
    summary.seconds = time.monotonic() - began
    return summary


def _run(
    name: str, work: Callable[[SparkSession, Bar], Summary], running: Running, log: JavaLog | None = None
) -> Summary:
    """Run in the current session, or with a `log` in one of its own."""
    spark = session(name, master=running.master, conf=running.conf, log=log)
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        if running.time_zone:
            spark.conf.set("spark.sql.session.timeZone", running.time_zone)
        check_workers(spark, running.paths)
        with Bar(spark, name, sys.stderr if running.bar else None) as bar:
            summary = work(spark, bar)
        summary.phases = bar.phases
        return summary
    except (PySparkException, Py4JError, ConnectionError) as failure:
        raise translated(failure) from failure
    finally:
        with suppress(*GONE):  # the reason of its death has been reported
            if log is not None:
                spark.stop()
            elif before is not None:
                spark.conf.set("spark.sql.session.timeZone", before)


_OURS = re.compile(r"^(?:.*\s)?relay\.core\.errors\.(\w+): (.*)$", re.MULTILINE)
_LAST_OF_PYTHON = re.compile(r"^([\w.]*(?:Error|Exception)): (.*)$", re.MULTILINE)


def translated(failure: Exception) -> JobFailed:
    """Return Spark's error as one sentence; if a worker raised one of Relay's errors, that is it."""
    if isinstance(failure, GONE):
        return JobFailed(
            "Spark's JVM has ended, most often because it ran out of memory; give it more, such as"
            " --conf spark.driver.memory=2g"
        )
    text = str(failure)
    ours = _OURS.search(text)
    if ours:
        kind = getattr(errors, ours[1], None)
        return JobFailed(ours[2], kind if isinstance(kind, type) and issubclass(kind, ServiceError) else None)
    of_s3 = s3.explained(text)
    if of_s3 is not None:
        return JobFailed(of_s3)
    python = _LAST_OF_PYTHON.findall(text) if "Traceback" in text else []
    if python:
        return JobFailed(f"{python[-1][0]}: {python[-1][1]}")
    return JobFailed(text.partition("\n")[0].strip() or type(failure).__name__)


class Bar:
    """One line on a terminal: the step, and how many of its tasks are done. Elsewhere it prints nothing."""

    EVERY = 0.25
    WIDTH = 30

    def __init__(self, spark: SparkSession, job: str, out: TextIO | None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._job, self._step = job, ""
        self._began = time.monotonic()
        self.phases: dict[str, float] = {}
        self._out = out if out is not None and out.isatty() else None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="bar", daemon=True)

    def step(self, name: str) -> None:
        """Begin a step. What stands before a colon is the topic that it is about."""
        self._count()
        self._step = name

    def _count(self) -> None:
        """Add what has passed since the last step began."""
        now = time.monotonic()
        phase = self._step.rpartition(": ")[2]
        if phase:
            self.phases[phase] = self.phases.get(phase, 0.0) + now - self._began
        self._began = now

    @property
    def shown(self) -> bool:
        """Whether there is a terminal."""
        return self._out is not None

    def say(self, line: str) -> None:
        """Print a line that stays, above the bar."""
        if self._out:
            self._out.write(f"\r\033[K{line}\n")
            self._out.flush()

    def __enter__(self) -> Self:
        if self._out:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._count()
        if self._out:
            self._over.set()
            self._thread.join()
            self._out.write("\r\033[K")
            self._out.flush()

    def _show(self) -> None:
        while not self._over.wait(self.EVERY):
            if self._out:
                self._out.write(f"\r\033[K{self._line()}")
                self._out.flush()

    def _line(self) -> str:
        done = tasks = 0
        for number in self._tracker.getActiveStageIds():
            stage = self._tracker.getStageInfo(number)
            if stage is not None:
                done, tasks = done + stage.numCompletedTasks, tasks + stage.numTasks
        full = self.WIDTH * done // tasks if tasks else 0
        shown = f"[{'#' * full}{'.' * (self.WIDTH - full)}] {done}/{tasks}" if tasks else ""
        return f"{self._job}: {self._step} {shown}".rstrip()
