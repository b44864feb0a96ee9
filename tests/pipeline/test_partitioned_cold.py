"""The cold store beside a topic of several partitions: sweeps, retirements, and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from relay.core.errors import InvalidField
from relay.pipeline.cold import retiring
from relay.pipeline.cold.sweep import Sweep
from relay.pipeline.cold.sweep_options import Swept
from relay.pipeline.cold.topic_marks import SweepBusy
from relay.pipeline.spark.redis_target import TopicRules
from relay.pipeline.spark.session import configured
from relay.store.bulk import layouts
from relay.store.bulk.sweeping import Loading
from tests.chaos import in_long
from tests.pipeline.cold_world import HOUR, OPTIONS, ColdWorld
from tests.pipeline.laid_out import LaidOut, laid_out

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

pytestmark = pytest.mark.slow

SOON, LATER = HOUR // 2, 30 * HOUR
IDS = [f"t{n}" for n in range(1200)]
ROWS = [(name, SOON) for name in IDS]


@pytest.fixture
def parts(world: ColdWorld, valkey: RunningServer, keyspace: Keyspace) -> Iterator[LaidOut]:
    """The world's topic, in eight partitions."""
    keyspace.allow(f"*{world.topic}*")
    with laid_out(valkey.url, world.topic, [valkey]) as made:
        yield made
        assert not marks_of(world), "marks are left"


def marks_of(world: ColdWorld) -> set[str]:
    keys: Any = world.raw.keys(f"timers_marks:{world.topic}*")
    return {key.decode() for key in keys}


class Killed(Exception):
    """What a sweep dies of here."""


def at(world: ColdWorld, step: str, meanwhile: Callable[[], object], **changes: object) -> Sweep:
    """A sweep during which something happens as it first begins a step."""
    waiting = [meanwhile]

    def begins(name: str) -> None:
        if name == step and waiting:
            waiting.pop()()

    return world.sweeper(OPTIONS, begins, **changes)


def die() -> None:
    raise Killed


def test_a_sweep_fills_all_partitions(world: ColdWorld, parts: LaidOut) -> None:
    world.write(ROWS)
    swept = world.sweep()
    assert (swept.planned, swept.loaded) == (1200, 1200)
    parts.assert_at_home(IDS)
    assert world.sweep() == Swept()


def test_batches_of_a_sweep_are_large(world: ColdWorld, parts: LaidOut) -> None:
    """Rows are gathered for eight whole batches before they are divided, however Spark hands them over."""
    world.write_many(8_000, f"{SOON}")
    with configured(world.spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "500"}):
        swept = world.sweep()
    assert swept.loaded == 8_000
    assert swept.batches <= 8_000 / 200


def test_what_ends_before_it_is_loaded(world: ColdWorld, parts: LaidOut) -> None:
    """In every partition: marks are where the scripts look that end timers."""
    world.write(ROWS)

    def meanwhile() -> None:
        assert len(marks_of(world)) == 8
        assert not any(parts.cancel(name) for name in IDS[:100]), "they are not loaded yet"

    swept = at(world, "load", meanwhile).run()
    assert (swept.staged, swept.loaded, swept.marked) == (1200, 1100, 100)
    parts.assert_at_home(IDS[100:])


def test_a_killed_sweep_goes_on(world: ColdWorld, parts: LaidOut) -> None:
    """Whoever runs it again goes on by the layout and the ledgers of all partitions: what was cancelled since
    does not come back."""
    world.write(ROWS)
    with pytest.raises(Killed):
        at(world, "finalise", die, lock=0).run()
    assert all(parts.cancel(name) for name in IDS[:300])
    swept = world.sweep()
    assert (swept.loaded, swept.again) == (1200, swept.batches)
    parts.assert_at_home(IDS[300:])


@pytest.mark.parametrize("step", ["load", *in_long(["stage", "finalise"])])
def test_a_move_waits_for_a_sweep(world: ColdWorld, parts: LaidOut, step: str) -> None:
    """It is refused for as long as marks are there; a sweep that was killed holds it up as well."""
    world.write(ROWS)

    def meanwhile() -> None:
        with pytest.raises(InvalidField, match=r"^partitions: can't be changed while a sweep"):
            parts.begin(16)
        die()

    with pytest.raises(Killed):
        at(world, step, meanwhile, lock=0).run()
    with pytest.raises(InvalidField, match=r"or was not finished"):
        parts.begin(16)
    world.sweep()
    parts.move(16)
    parts.assert_at_home(IDS)


def test_a_sweep_waits_for_a_move(world: ColdWorld, parts: LaidOut) -> None:
    """It says which topic moves, and what waits for the end; and it leaves nothing behind."""
    world.write(ROWS)
    parts.begin(16)
    with pytest.raises(SweepBusy, match=r"moves from 8 to 16 partitions.*relay topics reshard"):
        world.sweep(wait=0.0)
    assert not marks_of(world)
    parts.finish()
    world.sweep()
    parts.assert_at_home(IDS)


@pytest.mark.parametrize("count", [8, *in_long([1])])
def test_a_move_that_begins_as_a_sweep_does(
    world: ColdWorld, valkey: RunningServer, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The race: the sweep has looked at the layout, then the topic moves, then come the marks. They are
    refused, and the sweep begins by the new layout."""
    keyspace.allow(f"*{world.topic}*")
    with laid_out(valkey.url, world.topic, [valkey], count) as parts:
        parts.load(["lives"])
        world.write(ROWS)
        opened, moves = Loading.open, [parts.move]

        def opens(loading: Loading, partition: str, *args: Any, **more: Any) -> Any:
            if moves:
                moves.pop()(count * 2)
            return opened(loading, partition, *args, **more)

        monkeypatch.setattr(Loading, "open", opens)
        swept = world.sweep()
        assert (swept.loaded, swept.abandoned) == (1200, 0)
        parts.assert_at_home(["lives", *IDS])
        assert not marks_of(world)


def test_the_marks_of_one_partition_are_lost(world: ColdWorld, parts: LaidOut) -> None:
    """Nothing is loaded blindly there: the plan is given up, and the next one reads anew."""
    world.write(ROWS)

    def meanwhile() -> None:
        assert world.raw.delete(f"timers_marks:{world.topic}#3")

    swept = at(world, "load", meanwhile).run()
    assert swept.abandoned == 1
    parts.assert_at_home(IDS)


@pytest.mark.chaos
@pytest.mark.parametrize("moves", [False, True])
def test_a_plan_of_another_layout(world: ColdWorld, parts: LaidOut, moves: bool) -> None:
    """A sweep was killed, its marks were lost or removed, and the topic has moved: the plan is made anew."""
    world.write(ROWS)
    with pytest.raises(Killed):
        at(world, "load", die, lock=0).run()
    for key in marks_of(world):
        world.raw.delete(key)
    if moves:
        parts.move(4)
    swept = world.sweep()
    assert (swept.loaded, swept.abandoned) == (1200, 1)
    parts.assert_at_home(IDS)


def test_a_topic_that_is_born_by_a_sweep(world: ColdWorld, valkey: RunningServer, keyspace: Keyspace) -> None:
    keyspace.allow(f"*{world.topic}*")
    world.target = replace(world.target, default=TopicRules(partitions=4))
    with laid_out(valkey.url, world.topic, [valkey], 4, born=False) as parts:
        world.write(ROWS)
        world.sweep()
        assert world.raw.get(f"timers_leases:{world.topic}") == b"1 4"
        parts.assert_at_home(IDS)


# --------------------------------------------------------------------------------------- retiring


def test_a_timer_is_in_one_place(world: ColdWorld, parts: LaidOut) -> None:
    """Rows for timers that live in Redis take them out of there, and so do cancels."""
    parts.load(IDS)
    world.write([(name, LATER) for name in IDS[:600]])
    world.cancel(*IDS[600:900], "nobody")
    parts.assert_at_home(IDS[900:])
    assert not world.raw.keys(f"timers_retiring:{world.topic}*")


@pytest.mark.parametrize("count", [8, *in_long([1])])
@pytest.mark.parametrize("factor", [2, *in_long([0.5])])
def test_a_topic_moves_while_rows_are_retired(
    world: ColdWorld,
    valkey: RunningServer,
    keyspace: Keyspace,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    factor: float,
) -> None:
    """The race: permits are there, and then the topic gets partitions that have none."""
    keyspace.allow(f"*{world.topic}*")
    with laid_out(valkey.url, world.topic, [valkey], count) as parts:
        parts.load(IDS)
        permit, moves = retiring._permit, [parts.move]

        def permitted(*args: Any) -> str:
            token = permit(*args)
            if moves:
                moves.pop()(max(int(count * factor), 1))
            return token

        monkeypatch.setattr(retiring, "_permit", permitted)
        world.cancel(*IDS[:600])
        parts.assert_at_home(IDS[600:])


@pytest.mark.parametrize("towards", [16, *in_long([4])])
def test_a_worker_whose_topic_moves(world: ColdWorld, parts: LaidOut, towards: int) -> None:
    """The race: a worker has looked at the layout, and the topic moves between two of its batches. It says
    that it was kept from retiring, so that the write begins again; and what is left lives."""
    parts.load(IDS)
    with world.target.open() as store:
        Loading(store.server).may_retire(store.at_rest(world.topic), 7, "w")

    def batches() -> Iterator[pa.RecordBatch]:
        for some in (IDS[:300], IDS[300:600]):
            yield pa.RecordBatch.from_pydict({"topic": [world.topic] * 300, "timer_id": some})
            parts.move(towards)

    told = [row for each in retiring._retire(world.target, 7, "w", batches()) for row in each.to_pylist()]
    assert told[0] == {"asked": 300, "lived": 300, "fenced": 0}
    assert told[1]["fenced"] > 0
    gone = sum(row["lived"] for row in told)
    assert gone < 600, "what has gone elsewhere is not retired by the old layout"
    assert sum(map(len, parts.homes().values())) == len(IDS) - gone


def test_a_topic_that_moves_for_long(
    world: ColdWorld, parts: LaidOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write stays unfinished, and whoever runs it again, or sweeps, finishes it."""
    parts.load(IDS)
    monkeypatch.setattr(layouts, "MOVE_WAIT", 0.1)
    parts.begin(16)
    write = world.cancel(*IDS[:600], retired=False)
    with pytest.raises(InvalidField, match="moves from 8 to 16"):
        retiring.retire(world.cold, world.target, write)
    parts.finish()
    assert retiring.retire(world.cold, world.target, write) == 600
    parts.assert_at_home(IDS[600:])
