"""Compaction and retention: a cold store stays small, and holds the same timers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from relay.pipeline.audit import presence
from relay.pipeline.cold import compaction
from relay.pipeline.cold.plans import COMPACTION, Plan, Plans
from relay.pipeline.cold.sweep import Swept, now
from tests.pipeline.cold_world import HOUR, ColdWorld

if TYPE_CHECKING:
    pass

SOON, LATER = HOUR // 2, 30 * HOUR


def resting(world: ColdWorld) -> int:
    """Files that no plan has taken."""
    settled = world.cold.settled(world.cold.writes())
    return len(Plans(world.cold.files, world.topic).holdings(settled).resting)


def test_a_store_is_compacted(world: ColdWorld) -> None:
    """What was replaced or cancelled goes; a late write of an older version still doesn't win; and then what
    was taken is removed, and nothing of it comes back."""
    old = world.version()
    world.write([("a", SOON), ("b", SOON), ("c", LATER)], "old")
    world.write([("a", SOON + 1), ("d", LATER)], "new")
    world.cancel("b")
    assert compaction.compact(world.cold, world.topic, 9) is None, "too few to care"
    assert compaction.compact(world.cold, world.topic, 2) == (5, 2)
    assert resting(world) == 2
    world.write([("b", SOON), ("a", SOON)], "late", version=old)
    assert world.sweep() == Swept(planned=3, staged=1, loaded=1, batches=1)
    assert world.live() == {"a": SOON + 1}
    world.touch("a")

    kept = compaction.retain(world.cold, now(world.target), keep=0)
    assert (kept.files_removed, kept.writes_removed) == (6, 4)
    assert compaction.retain(world.cold, now(world.target), keep=0).files_removed == 0
    assert world.sweep(horizon=40 * HOUR).loaded == 2
    assert world.live() == {"c": LATER, "d": LATER}
    world.touch("c", "d")
    compaction.retain(world.cold, now(world.target), keep=0)
    assert world.sweep(horizon=None) == Swept()
    assert world.live() == {}


def test_hours_that_were_swept_and_removed(world: ColdWorld) -> None:
    """The write's other hours are swept as before; and an audit takes for resting only what rests."""
    world.write([("a", SOON), ("moved", LATER), ("z", LATER)])
    world.write([("moved", SOON), ("y", 40 * HOUR)])
    assert world.sweep().loaded == 2
    world.touch("a", "moved")
    kept = compaction.retain(world.cold, now(world.target), keep=0)
    assert (kept.files_removed, kept.writes_removed) == (1, 0), "what replaced a row that rests is kept"
    asked = [world.topic, "nobody's"]
    found = presence.resting(world.spark, str(world.path), asked)
    assert {(row.topic, row.timer_id) for row in found.collect()} == {(world.topic, "z"), (world.topic, "y")}
    assert presence.resting(world.spark, str(world.path), []).isEmpty()
    assert world.sweep(horizon=35 * HOUR) == Swept(planned=2, staged=1, loaded=1, batches=1)
    assert world.live() == {"z": LATER}
    assert compaction.retain(world.cold, now(world.target), keep=0).writes_removed == 1
    assert world.sweep(horizon=None).loaded == 1


def test_a_compaction_that_was_killed(world: ColdWorld) -> None:
    """It left a plan: the next sweep gives that up, and takes the rows from where they were."""
    world.write([("a", SOON)])
    world.write([("b", SOON)])
    mine = Plans(world.cold.files, world.topic)
    holdings = mine.holdings(world.cold.settled(world.cold.writes()))
    assert mine.begin(Plan(1, world.topic, "", "", 0, tuple(holdings.resting), (), COMPACTION))
    assert compaction.compact(world.cold, world.topic, 2) is None, "a plan is open"
    assert world.sweep().loaded == 2
    assert world.live() == {"a": SOON, "b": SOON}


def test_what_killed_jobs_left_is_removed(world: ColdWorld) -> None:
    """Folders that no manifest names, once they are old; and nothing else."""
    write = world.write([("a", SOON)])
    world.cold.files.publish("data/left/x.parquet", "")
    world.cold.files.publish(f"staged/topic={world.topic}/00000001-x/y.parquet", "")
    assert compaction.orphans(world.cold, 3600, time.time()) == 0
    assert world.sweep().loaded == 1
    assert compaction.orphans(world.cold, 0, time.time() + 60) == 2
    assert world.cold.files.names("data") == [write.name]
