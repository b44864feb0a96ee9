"""`relay pipeline sweep`, `cancel`, `cold`, `restore`: what the commands say, and what they leave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from relay.cli.commands import app
from relay.pipeline.jobs import sweep as sweep_job
from tests.pipeline.cold_world import HOUR, ColdWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

SOON, LATER = HOUR // 2, 30 * HOUR


@pytest.fixture(autouse=True)
def its_url(valkey: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands find the world's server where a job's pod has it."""
    monkeypatch.setenv("RELAY_REDIS__URL", valkey.url)


def relay(*arguments: str, stdin: str = "", code: int = 0) -> Any:
    """A command's JSON, or what it says on stderr where it fails."""
    ran = CliRunner().invoke(app, ["pipeline", *arguments, "--json"], input=stdin)
    assert ran.exit_code == code, (ran.output, ran.stderr, ran.exception)
    return json.loads(ran.stdout) if ran.stdout else ran.stderr


def test_a_cold_stores_day(world: ColdWorld) -> None:
    """Look, look ahead, sweep, cancel by name and by table, look again."""
    cold = ("--cold", str(world.path))
    world.write([("a", SOON), ("b", SOON), ("z", LATER), ("y", LATER)])
    told = relay("cold", *cold)
    assert (told["topics"], told["rows"], told["unfinished_writes"]) == (1, 4, 0)
    assert sum(told["hours"][world.topic].values()) == 4
    assert relay("sweep", *cold, "--dry-run")["planned"] == 2
    assert world.live() == {}
    assert relay("cancel", *cold, "--topic", world.topic, "-", stdin="b\nnobody\n")["asked"] == 2
    told = relay("sweep", *cold, "--horizon", "2h")
    assert (told["ok"], told["planned"], told["loaded"], told["superseded"]) == (True, 2, 1, 1)
    assert world.live() == {"a": SOON}
    world.spark.createDataFrame([("a",), ("z",)], "timer_id string").write.json(
        str(world.path.parent / "ids")
    )
    asked = ("--from", str(world.path.parent / "ids"), "--format", "json", "--topic", world.topic)
    assert relay("cancel", *cold, *asked)["lived_in_redis"] == 1
    assert relay("sweep", *cold, "--horizon", "40h")["loaded"] == 1
    assert world.live() == {"y": LATER}
    assert relay("cold", *cold, "--compact", "2")["rows"] == 0


def test_a_table_that_is_divided(world: ColdWorld) -> None:
    """What is due soon goes to Redis and ends what rested of it; the rest goes to the cold store and leaves
    Redis."""
    world.write([("early", LATER), ("other", LATER)])
    world.write([("late", SOON)])
    world.sweep()
    rows = [(world.topic, "early", world.at + SOON), (world.topic, "late", world.at + LATER)]
    table = str(world.path.parent / "table")
    world.spark.createDataFrame(rows, "topic string, timer_id string, due_time long").write.parquet(table)
    told = relay("schedule", table, "--format", "parquet", "--due-unit", "us", "--cold", str(world.path))
    assert (told["written"], told["cold"], told["superseded"]) == (1, 1, 1)
    assert world.live() == {"early": SOON}
    world.touch("early")
    assert relay("sweep", "--cold", str(world.path), "--horizon", "40h")["loaded"] == 2
    assert world.live() == {"late": LATER, "other": LATER}


def test_an_id_on_both_sides_of_the_horizon(world: ColdWorld) -> None:
    """A table has no order: of a timer's rows the soonest counts, it comes once, and the others never do."""
    dues = [("both", LATER), ("both", SOON), ("rests", LATER), ("rests", LATER + HOUR), ("alone", LATER)]
    rows = [(world.topic, name, world.at + due) for name, due in dues]
    table = str(world.path.parent / "table")
    world.spark.createDataFrame(rows, "topic string, timer_id string, due_time long").write.parquet(table)
    told = relay("schedule", table, "--format", "parquet", "--due-unit", "us", "--cold", str(world.path))
    assert (told["written"], told["cold"]) == (1, 4)
    assert world.live() == {"both": SOON}
    world.touch("both")
    assert relay("sweep", "--cold", str(world.path), "--horizon", "40h")["loaded"] == 2
    assert world.live() == {"rests": LATER, "alone": LATER}


def test_due_times_that_change_from_look_to_look(world: ColdWorld) -> None:
    """A row may be before the horizon when later ones are stored, and behind it when the others are loaded.
    Then its timer is nowhere, and the job does not say that all is well."""
    table = str(world.path.parent / "table")
    world.spark.range(6000).selectExpr(
        f"'{world.topic}' as topic", "'t' || id as timer_id", "id"
    ).write.parquet(table)
    due = "due_time=now() + interval 110 minutes + make_dt_interval(0, 0, 0, id / 10.0)"
    told = relay("schedule", table, "--format", "parquet", "--map", due, "--cold", str(world.path), code=1)
    assert told["cold"] + told["written"] == told["cold"] + len(world.live()) < 6000
    (problem,) = told["problems"]
    assert f"{told['cold']:,} rows" in problem
    assert f"{told['later']:,} when" in problem


def test_names_that_are_none(world: ColdWorld) -> None:
    """Nothing is written down for a table with a bad name in it, and the field is named."""
    for name in ("", "a{b}", "x" * 257, "a\nb", "\x85"):
        rows = world.spark.createDataFrame(
            [(world.topic, "good"), (world.topic, name)], "topic string, timer_id string"
        )
        rows.write.mode("overwrite").parquet(str(world.path.parent / "names"))
        said = relay("cancel", "--cold", str(world.path), "--from", str(world.path.parent / "names"), code=2)
        assert "timer_id" in said
    assert world.cold.table.rows().isEmpty()
    assert "--topic" in relay("cancel", "--cold", str(world.path), "a", code=2)


def test_a_busy_topic_is_a_problem(world: ColdWorld) -> None:
    """The sweep of another says so, and the exit code too."""
    world.write([("a", SOON)])
    other = world.sweeper(lock=HOUR)
    other._marks.open([world.topic], "1", 0.0)
    told = relay("sweep", "--cold", str(world.path), "--wait", "0s", code=1)
    assert not told["ok"]
    assert "under way" in told["problems"][0]


def test_rows_that_went_to_redis_directly(world: ColdWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their older rows are over, although they were delivered before those fall due. There is no moment in
    which a sweep would finish this write, and take out of Redis what has just come there."""
    world.write([("a", LATER), ("b", LATER)])
    version = world.version()
    rows = world.spark.createDataFrame(
        [(world.topic, "a"), ("elsewhere", "x")], "topic string, timer_id string"
    )
    publish = world.cold.files.publish
    unsettled: list[int] = []

    def noted(name: str, text: str) -> bool:
        told = publish(name, text)
        unsettled.append(len(world.cold.state().unsettled))
        return told

    monkeypatch.setattr(world.cold.files, "publish", noted)
    assert sweep_job.supersede(world.cold, rows, version) == 1
    assert set(unsettled) == {0}
    assert world.sweep(horizon=None).loaded == 1
    assert world.live() == {"b": LATER}


@pytest.fixture
def other(world: ColdWorld, keyspace: Keyspace) -> Iterator[ColdWorld]:
    """A second topic, in a store of its own."""
    other = ColdWorld(world.spark, world.server, world.path.parent / "other", keyspace.topic())
    yield other
    other.close()


def test_a_snapshot_comes_back(world: ColdWorld, other: ColdWorld) -> None:
    """Byte for byte; what lives is newer, and stays; leases and attempts are no more; a second run adds
    nothing."""
    for each in (world, other):
        each.write([("a", SOON), ("b", SOON + 1), ("c", LATER)], f"ü\0{each.topic}")
        each.sweep(horizon=None)
    place = str(world.path.parent / "snapshot")
    names = [name for each in (world, other) for name in ("--topic", each.topic)]
    assert relay("snapshot", place, *names)["timers"] == 6
    before = [world.raw.hgetall(each.payloads) for each in (world, other)]
    world.raw.delete(world.timeline, world.payloads)
    other.touch("a", "b")
    assert relay("restore", place, "--dry-run")["timers"] == 6
    told = relay("restore", place)
    assert (told["loaded"], told["live"], told["ok"]) == (5, 1, True)
    assert [world.raw.hgetall(each.payloads) for each in (world, other)] == before
    assert world.live() == {"a": SOON, "b": SOON + 1, "c": LATER}
    assert world.whole()
    world.touch("a")
    told = relay("restore", place)
    assert told["loaded"] == 0, "a restore that is run again"
    assert (told["timers"], told["before"]) == (0, 6)
    assert f"another --work than file:{place}/_relay_restore" in told["told"]
    assert "a" not in world.live()


def snapshot_of(*worlds: ColdWorld) -> str:
    """A snapshot of two timers in each topic, which Redis has lost since."""
    place = str(worlds[0].path.parent / "snapshot")
    for each in worlds:
        each.write([("a", SOON), ("b", LATER)])
        each.sweep(horizon=None)
    relay("snapshot", place, *(part for each in worlds for part in ("--topic", each.topic)))
    for each in worlds:
        each.raw.delete(each.timeline, each.payloads)
    return place


def test_a_topic_that_can_not_be_restored(world: ColdWorld, other: ColdWorld) -> None:
    """It keeps nobody else; the exit code and a problem tell; a later run restores it."""
    place = snapshot_of(world, other)
    world.raw.set(world.payloads, "no hash")
    told = relay("restore", place, code=1)
    assert (told["ok"], told["loaded"], len(told["problems"])) == (False, 2, 1)
    assert f"'{world.topic}' was not restored" in told["problems"][0]
    assert (world.live(), other.live()) == ({}, {"a": SOON, "b": LATER})
    world.raw.delete(world.payloads)
    assert relay("restore", place)["loaded"] == 2
    assert world.live() == {"a": SOON, "b": LATER}
    assert world.whole()


def test_topics_restored_one_by_one(world: ColdWorld, other: ColdWorld) -> None:
    """Each run restores what it was asked for, also where one before it prepared another topic; a name that
    the snapshot has not is refused."""
    place = snapshot_of(world, other)
    assert relay("restore", place, "--topic", world.topic)["loaded"] == 2
    assert (set(world.live()), set(other.live())) == ({"a", "b"}, set())
    assert "topic: 'nobody' is not in" in relay("restore", place, "--topic", "nobody", code=2)
    assert relay("restore", place, "--topic", other.topic)["loaded"] == 2
    assert set(other.live()) == {"a", "b"}
