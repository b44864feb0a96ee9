"""How the tests' JVMs run: small, and quick to be at work. Half of a Spark session's first seconds are the
loading of 18,000 classes; `make .venv-pipeline/classes.jsa` stores those as Java has them in memory."""

from __future__ import annotations

import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "classes.jsa"
"""Of the Java and the Spark of this venv. Where it is missing, or another Java's, classes are loaded."""

# Java would tell on standard output of each class that it can't store.
BARE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
STORED = ARCHIVE.is_file() and ARCHIVE.stat().st_size > 0 and " " not in str(ARCHIVE)
QUICK = f"{BARE} -XX:SharedArchiveFile={ARCHIVE}" if STORED else BARE

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""A query of ten rows is done before its code would be made and compiled."""

SMALL_AND_QUICK = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
"""A local session's configuration."""
