"""Topics of several partitions are read whole, or refused: no timer is missing, and none comes twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf

from relay.core.errors import InvalidField
from relay.core.instants import SECOND
from relay.pipeline.jobs import job, restore, snapshot
from relay.pipeline.jobs.restore import Restore
from relay.pipeline.jobs.snapshot import Snapshot
from relay.pipeline.timers_source import TimersDataSource, TimersReader
from relay.store.bulk import layouts, scanning
from relay.store.bulk.scanning import cut, read
from tests.pipeline.laid_out import DUE, LaidOut, laid_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

IDS = [f"t{n}" for n in range(800)]
AT = datetime.fromtimestamp(DUE // SECOND, UTC)


@pytest.fixture
def world(valkey: RunningServer, topic: str) -> Iterator[LaidOut]:
    """A topic of eight partitions with 800 timers and more, ten of which are leased."""
    with laid_out(valkey.url, topic, [valkey]) as made:
        filled(made)
        yield made


def filled(world: LaidOut) -> None:
    world.load(IDS)
    world.due([f"due{n}" for n in range(10)])
    assert len(world.lease()) == 10


ALL = {*IDS, *(f"due{n}" for n in range(10))}


# ------------------------------------------------------------------------------- while topics move


def there_and_back(world: LaidOut) -> None:
    world.move(16)
    world.move(8)


MOVES: dict[str, Callable[[LaidOut], object]] = {
    "doubled": lambda world: world.move(16),
    "halved": lambda world: world.move(4),
    "there and back": there_and_back,
}
PARTLY: dict[str, Callable[[LaidOut], object]] = {
    "begun": lambda world: world.begin(16),
    "some have gone to new ones": lambda world: world.carry_some(16),
    "some have gone to old ones": lambda world: world.carry_some(4),
}
"""Moves of which a read may be over before they have come to anything that is left to be read."""


@pytest.mark.parametrize("bounds", [{}, {"low": 1, "high": SECOND}], ids=["all", "what was due"])
@pytest.mark.parametrize("move", [*MOVES, *PARTLY])
@pytest.mark.parametrize("before", [0, 4, 7])
def test_a_topic_that_moves_while_it_is_read(
    world: LaidOut, monkeypatch: pytest.MonkeyPatch, before: int, move: str, bounds: dict[str, int]
) -> None:
    """The race: between the cut and any of its parts the topic moves, in part or whole. Then what is read is
    whole, or the read is refused by the topic's name."""
    monkeypatch.setattr(scanning, "LEAST", 1)
    found: list[set[str]] = []
    with world.target.open() as store:
        slices = cut(store, world.topic, 8, **bounds)
        refused = False
        for number, part in enumerate(slices):
            if number == before:
                (MOVES | PARTLY)[move](world)
            try:
                pages = list(read(store, part, envelopes=True))
            except InvalidField as refusal:
                refused = "has got another number of partitions while it was read" in refusal.problem
                break
            found.append({name.decode() for page in pages for name in page.timer_ids})
    expected = {name for name in ALL if name.startswith("due")} if bounds else ALL
    assert refused or sum(map(len, found)) == len(expected)
    assert refused or set().union(*found) == expected
    assert refused or move in PARTLY, "a whole move, and nobody has noticed"


def test_leases_that_have_gone_elsewhere(world: LaidOut) -> None:
    """The race: what was due and is leased is looked for in lease records, by a command that knows nothing of
    layouts. A partition whose records have all gone is not taken for one that had none."""
    with world.target.open() as store:
        slices = [part for part in cut(store, world.topic, 8, low=1, high=SECOND) if part.due]
        assert len(slices) == 8
        world.move(16)
        for part in slices:
            with pytest.raises(InvalidField, match="has got another number of partitions"):
                list(read(store, part, envelopes=True))


def test_a_topic_that_moves_is_refused(world: LaidOut) -> None:
    world.begin(16)
    told = r"^topic: '[\w-]+' moves from 8 to 16 partitions; begin again"
    with world.target.open() as store, pytest.raises(InvalidField, match=told):
        cut(store, world.topic, 8)


@pytest.mark.parametrize("bounds", [{}, {"low": 1, "high": SECOND}], ids=["all", "what was due"])
def test_a_topic_that_gets_a_layout_while_it_is_read(
    valkey: RunningServer, topic: str, bounds: dict[str, int]
) -> None:
    with laid_out(valkey.url, topic, [valkey], 1) as world:
        filled(world)
        with world.target.open() as store:
            slices = cut(store, topic, 4, **bounds)
            world.move(2)
            for part in slices:
                with pytest.raises(InvalidField, match="has got another number of partitions"):
                    list(read(store, part, envelopes=True))


# ------------------------------------------------------------------------------------ what Spark reads


@pytest.mark.parametrize("count", [2, 64])
def test_all_partitions(spark: SparkSession, valkey: RunningServer, topic: str, count: int) -> None:
    """All that there is, and what was due: leases stand elsewhere."""
    with laid_out(valkey.url, topic, [valkey], count) as world:
        filled(world)
        rows = table(spark, world, partitions="4").select("topic", "timer_id", "state")
        found = rows.collect()
        assert sorted(row.timer_id for row in found) == sorted(ALL)
        assert {row.topic for row in found} == {topic}
        due = table(spark, world).where(sf.col("due_time") < sf.lit(AT - timedelta(hours=1)))
        leased = due.select("timer_id", "state").collect()
        assert {(row.timer_id, row.state) for row in leased} == {(name, "leased") for name in ALL - set(IDS)}


@pytest.mark.parametrize(
    ("count", "wanted", "tasks"), [(1, 4, 4), (2, 4, 4), (2, 1, 1), (8, 4, 4), (64, 8, 8), (8, 20, 16)]
)
def test_tasks(
    valkey: RunningServer,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    wanted: int,
    tasks: int,
) -> None:
    """As many as were asked for: large partitions are cut, and small ones read by one task."""
    monkeypatch.setattr(scanning, "LEAST", 1)
    with laid_out(valkey.url, topic, [valkey], count) as world:
        world.load(IDS)
        reader = TimersReader(world.target, [topic], ["timer_id"], partitions=wanted, envelopes=False)
        parts = reader.partitions()
        assert len(parts) == tasks
        assert {each.partition for part in parts for each in part.slices} == set(world.layout.partitions)


def table(spark: SparkSession, world: LaidOut, **options: str) -> DataFrame:
    spark.dataSource.register(TimersDataSource)
    given = {**world.target.options(), "topic": world.topic, **options}
    return spark.read.format("timers").options(**given).load()


def test_a_frame_is_written(spark: SparkSession, world: LaidOut) -> None:
    spark.dataSource.register(TimersDataSource)
    rows = spark.range(2000).selectExpr(
        "'n' || id as timer_id", "timestamp '2096-01-01' as due_time", "'x' as payload"
    )
    given = {**world.target.options(), "topic": world.topic}
    rows.write.format("timers").options(**given).mode("append").save()
    world.assert_at_home([*ALL, *(f"n{n}" for n in range(2000))])


# ------------------------------------------------------------------------------- snapshot and restore


def ran(name: str, work: Any, asked: Any) -> job.Summary:
    return job.run(name, lambda spark, bar: work(spark, bar, asked), job.Running())


@pytest.mark.parametrize("towards", [8, 16, 1])
def test_a_snapshot_comes_back(
    spark: SparkSession, world: LaidOut, valkey: RunningServer, tmp_path: Path, towards: int
) -> None:
    """All of it, into however many partitions the topic has by then. What lives is newer, and stays."""
    told = ran("snapshot", snapshot.run, Snapshot(world.target, str(tmp_path / "copy"), (world.topic,)))
    assert (told.problems, told.counts["timers"], told.counts["read_twice"]) == ([], len(ALL), 0)
    assert told.counts["size_before"] == told.counts["size_after"] == len(ALL)
    world.move(towards)
    assert all(world.cancel(name) for name in IDS[10:])
    told = ran("restore", restore.run, Restore(world.target, str(tmp_path / "copy"), (world.topic,)))
    assert (told.problems, told.counts["loaded"], told.counts["live"]) == ([], len(IDS) - 10, 20)
    world.assert_at_home([*ALL])


def test_no_snapshot_while_it_moves(
    spark: SparkSession, world: LaidOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "MOVE_WAIT", 0.0)
    world.begin(16)
    with pytest.raises(InvalidField, match="moves from 8 to 16 partitions"):
        ran("snapshot", snapshot.run, Snapshot(world.target, str(tmp_path / "copy"), (world.topic,)))
    assert not (tmp_path / "copy").exists()
