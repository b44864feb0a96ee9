"""A cold store of the first format moves into a table: what rests, and nothing else, wherever that is
killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from relay.core.errors import InvalidField
from relay.pipeline.cold import old_store, upkeep
from relay.pipeline.cold.old_store import Moved, OldStore
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.table import Table
from relay.pipeline.jobs import migrate_cold
from relay.pipeline.jobs.migrate_cold import MigrateCold
from relay.pipeline.spark.files import Files
from tests.pipeline.cold_world import HOUR, ColdWorld

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

SOON, LATER = HOUR // 2, 30 * HOUR


class Old:
    """A store as the first releases wrote it: versions are small numbers."""

    def __init__(self, world: ColdWorld, path: Path) -> None:
        self.world, self.path = world, path
        self.files = Files(world.spark, str(path))

    def write(self, version: int, timers: dict[str, int | None], *, settled: bool = True) -> list[str]:
        """Write timers, each with its due time or None for a cancel, a file for each hour."""
        found = []
        for hour in sorted({-1 if due is None else due // HOUR for due in timers.values()}):
            some = [(k, due) for k, due in timers.items() if (-1 if due is None else due // HOUR) == hour]
            rows = self.world.rows([(name, due or 0) for name, due in some], f"of {version}")
            cancels = f.lit(hour == -1)
            table = rows.select(
                "timer_id",
                f.lit(version).cast("long").alias("version"),
                f.when(~cancels, f.col("due_us")).alias("due_us"),
                "expires_us",
                f.when(~cancels, f.col("envelope")).alias("envelope"),
            ).coalesce(1)
            folder = f"data/w{version}/topic={self.world.topic}/due_hour={hour}"
            table.write.parquet(str(self.path / folder))
            (file,) = (self.path / folder).glob("*.parquet")
            found.append(f"{folder}/{file.name}")
        files = [{"name": name, "topic": self.world.topic, "hour": ""} for name in found]
        name = f"{version:019d}-w{version}.json"
        document = {"version": version, "name": f"w{version}", "files": files}
        self.files.publish(f"commits/{name}", json.dumps(document))
        if settled:
            self.files.publish(f"settled/{name}", "{}")
        return found

    def plan(self, number: int, kind: str, consumed: list[str] | None) -> None:
        folder = f"plans/topic={self.world.topic}/{number:08d}"
        self.files.publish(f"{folder}/plan.json", json.dumps({"kind": kind, "topic": self.world.topic}))
        if consumed is not None:
            self.files.publish(f"{folder}/done.json", json.dumps({"consumed": consumed}))


@pytest.fixture
def old(world: ColdWorld, tmp_path: Path) -> Old:
    """What was taken, replaced, cancelled; what rests; and a write that was not settled."""
    old = Old(world, tmp_path / "old")
    first = old.write(
        1, {"taken": SOON, "moved": LATER, "cancelled": LATER, "rests": LATER, "again": LATER, "lives": LATER}
    )
    second = old.write(2, {"moved": SOON, "cancelled": None})
    old.plan(1, "sweep", [first[0], second[1]])
    old.plan(2, "compaction", None)
    old.write(3, {"again": LATER + 1, "lives": None, "new": LATER}, settled=False)
    return old


def moved(old: Old) -> Moved:
    return old_store.move(OldStore(old.world.spark, str(old.path)), old.world.cold)


@pytest.mark.chaos
def test_what_rests_is_moved(old: Old) -> None:
    """And comes once; a write that was not settled is finished by a sweep, and then comes, too."""
    world = old.world
    job = MigrateCold(str(old.path), str(world.path))
    told = migrate_cold.run(world.spark, None, replace(job, dry_run=True))
    assert told.counts == {"topics": 1, "rows": 4}
    told = migrate_cold.run(world.spark, None, job)
    assert told.counts == {"topics": 1, "rows": 1, "unfinished_writes": 1}
    assert [write.topics for write in world.cold.state().unsettled] == [{world.topic: 3}]
    assert moved(old) == Moved(topics=1, rows=1, unsettled=1), "a second move brings nothing"
    swept = world.sweep(horizon=None)
    assert (swept.loaded, swept.finished) == (3, 1)
    assert world.live() == {"rests": LATER, "again": LATER + 1, "new": LATER}
    assert [world.payload_of(name) for name in ("rests", "again")] == ["of 1", "of 3"]


@pytest.mark.chaos
@pytest.mark.parametrize("killed", [(ColdStore, "commit"), (Table, "append"), (ColdStore, "settle")])
@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
def test_a_move_that_is_killed(
    old: Old, monkeypatch: pytest.MonkeyPatch, killed: tuple[type, str], behind: bool
) -> None:
    """Run again, it goes on: each row is there once. An upkeep meanwhile takes nothing of it for dead."""
    where, name = killed
    step: Callable[..., object] = getattr(where, name)

    def die(*args: object) -> None:
        if behind:
            step(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(where, name, die)
        with pytest.raises(KeyboardInterrupt):
            moved(old)
    upkeep.keep_small(old.world.cold, old.world.at, keep=0)
    moved(old)
    assert sorted(row.timer_id for row in old.world.cold.table.rows().collect()) == [
        "again",
        "lives",
        "new",
        "rests",
    ]
    assert old.world.sweep(horizon=None, silent=0).loaded == 3
    assert set(old.world.live()) == {"rests", "again", "new"}


@pytest.mark.chaos
def test_two_stores_move_into_one(old: Old, tmp_path: Path) -> None:
    """One after the other."""
    other = Old(old.world, tmp_path / "other")
    other.write(7, {"of another": LATER})
    assert (moved(old).rows, moved(other).rows, moved(other).rows) == (1, 1, 1)
    assert old.world.sweep(horizon=None, silent=0).loaded == 4


@pytest.mark.chaos
def test_a_move_into_a_store_that_is_in_use(old: Old) -> None:
    """What is there is newer, and wins; nothing is left behind."""
    old.world.write([("rests", SOON), ("other", SOON)])
    assert moved(old).rows == 1
    assert old.world.sweep(horizon=None, silent=0).loaded == 4
    assert old.world.live() == {"rests": SOON, "other": SOON, "again": LATER + 1, "new": LATER}


@pytest.mark.chaos
def test_a_move_that_is_killed_before_it_settles(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one settles what has come: a sweep that finished it would retire timers that came to Redis
    since."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ColdStore, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            moved(old)
    assert moved(old) == Moved(topics=1, rows=1, unsettled=1)
    assert [write.topics for write in old.world.cold.state().unsettled] == [{old.world.topic: 3}]


@pytest.mark.chaos
def test_a_sweep_that_was_not_finished(old: Old) -> None:
    """What it has loaded is known to its release alone."""
    old.plan(3, "sweep", None)
    with pytest.raises(InvalidField, match="unfinished sweep"):
        moved(old)


def test_stores_that_are_none(old: Old, tmp_path: Path) -> None:
    """An old store where a new one is meant, and the other way round, and one for both."""
    spark, path = old.world.spark, str(old.path)
    with pytest.raises(InvalidField, match="migrate-cold"):
        ColdStore(spark, path).state()
    for job, why in (
        (MigrateCold(path, f"{path}/"), "another folder"),
        (MigrateCold(str(tmp_path / "x"), path), "no rows"),
    ):
        with pytest.raises(InvalidField, match=why):
            migrate_cold.run(spark, None, job)
