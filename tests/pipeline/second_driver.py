"""Another driver of a cold store, in a process of its own: it writes each timer that is named on its standard
input, in a write of its own, and says so.

    python -m tests.pipeline.second_driver REDIS COLD TOPIC DUE_US CONF

CONF is Spark's configuration as JSON.
"""

from __future__ import annotations

import json
import sys

from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import now
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import session
from relay.store.codec import envelope
from tests.pipeline.cold_world import ROWS


def main(url: str, path: str, topic: str, due_us: str, conf: str) -> None:
    target, spark = Target(url), session("second", master="local[1]", conf=json.loads(conf))
    cold, stored = ColdStore(spark, path), envelope.encode(b"second", {}, "")
    print("ready", flush=True)
    for line in sys.stdin:
        name = line.strip()
        rows = spark.createDataFrame([(topic, name, int(due_us), None, stored)], ROWS)
        write = cold.write(rows, cold.version(now(target)))
        assert write is not None
        retire(cold, target, write)
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
