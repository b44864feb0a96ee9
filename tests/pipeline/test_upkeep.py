"""Upkeep: a cold store stays small, and holds the same timers; other engines read it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest
from deltalake import DeltaTable

from relay.pipeline.audit import presence
from relay.pipeline.cold import staging, upkeep
from relay.pipeline.cold.plans import Plan
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import now
from relay.pipeline.cold.sweep_options import Swept
from relay.pipeline.cold.table import TableGone
from relay.pipeline.cold.upkeep import forget
from relay.pipeline.jobs import forget as forget_job
from relay.pipeline.jobs.forget import Forget
from relay.pipeline.spark.session import configured
from tests.pipeline.cold_world import HOUR, ColdWorld

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SOON, LATER = HOUR // 2, 30 * HOUR


def retain(world: ColdWorld, share: int = 1 << 40) -> int:
    return upkeep.retain(world.cold, now(world.target), keep=0, share=share)


def rows(world: ColdWorld) -> list[str]:
    """The ids of all rows, whatever they are."""
    return sorted(row["timer_id"] for row in world.cold.table.rows().collect())


def test_what_is_over_goes(world: ColdWorld) -> None:
    """A timer's rows go together, once its latest was taken or is a cancel; what replaced a row that rests is
    kept no longer than that row. Nothing of it comes back, also by a late write of an older version."""
    old = world.version()
    world.write([("a", SOON), ("b", SOON), ("c", LATER), ("moved", LATER)], "old")
    world.write([("a", SOON + 1), ("d", LATER), ("moved", SOON)], "new")
    world.cancel("b")
    world.sweep()
    assert set(world.live()) == {"a", "moved"}
    world.touch("a", "moved")
    assert retain(world) == 0, "a write that has begun is older than all of them"
    world.write([("b", SOON), ("a", SOON)], "late", version=old)
    assert world.sweep() == Swept(planned=2, staged=0)
    assert retain(world, share=1) == 0, "they are not all that is there"
    assert retain(world) == 8
    assert rows(world) == ["c", "d"]
    assert retain(world) == 0
    assert world.sweep(horizon=10**20).loaded == 2
    assert world.live() == {"c": LATER, "d": LATER}


def test_what_rests_is_told_from_what_was_taken(world: ColdWorld) -> None:
    """By an audit too; also where rows were replaced, and before and after they are deleted."""
    world.write([("a", SOON), ("moved", LATER), ("z", LATER)])
    world.write([("moved", SOON), ("y", 40 * HOUR)])
    assert world.sweep().loaded == 2
    world.touch("a", "moved")
    expected = {(world.topic, "z"), (world.topic, "y")}
    for _ in range(2):
        found = presence.resting(world.spark, str(world.path), [world.topic, "nobody's"])
        assert {(row.topic, row.timer_id) for row in found.collect()} == expected
        retain(world)
    assert rows(world) == ["y", "z"]
    assert presence.resting(world.spark, str(world.path), []).isEmpty()
    assert world.sweep(horizon=35 * HOUR) == Swept(planned=1, staged=1, loaded=1, batches=1)


def test_files_are_merged_beside_a_sweep(world: ColdWorld) -> None:
    """While it has planned and not staged: it reads the version that its plan names, and loads each timer
    once; the next one reads the merged files."""
    for n in range(3):
        world.write([(f"a{n}", SOON), (f"z{n}", LATER)])

    def meanwhile(step: str) -> None:
        if step == "stage":
            assert upkeep.compact(world.cold, 2) == (3, 1)

    assert world.sweeper(step=meanwhile).run().loaded == 3
    assert world.sweep(horizon=None).loaded == 3
    assert set(world.live()) == {f"{name}{n}" for name in "az" for n in range(3)}


def test_a_version_whose_files_are_gone(world: ColdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep was killed before it staged, and somebody has removed what its plan reads: that is given up,
    and the next plan keeps its marks."""
    for n in range(2):
        world.write([(f"a{n}", SOON)])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(staging, "stage", die)
        with pytest.raises(KeyboardInterrupt):
            world.sweep()
    world.touch("a0")
    upkeep.compact(world.cold, 2)
    with configured(world.spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        world.cold.table._table().vacuum(0)
    plan = world.cold.plans.plan(1)
    assert isinstance(plan, Plan)
    with pytest.raises(TableGone):
        staging.stage(world.cold, plan, world.target)
    swept = world.sweep()
    assert (swept.abandoned, swept.loaded, swept.marked) == (1, 1, 1)
    assert set(world.live()) == {"a1"}
    assert world.whole()


def test_an_append_that_nobody_committed(world: ColdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer was killed between its rows and its manifest: they are no timers, replace none, and cancel
    none; once they are old they go."""
    world.write([("a", SOON), ("b", SOON)], "old")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ColdStore, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            world.write([("a", SOON + 5), ("x", SOON)], "new")
        with pytest.raises(KeyboardInterrupt):
            world.cancel("b")
    assert world.sweep().loaded == 2
    assert world.live() == {"a": SOON, "b": SOON}
    assert presence.resting(world.spark, str(world.path), [world.topic]).isEmpty()
    later = now(world.target) + upkeep.DEAD + 60_000_000
    kept = upkeep.keep_small(world.cold, later, keep=0)
    assert (kept.rows_removed, kept.writes_removed) == (2, 3)
    assert rows(world) == []


def test_other_engines_read_it(world: ColdWorld, tmp_path: Path) -> None:
    """Rust's reader and DuckDB see what Spark sees, also when files were merged and rows deleted."""
    world.write([("a", SOON), ("b", SOON), ("z", LATER)], "x")
    world.cancel("b")
    world.sweep()
    world.touch("a")
    retain(world)
    upkeep.compact(world.cold, 2)
    world.write([("y", LATER)], "y")
    read = DeltaTable(str(world.path / "timers")).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        found = connection.execute("select timer_id, due_us from read order by timer_id").fetchall()
    assert found == [("y", world.at + LATER), ("z", world.at + LATER)]
    assert read.count_rows() == len(rows(world)) == 2


def test_timers_are_forgotten(world: ColdWorld) -> None:
    """Their rows go, whatever became of them, and nothing comes back; others are left alone."""
    slow = world.version()
    world.write([("user-1", SOON), ("user-2", LATER), ("other", LATER)])
    world.write([("user-1", LATER)])
    world.cancel("user-1", "user-2")
    users = Forget(world.topic, cold=str(world.path), prefixes=("user-",))
    told = forget_job.run(world.spark, None, replace(users, dry_run=True))
    assert told.counts == {"cold_rows": 3}
    assert forget(world.cold, users.timers) == 3, "the cancels hold off what is under way"
    assert rows(world) == ["other", "user-1", "user-2"]
    world.write([("user-1", SOON)], version=slow)
    assert world.sweep(horizon=None).loaded == 1
    assert world.live() == {"other": LATER}
    named = Forget(world.topic, cold=str(world.path), ids=("user-1", "user-2", "nobody"))
    assert forget_job.run(world.spark, None, named).counts == {"cold_rows": 3}
    assert rows(world) == ["other"]
    assert forget_job.run(world.spark, None, replace(named, topic="elsewhere", ids=("other",))).counts == {
        "cold_rows": 0
    }
