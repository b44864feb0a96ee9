"""A stream in a process of its own, which somebody kills.

python -m tests.pipeline.doomed_stream URL PLACE RATE
"""

from __future__ import annotations

import sys
from pathlib import Path

from relay.pipeline.spark.session import session
from tests.pipeline.small_jvm import SMALL_AND_QUICK
from tests.pipeline.streams import Stream
from tests.worlds.waiting import PATIENCE

if __name__ == "__main__":
    url, place, rate = sys.argv[1:]
    spark = session("doomed", master="local[2]", conf=SMALL_AND_QUICK)
    Stream(spark, url, Path(place)).run(files=2, max_rate=rate, timeout=str(PATIENCE))
