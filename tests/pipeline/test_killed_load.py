"""A load that is killed and repeated beside a relay that delivers: each timer comes once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from relay.pipeline.inputs.sources import Source
from relay.pipeline.jobs import job
from relay.pipeline.jobs import schedule as schedule_job
from relay.pipeline.jobs.schedule import Schedule
from relay.pipeline.spark.redis_target import Target
from relay.store.keys import KeyNames
from tests.ghosts.slow_line import SlowLine
from tests.pipeline import doomed
from tests.pipeline.cold_world import LATE
from tests.pipeline.small_jvm import SMALL_AND_QUICK, options
from tests.pipeline.unhurried import UNHURRIED
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TOPIC, RUN, COUNT = "loaded", "spring", 6000
HALF = COUNT // 2
FAR = "2090-01-01T00:00:00Z"


@pytest.mark.timeout(1800)
def test_a_load_that_is_killed_and_repeated(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    """Half of the timers are due as they arrive. The second half of the rows does not come through to Redis,
    and meanwhile the load is killed. The relay delivers those that have arrived; of the others some are
    cancelled and some moved. The repeated load inserts the rest: none is delivered twice or missing, and what
    was cancelled or moved stays so."""
    server = stage.redis()
    export = tmp_path / "export.csv"
    rows = [
        f"t{n},{'2026-01-01T00:00:00Z' if n % 2 else FAR},{LATE if n >= HALF else 'x'}" for n in range(COUNT)
    ]
    export.write_text("timer_id,due_time,payload\n" + "\n".join(rows) + "\n")
    relay = stage.relay()
    producer = stage.producer(relay)
    stage.application(relay, TOPIC)
    timeline, ledger = KeyNames().of(TOPIC)[0], KeyNames().key("ledger", TOPIC, run=RUN)
    raw = server.client()

    def inserted() -> set[bytes]:
        found: Any = raw.smembers(ledger)
        return set(found)

    with SlowLine(server.port) as line:
        line.hold(LATE)
        driver = stage.process(
            "doomed", "relay.cli", "pipeline", "schedule", str(export), "--topic", TOPIC, "--run-id", RUN,
            "--max-rate", "1000", "--master", "local[2]", *options(SMALL_AND_QUICK),
            settings={"RELAY_REDIS__URL": line.url, **UNHURRIED},
        )  # fmt: skip
        eventually(
            lambda: line.holds and len(inserted()) >= 500,
            "some timers are inserted, and what is late is held",
            doomed.LONGEST,
        )
        doomed.kill(driver, line, server)
    first = {name.decode() for name in inserted()}
    assert 500 <= len(first) <= HALF, "the load was killed in the middle"
    due = {f"t{n}" for n in range(1, COUNT, 2)}
    eventually(lambda: set(stage.journal.ended()) == first & due, "what arrived is delivered", 120.0)
    living = sorted(first - due)
    cancelled, moved = living[:20], living[20:40]
    assert all(producer.cancel(TOPIC, name) for name in cancelled)
    producer.schedule_many(TOPIC, moved, b"", delay=7200.0)
    scores = {name: raw.zscore(timeline, name) for name in moved}

    asked = Schedule(Target(server.url), Source(str(export), constants={"topic": TOPIC}), run_id=RUN)
    summary = job.run("schedule", lambda spark, bar: schedule_job.run(spark, bar, asked), job.Running())
    counts = summary.counts
    assert (counts["written"], counts["skipped_by_ledger"]) == (COUNT - len(first), len(first))
    eventually(lambda: set(stage.journal.ended()) >= due, "all that is due is delivered", 120.0)
    eventually(lambda: not stage.leased(TOPIC), "and committed")
    assert set(stage.journal.ended()) == due
    assert set(stage.journal.ended().values()) == {1}, "a timer was delivered twice"
    left: Any = raw.zrange(timeline, 0, -1)
    assert {name.decode() for name in left} == {f"t{n}" for n in range(0, COUNT, 2)} - set(cancelled)
    assert {name: raw.zscore(timeline, name) for name in moved} == scores
    raw.close()
