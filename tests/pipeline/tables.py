"""What a Delta table has."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def rows_at(spark: SparkSession, *place: str | Path) -> DataFrame:
    """The rows of the newest version of the one at this path, which may come in parts."""
    return spark.read.format("delta").load("/".join(map(str, place)))
