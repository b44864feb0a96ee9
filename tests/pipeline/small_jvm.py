"""How the tests' JVMs run: small, and quick to be at work. Half of a Spark session's first seconds are the
loading of 18,000 classes; `make .venv-pipeline/classes.jsa` stores those as Java has them in memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from tests.chaos import CHAOS

ARCHIVE = Path(sys.prefix) / "classes.jsa"
"""Of the Java and the Spark of this venv. Where it is missing, or another Java's, classes are loaded."""

# Java would tell on standard output of each class that it can't store.
BARE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
STORED = ARCHIVE.is_file() and ARCHIVE.stat().st_size > 0 and " " not in str(ARCHIVE)
QUICK = f"{BARE} -XX:SharedArchiveFile={ARCHIVE}" if STORED else BARE

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""A query of ten rows is done before its code would be made and compiled. In the long form Spark makes code,
as it does for users."""

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    **({} if CHAOS else INTERPRETED),
}
"""A session's configuration, wherever it runs."""

SMALL_AND_QUICK = {"spark.driver.extraJavaOptions": QUICK, **SMALL}
"""A local session's configuration."""


def options(settings: Mapping[str, str]) -> list[str]:
    """The same for a command line."""
    return [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
