"""The names of hours as folders of a lake, in UTC whatever the session's time zone is."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f


def hour_of(instant: Column) -> Column:
    """Return the name of the hour of an instant in microseconds, such as `2026-12-01-09`."""
    # This divides whole numbers: after the year 2255 a double no longer distinguishes single microseconds.
    hours = f.call_function("div", instant, f.lit(3_600_000_000)).cast("int")
    moment = f.timestamp_add("HOUR", hours, f.lit("1970-01-01").cast("timestamp_ntz"))
    return f.date_format(moment, "yyyy-MM-dd-HH")
