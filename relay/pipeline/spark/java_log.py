"""A file for the standard error of Spark's JVM and its workers, above all for stack traces."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers by which PySpark writes a document with a stack to standard error for errors that it raises
anyway."""


class JavaLog:
    """The file of one job. It is removed when the job has succeeded."""

    def __init__(self, job: str) -> None:
        file, name = tempfile.mkstemp(prefix=f"relay-{job}-", suffix=".log")
        os.close(file)
        self.path = Path(name)
        self._handler = logging.FileHandler(self.path, delay=True)

    @contextmanager
    def inherited(self) -> Generator[None, None, None]:
        """Make the file the standard error of processes that are started within the block."""
        sys.stderr.flush()
        own = os.dup(2)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.dup2(file, 2)
            yield
        finally:
            os.dup2(own, 2)
            os.close(own)
            os.close(file)

    def __enter__(self) -> Self:
        from pyspark.logger import PySparkLogger

        for logger in map(PySparkLogger.getLogger, LOGGERS):
            logger.handlers, logger.propagate = [self._handler], False
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        self._handler.close()
        if failure is None:
            self.path.unlink(missing_ok=True)
