"""Sweeps of many topics at once: one plan, one job, and each topic on its own where one fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from relay.core.instants import SECOND
from relay.pipeline.cold import topic_marks, upkeep
from relay.pipeline.cold.plans import Plan
from relay.pipeline.cold.retiring import retire
from relay.pipeline.cold.sweep import Sweep, TopicRefused, now
from relay.pipeline.cold.sweep_options import SweepOptions, Swept
from relay.pipeline.cold.topic_marks import SweepBusy
from relay.pipeline.spark.session import configured
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from tests.chaos import count, in_long
from tests.pipeline.cold_world import HOUR, OPTIONS, ColdWorld
from tests.worlds.waiting import eventually

if TYPE_CHECKING:
    from tests.keyspace import Keyspace

pytestmark = pytest.mark.slow

SOON, LATER = HOUR // 2, 30 * HOUR
DAY = 24 * HOUR


class Killed(Exception):
    """What a sweep dies of here."""


@pytest.fixture
def worlds(world: ColdWorld, keyspace: Keyspace) -> Iterator[list[ColdWorld]]:
    """Three topics in one store, each with a timer that is due and one that is not."""
    others = [ColdWorld(world.spark, world.server, world.path, keyspace.topic()) for _ in range(2)]
    made = [world, *others]
    for each in made:
        each.at = world.at
    rows = made[0].rows([("a", SOON), ("z", LATER)])
    for each in others:
        rows = rows.unionAll(each.rows([("a", SOON), ("z", LATER)]))
    write = world.cold.write(rows, world.version())
    assert write is not None
    assert len(write.topics) == 3
    retire(world.cold, world.target, write)
    yield made
    for each in others:
        each.close()


def swept(world: ColdWorld, topics: list[str] | None = None, **changes: object) -> Sweep:
    options: SweepOptions = replace(OPTIONS, **changes)  # type: ignore[arg-type]
    return Sweep(world.spark, world.cold, world.target, topics, options)


def test_topics_come_together(worlds: list[ColdWorld]) -> None:
    """By one plan; one that is swept alone later is swept on."""
    one, two, three = worlds
    sweep = swept(one)
    told = sweep.run()
    assert (told.planned, told.loaded, sweep.topics) == (3, 3, 3)
    assert one.cold.plans.numbers() == [1]
    assert [each.live() for each in worlds] == [{"a": SOON}] * 3
    assert swept(one, [two.topic], horizon=40 * HOUR).run().loaded == 1
    assert swept(one, horizon=40 * HOUR).run().loaded == 2
    assert [each.live() for each in worlds] == [{"a": SOON, "z": LATER}] * 3
    assert three.whole()


def test_a_busy_topic_is_left_out(worlds: list[ColdWorld]) -> None:
    """And named; the others come, and that one comes with a later sweep."""
    one, two, _ = worlds
    busy = swept(one, lock=3600_000_000)
    busy._marks.open([two.topic], "1", 0.0)
    sweep = swept(one, wait=0.0)
    assert sweep.run().loaded == 2
    assert isinstance(sweep.left_out.pop(two.topic), SweepBusy)
    assert sweep.left_out == {}
    assert [each.live() for each in worlds] == [{"a": SOON}, {}, {"a": SOON}]
    busy._marks.close_all(())
    assert swept(one).run().loaded == 1
    assert two.live() == {"a": SOON}
    assert all(each.whole() for each in worlds)


def test_marks_are_kept_while_others_are_waited_for(
    worlds: list[ColdWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One topic's marks are open, another's are held by a sweep that ends. The wait may be longer than marks
    are a driver's own."""
    first, second = sorted(worlds, key=lambda world: world.topic)[:2]
    busy = swept(first, wait=0.0, lock=3600 * SECOND)
    busy._marks.open([second.topic], "1", 0.0)

    def until() -> float:
        held: bytes = first.raw.hget(first.marks, "until")  # type: ignore[assignment]
        return float(held)

    def wait(_seconds: float) -> None:
        opened = until()
        eventually(lambda: until() > opened, "the open marks are kept")
        busy._marks.close_all(())

    monkeypatch.setattr(topic_marks, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    opened = swept(first, wait=2 * 3600.0)._marks.open([first.topic, second.topic], "1", 2 * 3600.0)
    assert opened.marks.keys() == {first.topic, second.topic}


def test_a_topic_that_redis_refuses(worlds: list[ColdWorld]) -> None:
    """It keeps its marks, and holds up no other; what ended meanwhile does not come back with it."""
    one, two, _ = worlds
    two.raw.set(two.payloads, "no hash")
    sweep = swept(one)
    told = sweep.run()
    assert (told.planned, told.staged, told.loaded) == (2, 2, 2)
    assert isinstance(sweep.left_out.pop(two.topic), TopicRefused)
    assert sweep.left_out == {}
    assert two.raw.exists(two.marks)
    two.raw.delete(two.payloads)
    two.touch("a")
    assert swept(one).run().marked == 1
    assert [each.live() for each in worlds] == [{"a": SOON}, {}, {"a": SOON}]
    assert all(each.whole() for each in worlds)


def test_a_write_that_cannot_be_finished(worlds: list[ColdWorld]) -> None:
    """It waits, and is told of; what rests of all topics comes all the same."""
    one, two, three = worlds
    two.write([("b", SOON)], retired=False)
    two.raw.set(two.payloads, "no hash")
    one.write([("b", SOON)], retired=False)
    sweep = swept(one, silent=0)
    told = sweep.run()
    assert told.finished == 1
    assert [write.topics for write in one.cold.state().unsettled] == [{two.topic: 1}]
    ((version, why),) = sweep.unfinished.items()
    assert version == one.cold.state().unsettled[0].version
    assert why.startswith("relay.core.errors.WrongKeyType")
    assert set(one.live()) == {"a", "b"}
    assert set(three.live()) == {"a"}
    two.raw.delete(two.payloads)
    assert swept(one, silent=0).run().finished == 1
    assert set(two.live()) == {"a", "b"}


@pytest.mark.parametrize("step", ["load", *in_long(["stage", "finalise"])])
def test_a_killed_plan_of_many_topics(worlds: list[ColdWorld], step: str) -> None:
    """The next sweep goes on with it, whichever topic it was asked for; what ended since stays away. One
    topic has lost its marks: that one is planned anew."""
    one, _, three = worlds

    def die(name: str) -> None:
        if name == step:
            raise Killed

    sweep = swept(one, lock=0)
    sweep._step = die
    with pytest.raises(Killed):
        sweep.run()
    one.touch("a")
    three.raw.delete(three.marks)
    told = swept(one, [three.topic]).run()
    assert told.abandoned == 1
    assert [each.live() for each in worlds] == [{}, {"a": SOON}, {"a": SOON}]
    assert all(each.whole() for each in worlds)


def test_two_sweeps_of_different_topics(worlds: list[ColdWorld]) -> None:
    """The race: both have made the next plan, and one has begun it. The other goes on with that, and then
    sweeps its own topic; no marks are left."""
    one, two, _ = worlds
    sweep = swept(one, [one.topic], lock=0)
    begin, others = sweep._plans.begin, list[Swept]()

    def begins(plan: Plan) -> bool:
        if not others:
            others.append(swept(one, [two.topic]).run())
        return begin(plan)

    sweep._plans.begin = begins  # type: ignore[method-assign]
    assert sweep.run().loaded == 1
    assert [told.loaded for told in others] == [1]
    assert [each.live() for each in worlds] == [{"a": SOON}, {"a": SOON}, {}]
    assert all(each.whole() for each in worlds)


@pytest.mark.timeout(1800)
def test_many_topics_in_one_sweep(world: ColdWorld, keyspace: Keyspace) -> None:
    """Of 50 timers each over a year, in 80 files: they are merged by themselves, and one sweep of a month. A
    few writes make the files of many, for each write takes seconds."""
    topics, writes, parts = count(80, 1000), 8, 10
    keyspace.allow(f"*{world.topic}*")
    head = envelope.encode(b"", {}, "").hex()
    apart = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": str(parts)}
    for n in range(writes):
        numbers = n * 50 * topics // writes, (n + 1) * 50 * topics // writes
        rows = world.spark.range(*numbers, numPartitions=parts).selectExpr(
            f"'{world.topic}-' || (id % {topics}) as topic",
            f"'t' || (id div {topics}) as timer_id",
            f"{world.at} + (id div {topics}) * {365 * DAY // 50} as due_us",
            "cast(null as long) as expires_us",
            f"unhex('{head}') as envelope",
        )
        with configured(world.spark, apart):
            write = world.cold.write(rows, world.version())
        assert write is not None
        world.cold.settle(write)
    assert world.cold.table.size()[0] >= writes * parts
    sweep = swept(world, horizon=30 * DAY)
    told = sweep.run()
    assert (sweep.topics, told.loaded, sweep.left_out) == (topics, 5 * topics, {})
    kept = upkeep.keep_small(world.cold, now(world.target))
    assert kept.files_after <= 400
    assert kept.files_after < kept.files_before
    assert not world.raw.exists(KeyNames().key("marks", f"{world.topic}-0"))
    assert world.raw.zcard(KeyNames().of(f"{world.topic}-{topics - 1}")[0]) == 5
