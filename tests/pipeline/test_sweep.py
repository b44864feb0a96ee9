"""The cold store and the sweep: what rests there comes to Redis once, in its latest version, or not at
all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.cold.plans import Plans
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep_options import Swept
from relay.pipeline.cold.table import Table
from relay.pipeline.cold.topic_marks import SweepBusy
from tests.chaos import in_long
from tests.pipeline.cold_world import HOUR, ColdWorld

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

SOON, LATER = HOUR // 2, 30 * HOUR


def test_what_is_due_soon_is_loaded(world: ColdWorld) -> None:
    """The rest stays, and comes with the sweep of its hour; envelopes arrive as they are."""
    world.write([("a", SOON), ("b", SOON + 1), ("z", LATER)], "x")
    assert world.sweep() == Swept(planned=2, staged=2, loaded=2, batches=1)
    assert world.live() == {"a": SOON, "b": SOON + 1}
    assert world.payload_of("a") == "x"
    assert world.whole()
    assert world.sweep() == Swept(), "what was taken is not taken again"
    assert world.sweep(horizon=40 * HOUR) == Swept(planned=1, staged=1, loaded=1, batches=1)
    assert world.live()["z"] == LATER


@pytest.mark.slow
def test_the_latest_version_counts(world: ColdWorld) -> None:
    """A timer that was moved, to an earlier hour, the same, or a later one; and one that was cancelled."""
    world.write(
        [("early", LATER), ("same", SOON), ("late", SOON), ("cancelled", SOON), ("again", SOON)], "old"
    )
    world.cancel("cancelled", "again")
    world.write([("early", SOON), ("same", SOON + 5), ("late", LATER), ("again", SOON + 7)], "new")
    assert world.sweep() == Swept(planned=7, staged=3, loaded=3, batches=1)
    assert world.live() == {"early": SOON, "same": SOON + 5, "again": SOON + 7}
    assert {world.payload_of(name) for name in world.live()} == {"new"}
    world.touch("early", "same", "again")
    assert world.sweep(horizon=40 * HOUR).loaded == 1
    assert world.live() == {"late": LATER}, "what moved away from a later hour does not come back with it"


@pytest.mark.slow
def test_an_older_version_that_comes_late(world: ColdWorld) -> None:
    """Its writer was slow: the newer one was swept and delivered, or lives; the old one changes neither."""
    old = world.version()
    world.write([("gone", SOON), ("lives", SOON)], "new")
    world.sweep()
    world.touch("gone")
    world.write([("gone", SOON), ("lives", SOON + 1), ("other", SOON)], "old", version=old)
    assert world.live() == {"lives": SOON}, "a late retirement leaves what newer rows have put there"
    assert world.sweep().loaded == 1
    assert world.live() == {"lives": SOON, "other": SOON}
    assert world.payload_of("lives") == "new"


def test_a_timer_is_in_one_place(world: ColdWorld) -> None:
    """Rows for a timer that lives in Redis take it out of there; cancels do so as well."""
    world.write([("a", SOON), ("b", SOON), ("c", SOON)])
    world.sweep()
    world.write([("a", LATER)])
    world.cancel("b", "nobody")
    assert world.live() == {"c": SOON}
    assert world.whole()


@pytest.mark.slow
def test_rows_of_an_unfinished_write_wait(world: ColdWorld) -> None:
    """Its writer may be about to retire what a sweep would load. When it is silent for long, the sweep
    finishes it: then a timer that lived goes, and the row comes."""
    world.write([("a", SOON)], "old")
    world.sweep()
    world.write([("a", SOON + 3), ("b", SOON)], "new", retired=False)
    assert world.sweep() == Swept()
    assert world.payload_of("a") == "old"
    assert world.sweep(silent=0) == Swept(planned=2, staged=2, loaded=2, batches=1, finished=1)
    assert world.live() == {"a": SOON + 3, "b": SOON}
    assert world.payload_of("a") == "new"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "behind"),
    [
        pytest.param((Table, "append"), False, id="begun", marks=pytest.mark.chaos),
        pytest.param((Table, "append"), True, id="appended", marks=pytest.mark.chaos),
        pytest.param((ColdStore, "commit"), True, id="committed"),
        pytest.param((ColdStore, "settle"), False, id="retired", marks=pytest.mark.chaos),
        pytest.param((ColdStore, "settle"), True, id="settled"),
    ],
)
def test_a_writer_that_is_killed(
    world: ColdWorld, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str], behind: bool
) -> None:
    """Behind each of its steps; its job is run again, and a sweep finishes what it left: each timer comes
    once, as the later run has it, and one that lived in Redis is in one place."""
    world.write([("a", SOON)], "old")
    world.sweep()
    where, name = step
    does: Callable[..., object] = getattr(where, name)

    def die(*args: object) -> None:
        if behind:
            does(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(where, name, die)
        with pytest.raises(KeyboardInterrupt):
            world.write([("a", SOON + 1), ("b", SOON + 1)], "new")
    assert world.sweep().loaded == (2 if (name, behind) == ("settle", True) else 0)
    world.write([("a", SOON + 2), ("b", SOON + 2)], "newest")
    assert world.sweep(silent=0).loaded == 2
    assert world.live() == {"a": SOON + 2, "b": SOON + 2}
    assert {world.payload_of(name) for name in "ab"} == {"newest"}
    world.touch("a", "b")
    assert world.sweep(silent=0).loaded == 0
    assert world.whole()


@pytest.mark.slow
def test_another_sweep_is_under_way(world: ColdWorld) -> None:
    """The second one says so and changes nothing."""
    world.write([("a", SOON)])
    first = world.sweeper(lock=HOUR)
    first._marks.open([world.topic], "1", 0.0)
    with pytest.raises(SweepBusy):
        world.sweep(wait=0.1)
    assert first.run().loaded == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", ["removed", *in_long(["told otherwise", "of other columns", "of the first release"])]
)
def test_staged_rows_that_are_gone(world: ColdWorld, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """A sweep was killed while it loaded. Somebody removed what it had staged, or another release had staged
    it: the next one plans anew, and what was delivered meanwhile does not come back."""
    world.write([("a", SOON), ("b", SOON)])

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Plans, "end", die)
        with pytest.raises(KeyboardInterrupt):
            world.sweep()
    world.touch("a")
    said = world.path / "plans" / "00000001" / "staged.json"
    document = json.loads(said.read_text())
    if lost == "removed":
        world.cold.files.remove(document["folder"])
    elif lost == "told otherwise":
        document["files"] = [[n, name, rows] for n, (name, _, rows) in enumerate(document["files"])]
        said.write_text(json.dumps({**document, "batch": 500}))
    elif lost == "of other columns":
        said.write_text(json.dumps({**document, "columns": "batch long, timers binary"}))
    else:
        del document["columns"]
        said.write_text(json.dumps(document))
    swept = world.sweep()
    assert (swept.abandoned, swept.loaded, swept.live, swept.marked) == (1, 0, 1, 1)
    assert set(world.live()) == {"b"}
    assert world.whole()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a/b c=d%20:é*?#", *in_long(["__HIVE_DEFAULT_PARTITION__"])])
def test_an_odd_topic_and_odd_ids(
    spark: SparkSession, valkey: RunningServer, tmp_path: Path, keyspace: Keyspace, name: str
) -> None:
    """Whatever a name may hold, in paths and in Redis; also what Spark calls the folder of nulls."""
    topic = keyspace.topic(name) if "/" in name else keyspace.adopt(name)
    world = ColdWorld(spark, valkey, tmp_path / "é %41", topic)
    ids = ["a/b", "ü", "x;y", "%", " ", "日本", "t", "f", "b1:0", "plan"]
    world.write([(name, SOON) for name in ids])
    world.write([(ids[0], SOON + 1)])
    world.cancel("ü")
    assert world.sweep().loaded == len(ids) - 1
    assert sorted(world.live()) == sorted(set(ids) - {"ü"})
    assert world.whole()
    world.close()
