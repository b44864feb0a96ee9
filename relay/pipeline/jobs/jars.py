"""The job `jars`: the jars of Delta, and of S3, come into a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from relay.pipeline.jobs.job import translated
from relay.pipeline.spark import delta


def run(into: Path | None, conf: Mapping[str, str], *, for_s3: bool = False) -> list[Path]:
    """Fetch them with Spark's `conf`; return where they are. `into` is Spark's own folder by default. Raises
    `JobFailed`."""
    try:
        return delta.fetch(into or delta.jars_of_spark(), conf, for_s3=for_s3)
    except (PySparkException, Py4JError, OSError) as failure:
        raise translated(failure) from failure
