"""The rule by which a topic's partitions have its timers, as Spark computes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs import pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS = json.loads((Path(__file__).parents[1] / "core" / "partitions.json").read_text(encoding="utf-8"))


def test_spark_sql_computes_the_published_vectors(spark: SparkSession) -> None:
    """By the expression on the page about the keys, for eight partitions."""
    (block,) = pages.run_by(__file__)
    rows = spark.createDataFrame([(each["timer_id"],) for each in VECTORS], ["timer_id"])
    computed = [row[0] for row in rows.selectExpr(block.text).collect()]
    assert computed == [each["of_8"] for each in VECTORS]
