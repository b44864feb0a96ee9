"""Sweeps that are killed, and run again, beside a relay that delivers: neither lost nor brought back,
ever."""

from __future__ import annotations

import signal
import subprocess
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from relay.pipeline.cold.sweep_options import Swept
from relay.pipeline.spark.redis_target import Target
from relay.pipeline.spark.session import DRIVER_MEMORY
from tests.ghosts.slow_line import SlowLine
from tests.pipeline.cold_world import HOUR, LATE, ColdWorld
from tests.pipeline.small_jvm import QUICK
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

DURABLE = {"appendonly": "yes", "appendfsync": "always"}
TOPIC = "swept"
COUNT = 10_000
LATER = HOUR + HOUR // 2
LONGEST = 400.0
"""Seconds for a sweep on a busy machine."""


DUE = f"if(id % 2 = 1, -1000 * id, {LATER} + id)"
"""Every second one is due when it arrives, the others later than the test lasts."""


@pytest.fixture
def world(spark: SparkSession, stage: Stage, tmp_path: Path) -> ColdWorld:
    return ColdWorld(spark, stage.redis(config=DURABLE), tmp_path / "cold", TOPIC)


class Doomed:
    """Sweeps in processes of their own, each killed at its instant. Their sessions follow each other in one
    JVM, which takes long to start: when a driver has died its session ends, as its JVM would have."""

    def __init__(self, stage: Stage, world: ColdWorld) -> None:
        self._stage, self._world = stage, world
        conf = SparkConf(loadDefaults=False).set("spark.driver.memory", DRIVER_MEMORY)
        conf.set("spark.driver.extraJavaOptions", QUICK)
        launch: Any = launch_gateway
        self._gateway = launch(conf, {"stderr": subprocess.DEVNULL})

    def sweep(self, instant: str) -> None:
        """One that is killed. While it loads what is late does not come through to Redis: it is killed in the
        midst, and its workers, which live on, load no more."""
        parameters = self._gateway.gateway_parameters
        there = {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        }
        with SlowLine(self._world.server.port) as line:
            if instant == "loading":
                line.hold(LATE)
            arguments = line.url, str(self._world.path), TOPIC, instant
            process = self._stage.process(instant, "tests.pipeline.doomed_sweep", *arguments, settings=there)
            if instant == "loading":
                eventually(lambda: line.holds or not process.running, "what is late is held", LONGEST)
                process.signal(signal.SIGKILL)
            assert process.wait(LONGEST) == -9, process.output()[-3000:]
            self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate().stop()

    def close(self) -> None:
        self._gateway.shutdown()
        self._gateway.proc.kill()
        self._gateway.proc.wait()
        self._gateway.proc.stdin.close()


@pytest.fixture
def doomed(stage: Stage, world: ColdWorld) -> Iterator[Doomed]:
    doomed = Doomed(stage, world)
    yield doomed
    doomed.close()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_driver_that_is_killed_again_and_again(
    stage: Stage,
    world: ColdWorld,
    doomed: Doomed,
) -> None:
    """During planning, staging, loading and finalising; and a relay beside it delivers, cancels and
    reschedules between staging and loading. In the end each timer has come exactly once, or rests, or is
    where it was put."""
    relay = stage.relay()
    producer = stage.producer(relay)
    world.write_many(COUNT, DUE, late=f"id % 2 = 0 and id >= {COUNT // 2}")
    for instant in ("planning", "staging", "staged"):
        doomed.sweep(instant)
        assert world.cold.table.optimize(), "files are rewritten beside the plan"

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

    for instant in ("loading", "finalising"):
        doomed.sweep(instant)
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


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_worker_and_redis_are_killed(spark: SparkSession, stage: Stage, world: ColdWorld) -> None:
    """While batches are loaded: the sweep fails, and a later one finishes it; what has ended meanwhile stays
    away."""
    world.write_many(6000, f"{LATER} + id", late="id >= 3000")
    daemon = spark.sparkContext.getConf().get("spark.python.daemon.module")
    assert daemon is not None

    def kill_worker() -> None:
        """All of them: which one loads can't be seen."""
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # who has gone meanwhile
                if daemon in child.cmdline():
                    for worker in child.children():
                        worker.kill()

    def loaded(batches: int, line: SlowLine) -> bool:
        return line.holds and len(list(world.raw.hscan_iter(world.marks, match="b*"))) >= batches

    direct = world.target
    for kill in (kill_worker, stage.server.kill):
        failures: list[BaseException] = []

        def sweep(failures: list[BaseException] = failures) -> None:
            try:
                world.sweep(rate=6000.0)  # a batch at a time
            except Exception as failure:  # noqa: BLE001 (whichever of Spark's or ours)
                failures.append(failure)

        with SlowLine(stage.server.port) as line:
            line.hold(LATE)
            world.target = Target(line.url)
            thread = threading.Thread(target=sweep)
            thread.start()
            eventually(partial(loaded, 5, line), "some batches are loaded, and no more", LONGEST)
            kill()
            thread.join(LONGEST)
        assert failures, "the sweep did not notice"
    world.target = direct
    stage.server.start()
    gone = list(world.live())[:100]
    world.touch(*gone)
    swept = world.sweep()
    assert (swept.staged, swept.loaded, swept.batches) == (6000, 6000, 12)
    assert 5 <= swept.again <= 6
    assert set(world.live()) == {f"t{n}" for n in range(6000)} - set(gone)
    assert world.whole()
