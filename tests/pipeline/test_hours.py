"""Hours as names of folders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000_000


@pytest.mark.parametrize("hours", [0, 1, 495_000, 2_600_000, 24 * 365 * 1_000])
def test_an_hour_begins_and_ends_to_the_microsecond(spark: SparkSession, hours: int) -> None:
    """By the column as by Python, also where a double no longer tells one microsecond from the next."""
    from pyspark.sql import functions as f

    from relay.pipeline.spark.hour_folders import hour_of

    instants = [hours * HOUR, (hours + 1) * HOUR - 1, (hours + 1) * HOUR]
    frame = spark.createDataFrame([(each,) for each in instants], "due_us long")
    names = [row[0] for row in frame.select(hour_of(f.col("due_us"))).collect()]
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    hours_of = [begin + timedelta(microseconds=each) for each in instants]
    assert names == [f"{each.year:04d}-{each:%m-%d-%H}" for each in hours_of]
    assert names[0] == names[1] != names[2]
