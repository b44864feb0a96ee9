"""`relay pipeline journal --every` as a pod runs it: until SIGTERM, which is an orderly end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.journals import long_history, put
from tests.pipeline.small_jvm import SMALL_AND_QUICK, options
from tests.pipeline.test_journal_lake import assert_holds, commits, job, ran
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

COMMAND = """
import signal
from relay.cli import main
from relay.pipeline.lake.journal_lake import Lake
append, calls = Lake.append, []

def held(batches):
    yield next(iter(batches))
    signal.pause()

def second_is_held(self, rows, after):
    calls.append(after)
    return append(self, rows.mapInArrow(held, rows.schema) if len(calls) == 2 else rows, after)

Lake.append = second_is_held
main()
"""
"""The command, whose second batch stands still when a part of its rows is in a file."""


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_sigterm_is_an_orderly_end(
    spark: SparkSession, valkey: RunningServer, keyspace: Keyspace, tmp_path: Path
) -> None:
    """Also within a batch: it exits with 0, says what it stored, and the next run stores the rest, each
    record exactly once."""
    topic, journal = keyspace.topic(), long_history(range(4))
    lake = tmp_path / "lake"

    def begun() -> int:
        return len(list(lake.glob("*.parquet")))

    one_file = {"spark.default.parallelism": "1"}  # for each commit
    conf = {**SMALL_AND_QUICK, **one_file, "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", COMMAND, "pipeline", "journal", "--json", "--master", "local[1]"),
            *("--lake", str(lake), "--topic", topic, "--every", "1s", "--max-records", "40"),
            *options(conf),
        ],
        env={**os.environ, "RELAY_REDIS__URL": valkey.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        put(valkey, topic, journal[:10])
        eventually(lambda: commits(lake) > 0 or process.poll() is not None, "what is there is stored", 400.0)
        put(valkey, topic, journal[10:])
        eventually(lambda: begun() > commits(lake), "a batch is being written", 400.0)
        process.send_signal(signal.SIGTERM)
        told, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, said[-3000:]
    summary = json.loads(told)
    assert summary["ok"]
    assert "Traceback" not in said, said[-3000:]
    assert summary["records"] > 0
    ran(spark, job(tmp_path, valkey, topic, options={"maxRecordsPerTrigger": "1000"}))
    assert_holds(spark, tmp_path, topic, journal)
