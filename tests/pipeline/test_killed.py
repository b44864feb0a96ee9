"""Sweeps that are killed, and run again, beside a relay that delivers: neither lost nor brought back,
ever."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from relay.pipeline.cold.sweep import Swept
from tests.e2e.conftest import Stage, stage  # noqa: F401 (a fixture)
from tests.e2e.processes import Process, eventually
from tests.pipeline.cold_world import HOUR, ColdWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DURABLE = {"appendonly": "yes", "appendfsync": "always"}
TOPIC = "swept"
COUNT = 20_000
LATER = HOUR + HOUR // 2


DUE = f"if(id % 2 = 1, -1000 * id, {LATER} + id)"
"""Every second one is due when it arrives, the others later than the test lasts."""


@pytest.fixture
def world(spark: SparkSession, stage: Stage, tmp_path: Path) -> ColdWorld:  # noqa: F811
    return ColdWorld(spark, stage.redis(config=DURABLE), tmp_path / "cold", TOPIC)


class Doomed:
    """Sweeps in processes of their own, each killed at its instant. A session takes long to start: each
    process does so while the one before it is at work."""

    def __init__(self, stage: Stage, world: ColdWorld, *instants: str) -> None:  # noqa: F811
        self._stage, self._world, self._instants = stage, world, list(instants)
        self._ready = self._start()

    def _start(self) -> tuple[Process, Path]:
        instant = self._instants.pop(0)
        gate = self._stage.directory / f"gate-{instant}"
        arguments = self._world.target.url, str(self._world.path), TOPIC, instant, str(gate)
        return self._stage.process(instant, "tests.pipeline.doomed_sweep", *arguments), gate

    def next(self) -> None:
        """Let the next one sweep until it is killed."""
        process, gate = self._ready
        gate.touch()
        if self._instants:
            self._ready = self._start()
        assert process.wait(300) == -9, process.output()[-3000:]


@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_again_and_again(stage: Stage, world: ColdWorld) -> None:  # noqa: F811
    """During planning, staging, loading and finalising; and a relay beside it delivers, cancels and
    reschedules between staging and loading. In the end each timer has come exactly once, or rests, or is
    where it was put."""
    relay = stage.relay()
    producer = stage.producer(relay)
    doomed = Doomed(stage, world, "planning", "staging", "staged", "loading", "finalising")
    world.write_many(COUNT, DUE)
    for _ in ("planning", "staging", "staged"):
        doomed.next()

    delivered, cancelled, moved = ([f"t{n}" for n in range(start, 2000, 40)] for start in (1, 2, 3))
    stage.application(relay, TOPIC)
    producer.schedule_many(TOPIC, delivered, b"")
    eventually(
        lambda: set(stage.journal.ended()) == set(delivered), "what the application scheduled is delivered"
    )
    eventually(lambda: not world.live(), "and gone")
    assert not any(producer.cancel(TOPIC, name) for name in cancelled), "nothing is loaded yet"
    producer.schedule_many(TOPIC, moved, b"", delay=2 * HOUR / 1e6)
    kept = {name: after for name, after in world.live().items() if name in moved}
    assert len(kept) == len(moved)

    for _ in ("loading", "finalising"):
        doomed.next()
    assert world.sweep() == Swept(), "nothing was left to do"

    awaited = {f"t{n}" for n in range(COUNT) if n % 2} - set(moved) - set(cancelled)
    eventually(lambda: set(stage.journal.ended()) >= awaited, "all that is due is delivered", 120.0)
    eventually(lambda: not stage.leased(TOPIC), "and committed")
    assert set(stage.journal.ended()) == awaited, "a cancelled or moved timer was delivered"
    assert set(stage.journal.ended().values()) == {1}, "a timer was brought back"
    resting = {f"t{n}" for n in range(0, COUNT, 2)} - set(cancelled)
    assert {name: after for name, after in world.live().items() if name in moved} == kept
    assert set(world.live()) == resting | set(moved), "a timer was lost, or brought back"
    assert world.whole()


def test_a_worker_and_redis_are_killed(spark: SparkSession, stage: Stage, world: ColdWorld) -> None:  # noqa: F811
    """While batches are loaded: the sweep fails, and a later one finishes it; what has ended meanwhile stays
    away."""
    world.write_many(6000, f"{LATER} + id")

    def kill_worker() -> None:
        """All of them: which one loads can't be seen."""
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # who has gone meanwhile
                if "relay.pipeline.workers" in child.cmdline():
                    for worker in child.children():
                        worker.kill()

    def loaded(batches: int) -> bool:
        return len(list(world.raw.hscan_iter(world.marks, match="b*"))) >= batches

    for kill, batches in ((kill_worker, 3), (stage.server.kill, 6)):
        failures: list[BaseException] = []

        def sweep(failures: list[BaseException] = failures) -> None:
            try:
                world.sweep(rate=600.0)
            except Exception as failure:  # noqa: BLE001 (whichever of Spark's or ours)
                failures.append(failure)

        thread = threading.Thread(target=sweep)
        thread.start()
        eventually(partial(loaded, batches), "some batches are loaded")
        kill()
        thread.join(120)
        assert failures, "the sweep did not notice"
    stage.server.start()
    gone = list(world.live())[:100]
    world.touch(*gone)
    swept = world.sweep()
    assert (swept.staged, swept.loaded, swept.batches) == (6000, 6000, 12)
    assert swept.again >= 6
    assert set(world.live()) == {f"t{n}" for n in range(6000)} - set(gone)
    assert world.whole()
