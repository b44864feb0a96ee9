"""Checks the workers of a cluster before a job's first row.

A worker is a process on another machine, with a Python and folders of its own. A worker without Relay fails
at its first row, with a stack trace. A worker that has a folder of its own under the job's path is worse: its
rows go where nobody looks for them, and the job takes the empty folder for its result. So a small Spark job
checks both on every executor.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

import relay
from relay.core.errors import InvalidField, ServiceError

PATIENCE = 10.0
"""Seconds within which every executor should answer."""
FIRST = 100
"""The number of names of a folder that are compared."""

SHARED = "give a folder that all machines share under this name, or a URL such as s3a://…"

Look = tuple[str, str, tuple[tuple[str, int], ...]]
"""An option, its path, and what the driver sees there: files with their size in bytes, one of which the
worker must see. A size of -1 means any."""
Answer = dict[str, Any]


class UnfitWorkers(ServiceError):
    """A worker can't do the job. The message says which one, why, and what to do."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths that workers will read or write, by the names of their options."""

    read: Mapping[str, str]
    written: Mapping[str, str]

    @classmethod
    def of(cls, *, read: Mapping[str, str | None], written: Mapping[str, str | None], dry_run: bool) -> Paths:
        """Return the paths that were given. A dry run only reads, so it leaves nothing anywhere."""
        given, out = ({name: path for name, path in each.items() if path} for each in (read, written))
        return cls({**given, **out}, {}) if dry_run else cls(given, out)


NO_PATHS = Paths({}, {})


def check_workers(spark: SparkSession, paths: Paths) -> None:
    """Check the workers of a cluster; this has no effect on one machine. Raises `UnfitWorkers`, or
    `InvalidField` for a path."""
    if _is_local(spark):
        return
    with ExitStack() as stack:
        looks = [look for name, path in paths.read.items() for look in _read(spark, name, path)]
        for name, path in paths.written.items():
            folder = _local(spark, path)
            if folder is not None:
                looks.append((name, path, stack.enter_context(_marker(name, folder))))
        for answer in _answers(spark, looks):
            _judge(answer, looks)


def _is_local(spark: SparkSession) -> bool:
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


# ------------------------------------------------------------------------------------ what the driver sees


def _local(spark: SparkSession, path: str) -> Path | None:
    """Return the path on this machine; None if the path names another file system."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    if urlsplit(place.toString()).scheme not in ("", "file"):
        return None
    system = place.getFileSystem(conf)
    uri = system.makeQualified(place).toUri()
    return Path(uri.getPath()) if uri.getScheme() == "file" else None


def _read(spark: SparkSession, name: str, path: str) -> Iterator[Look]:
    """Return what is there to read. The job itself reports a path that is missing. Raises `InvalidField`."""
    place = _local(spark, path)
    if place is None:
        return
    for found in sorted(Path("/").glob(str(place.relative_to("/"))))[:FIRST] or [place]:
        if found.is_file():
            yield name, str(found), ((str(found), found.stat().st_size),)
        elif found.is_dir():
            try:
                entries = tuple((str(entry), -1) for entry in sorted(found.iterdir())[:FIRST])
            except OSError as failure:
                raise InvalidField(name, f"{found} can't be read: {failure.strerror}") from None
            yield name, str(found), entries or ((str(found), -1),)


@contextmanager
def _marker(name: str, folder: Path) -> Generator[tuple[tuple[str, int], ...], None, None]:
    """Write a file into the folder, or into the nearest one above that exists. Raises `InvalidField`."""
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    marker = there / f".relay-{uuid.uuid4().hex}"
    try:
        marker.touch(exist_ok=False)
    except OSError as failure:
        raise InvalidField(name, f"{there} can't be written to: {failure.strerror}") from None
    try:
        yield ((str(marker), -1),)
    finally:
        marker.unlink(missing_ok=True)


# ------------------------------------------------------------------------------------- what the workers see


def _answers(spark: SparkSession, looks: list[Look]) -> list[Answer]:
    """Return the answers of every executor that has registered. Spark gives each free core a task before any
    core gets a second one. An executor that was busy, or came later, is asked in a further round."""
    context = spark.sparkContext
    asking = _asking(looks)
    answers: dict[tuple[str, str], Answer] = {}
    until = time.monotonic() + PATIENCE
    while not answers or (len(answers) < _executors(spark) and time.monotonic() < until):
        tasks = max(context.defaultParallelism, _executors(spark))
        try:
            told = context.parallelize(range(tasks), tasks).mapPartitions(asking).collect()
        except Exception as failure:  # its type depends on how far the worker came
            raise _explained(failure) or failure from failure
        answers.update(((each["host"], each["folder"]), each) for each in told)
    return list(answers.values())


def _executors(spark: SparkSession) -> int:
    return len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) - 1  # less the driver


def _asking(looks: list[Look]) -> Callable[[Iterable[int]], Iterator[Answer]]:
    """Return what a worker runs. It travels as code, since a worker may have no Relay to import it from."""

    def asking(_: Iterable[int]) -> Iterator[Answer]:
        import os
        import socket
        import sys

        def sees(name: str, size: int) -> bool:
            try:
                return size in (-1, os.stat(name).st_size)  # noqa: PTH116 (nothing but what a pickle holds)
            except OSError:
                return False

        answer: dict[str, Any] = {
            "host": socket.gethostname(),
            "folder": os.getcwd(),  # noqa: PTH109 (as above); each executor has its own, or a host of its own
            "python": sys.executable,
            "version": "",
        }
        try:
            import relay

            answer["version"] = relay.__version__
            import relay.pipeline.cold.guarded_load
            import relay.pipeline.cold.staging
            import relay.pipeline.rows.writing
            import relay.pipeline.timers_source
            from relay.store.server.scripts import source

            source("timeline/schedule")
        except Exception as failure:  # noqa: BLE001 (whatever it is, the driver says it)
            answer["problem"] = f"{type(failure).__name__}: {failure}"
        answer["seen"] = [any(sees(*each) for each in files) for _, _, files in looks]
        yield answer

    return asking


def _judge(answer: Answer, looks: list[Look]) -> None:
    """Check one worker's answer. Raises `UnfitWorkers` or `InvalidField`."""
    where = f"the worker on {answer['host']} ({answer['python']})"
    if answer["version"] and answer["version"] != relay.__version__:
        raise UnfitWorkers(
            f"{where} has Relay {answer['version']}, and the driver {relay.__version__}:"
            " install the same version on both"
        )
    if "problem" in answer:
        raise UnfitWorkers(f"{where} can't run Relay: {answer['problem']}; {INSTALL}")
    for (name, path, _), seen in zip(looks, answer["seen"], strict=True):
        if not seen:
            raise InvalidField(
                name, f"{path} is a path of the driver's machine that {where} does not see; {SHARED}"
            )


# -------------------------------------------------------------------------------------------- what is wrong

INSTALL = (
    "install relay-timers[pipeline] there, or send Relay's wheel along under a name that ends in .zip:"
    " spark-submit --py-files relay.zip"
)


def _explained(failure: Exception) -> UnfitWorkers | None:
    """Explain a failure that came before a worker could answer."""
    text = str(failure)
    if "PYTHON_VERSION_MISMATCH" in text:
        told = text.partition("[PYTHON_VERSION_MISMATCH] ")[2].partition("\n")[0]
        return UnfitWorkers(f"the workers have another Python than the driver: {told}")
    if "Cannot run program" in text:
        program = text.partition('Cannot run program "')[2].partition('"')[0]
        return UnfitWorkers(
            f"the workers have no Python at {program}: set PYSPARK_PYTHON to the path of theirs"
        )
    said = re.search(r"Error from python worker:\n(.*?)\nPYTHONPATH was:", text, re.DOTALL)
    if said:
        last = said[1].strip().rpartition("\n")[2].strip()
        return UnfitWorkers(f"the workers' Python ended before it could answer: {last}; {INSTALL}")
    return None
