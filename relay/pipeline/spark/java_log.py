"""A file for what Spark's JVM and its workers write to standard error, stack traces above all."""

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
"""By these PySpark writes a document with a stack to standard error for what it raises as well."""


class JavaLog:
    """The file of one job. It is removed when the job has done well."""

    def __init__(self, job: str) -> None:
        file, name = tempfile.mkstemp(prefix=f"relay-{job}-", suffix=".log")
        os.close(file)
        self.path = Path(name)
        self._handler = logging.FileHandler(self.path, delay=True)

    @contextmanager
    def inherited(self) -> Generator[None, None, None]:
        """Processes that are started within have the file as their standard error."""
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
