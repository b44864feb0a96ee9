"""Fetches a Kafka broker, and Spark's package for Kafka, from Maven into this venv.

python -m tests.pipeline.kafka_jars
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyspark

from relay.pipeline.spark.session import session

PLACE = Path(sys.prefix) / "kafka"
KAFKA = "3.9.2"
"""The version of the client that Spark's package asks for."""
PACKAGES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    f"org.apache.kafka:kafka_2.13:{KAFKA}",
)
IN_SPARK = (
    "at.yawk.lz4:*,com.fasterxml.*:*,com.github.luben:*,com.google.*:*,commons-cli:*,commons-codec:*,"
    "commons-collections:*,commons-io:*,commons-logging:*,io.netty:*,org.apache.hadoop:*,"
    "org.apache.zookeeper:*,org.scala-lang:*,org.scala-lang.modules:scala-parallel*,org.slf4j:*,"
    "org.xerial.snappy:*"
)
"""What is not fetched, since a broker has Spark's jars as well."""
OF_A_DRIVER = ("org.apache.spark_*.jar", "org.apache.kafka_kafka-clients-*.jar", "*_commons-pool2-*.jar")


def of_a_driver() -> list[Path]:
    """Return what `--packages` would bring to a driver."""
    found = [jar for pattern in OF_A_DRIVER for jar in PLACE.glob(pattern)]
    assert found, f"{PLACE} is not there: make .venv-pipeline/stamp"
    return found


def fetch() -> None:
    """Put the packages and what they need into their place, whole or not at all."""
    with tempfile.TemporaryDirectory() as cache:
        conf = {
            "spark.jars.packages": ",".join(PACKAGES),
            "spark.jars.excludes": IN_SPARK,
            "spark.jars.ivy": cache,
        }
        spark = session("jars", master="local[1]", conf=conf)
        draft = PLACE.with_suffix(".part")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        for jar in (spark.sparkContext.getConf().get("spark.jars") or "").split(","):
            shutil.copy(unquote(urlsplit(jar).path), draft)
        spark.stop()
    shutil.rmtree(PLACE, ignore_errors=True)
    draft.rename(PLACE)


if __name__ == "__main__":
    fetch()
