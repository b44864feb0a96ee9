"""Delta Lake in a Spark session: its jars, its settings, and a word where they are missing.

Two jars are enough, for Spark has all the others that Delta's coordinates ask for. They lie in Spark's own
folder (`relay pipeline jars` puts them there), or Spark fetches them from Maven as the session starts, and
keeps them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyspark
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from relay.core.errors import InvalidField
from relay.pipeline.spark import s3

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
EXTENSIONS, PACKAGES, EXCLUDES = "spark.sql.extensions", "spark.jars.packages", "spark.jars.excludes"

# What Delta's coordinates bring beside these two jars is in Spark, or for catalogs that Relay does not use.
_NOT_OF_ORG = "com.*:*,commons-*:*,io.airlift:*,io.delta:delta-kernel*,io.unitycatalog:*,javax.*:*"
_IN_SPARK = f"{_NOT_OF_ORG},org.*:*"

OURS = ("io.delta_", "org.apache.hadoop_", "org.reactivestreams_", "org.wildfly.", "software.amazon.")
"""The groups of the jars that are kept."""

SETTINGS = {
    # For logs of a few thousand files: Delta's defaults, 50 and 10,000, start as many tasks for each look.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}
"""What sessions of Relay's own have beside Spark's defaults."""


def coordinates() -> str:
    """Return the packages of the installed Delta for the installed Spark, for `spark.jars.packages`."""
    spark = ".".join(pyspark.__version__.split(".")[:2])
    version = metadata.version("delta-spark")
    return f"io.delta:delta-spark_{spark}_2.13:{version},io.delta:delta-storage:{version}"


def jars_of_spark() -> Path:
    """Return the folder whose jars each of Spark's JVMs has."""
    return Path(_find_spark_home()) / "jars"


def conf(given: Mapping[str, str], *, submitted: bool) -> dict[str, str]:
    """Return what a session with Delta needs beside the `given` settings. With spark-submit the jars are its
    own business: its JVM runs already."""
    extensions = [name for name in given.get(EXTENSIONS, "").split(",") if name and name != EXTENSION]
    needed = {EXTENSIONS: ",".join([EXTENSION, *extensions]), "spark.sql.catalog.spark_catalog": CATALOG}
    if not submitted and not any(jars_of_spark().glob("delta-spark_*.jar")):
        others = given.get(PACKAGES, "")
        needed[PACKAGES] = ",".join(filter(None, [coordinates(), others]))
        if not others:  # which may need what ours do not
            needed[EXCLUDES] = _IN_SPARK
    return needed


def require(spark: SparkSession) -> None:
    """Raise `InvalidField("spark", …)` for a session without Delta, and say what it needs."""
    names = [name.strip() for name in (spark.conf.get(EXTENSIONS, "") or "").split(",")]
    jvm: Any = spark._jvm
    if EXTENSION not in names or "JavaPackage" in type(jvm.io.delta.tables.DeltaTable).__name__:
        raise InvalidField(
            "spark",
            f"has no Delta Lake: start the session with --packages {coordinates()}"
            f" --conf {EXTENSIONS}={EXTENSION} --conf spark.sql.catalog.spark_catalog={CATALOG}",
        )


def fetch(into: Path, given: Mapping[str, str], *, for_s3: bool = False) -> list[Path]:
    """Fetch Delta's two jars, and with `for_s3` those of S3A and of our log store, into a folder: from Maven,
    by Spark's own means and with its `given` settings. Return their places there. Raises Spark's errors."""
    from relay.pipeline.spark.session import session

    with tempfile.TemporaryDirectory() as cache:
        settings = {PACKAGES: coordinates(), EXCLUDES: _IN_SPARK, "spark.jars.ivy": cache}
        if for_s3:
            settings[PACKAGES] += f",{s3.coordinates(jars_of_spark())}"
            settings[EXCLUDES] = f"{_NOT_OF_ORG},{s3.EXCLUDED}"
        settings |= given
        spark = session("jars", master="local[1]", conf=settings)
        try:
            found = spark.sparkContext.getConf().get("spark.jars") or ""
            jars = [Path(unquote(urlsplit(jar).path)) for jar in found.split(",") if jar]
            into.mkdir(parents=True, exist_ok=True)
            placed = [_placed(jar, into) for jar in jars if jar.name.startswith(OURS)]
            return [*placed, s3.compiled(spark, into)] if for_s3 else placed
        finally:
            spark.stop()


def _placed(jar: Path, into: Path) -> Path:
    """Copy a jar under its own name, without its group's: whole, or not at all."""
    place = into / jar.name.partition("_")[2]
    draft = place.with_suffix(".part")
    shutil.copyfile(jar, draft)
    return draft.replace(place)
