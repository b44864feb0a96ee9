"""What a relay does between a sweep's staging and its loading; and what it would cost if it left no marks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.cold.sweep import Sweep
from tests.pipeline.cold_world import OPTIONS, ColdWorld
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

TOPIC = "raced"


@pytest.mark.parametrize("marks", [True, False], ids=["marks", "no marks"])
def test_what_ends_while_a_sweep_is_about_to_load(
    spark: SparkSession,
    stage: Stage,
    tmp_path: Path,
    marks: bool,
) -> None:
    """A delivery and a cancel, by a relay, of timers whose rows are staged: their rows are not loaded. With a
    relay whose scripts leave no marks the one is delivered again, and the other in spite of its cancel."""
    world = ColdWorld(spark, stage.redis(), tmp_path / "cold", TOPIC)
    relay = stage.relay(start=False)
    if not marks:
        relay.arguments = [sys.executable, "-m", "tests.pipeline.forgetful_relay", "serve"]
    relay.start()
    producer = stage.producer(relay)
    stage.application(relay, TOPIC)
    world.write([("delivered", -3), ("cancelled", -2), ("other", -1)])

    def meanwhile(step: str) -> None:
        if step != "load":
            return
        producer.schedule_many(TOPIC, ["delivered"], b"")
        eventually(lambda: stage.journal.ended() == {"delivered": 1}, "it is delivered")
        eventually(lambda: not world.live(), "and gone")
        assert not producer.cancel(TOPIC, "cancelled"), "it is not loaded yet"

    swept = Sweep(spark, world.cold, world.target, [TOPIC], OPTIONS, meanwhile).run()
    assert (swept.staged, swept.marked) == (3, 2 if marks else 0)
    eventually(lambda: "other" in stage.journal.ended(), "what is due is delivered")
    eventually(lambda: not world.live(), "all of it")
    once = {"delivered": 1, "other": 1}
    assert stage.journal.ended() == (once if marks else {"delivered": 2, "cancelled": 1, "other": 1})
    world.close()
