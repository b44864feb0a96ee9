"""Sweeps of one topic over two cold stores: neither ends what the other has noted, however they race."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.cold.store import ColdStore
from relay.pipeline.cold.sweep import Sweep
from relay.pipeline.cold.sweep_options import Swept
from relay.pipeline.cold.topic_marks import SweepBusy, TopicMarks
from tests.chaos import in_long
from tests.pipeline.cold_world import HOUR, OPTIONS, ColdWorld

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SOON = HOUR // 2


@pytest.fixture
def other(world: ColdWorld) -> Iterator[ColdWorld]:
    """Another store of the same topic."""
    other = ColdWorld(world.spark, world.server, world.path.parent / "other", world.topic)
    other.at = world.at
    yield other
    other.close()


class Killed(Exception):
    """What a sweep dies of here."""


def interrupted(world: ColdWorld, step: str, meanwhile: Callable[[], object]) -> Sweep:
    """A sweep whose driver hears and renews nothing for a while, when it first begins a step: its marks are
    not its own by then, and `meanwhile` happens."""
    happened = False

    def at(name: str) -> None:
        nonlocal happened
        if name == step and not happened:
            happened = True
            meanwhile()

    options = replace(OPTIONS, lock=0, wait=0.0)
    sweep = world.sweeper(options, at)
    sweep._marks.kept = nullcontext  # type: ignore[assignment,method-assign]
    return sweep


def die() -> None:
    raise Killed


def test_a_killed_sweep_keeps_its_marks(world: ColdWorld, other: ColdWorld) -> None:
    """While nobody has run it again the other store's sweep is refused, and told by whom; what was delivered
    since it began does not come back. Then it is the other's turn."""
    world.write([("a", SOON), ("b", SOON)])
    other.write([("c", SOON)])
    with pytest.raises(Killed):
        interrupted(world, "finalise", die).run()
    world.touch("a")
    with pytest.raises(SweepBusy, match=rf"{world.path}.*plan 1.*--take-over"):
        other.sweep(wait=0.0)
    assert set(world.live()) == {"b"}
    assert world.sweep().again == 1
    assert set(world.live()) == {"b"}, "a delivered timer was brought back"
    assert other.sweep() == Swept(planned=1, staged=1, loaded=1, batches=1)
    assert set(world.live()) == {"b", "c"}
    assert world.whole()


def test_a_sweep_that_was_killed_before_it_closed_its_marks(
    world: ColdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan was done by then: the next sweep closes them, though it has nothing to take."""
    world.write([("a", SOON)])
    with monkeypatch.context() as patched:
        patched.setattr(TopicMarks, "close", lambda *_: die())
        with pytest.raises(Killed):
            world.sweep()
    assert world.raw.exists(world.marks)
    assert world.sweep() == Swept()
    assert world.live() == {"a": SOON}
    assert world.whole()


@pytest.mark.parametrize("step", ["load", *in_long(["stage", "finalise"])])
def test_a_sweep_within_anothers(world: ColdWorld, other: ColdWorld, step: str) -> None:
    """The other store's comes while this one pauses, at any step: it is refused, and each timer comes
    once."""
    world.write([("a", SOON), ("both", SOON)])
    other.write([("c", SOON), ("both", SOON + 5)])

    def meanwhile() -> None:
        with pytest.raises(SweepBusy):
            other.sweep(wait=0.0)
        world.touch("a")

    assert interrupted(world, step, meanwhile).run().batches == 1
    other.sweep()
    assert world.live() == {"both": SOON, "c": SOON}
    assert world.whole()


def test_a_sweep_that_is_given_up(world: ColdWorld, other: ColdWorld) -> None:
    """Whoever still runs it loads nothing more, and plans anew: nothing is lost, and what lives stays."""
    world.write([("a", SOON), ("b", SOON)])
    other.write([("c", SOON), ("a", SOON + 5)])

    def meanwhile() -> None:
        assert other.sweep(take_over=True).loaded == 2

    swept = interrupted(world, "load", meanwhile).run()
    assert (swept.loaded, swept.live, swept.abandoned) == (1, 1, 1)
    assert world.live() == {"a": SOON + 5, "b": SOON, "c": SOON}
    assert world.whole()


def test_a_stores_name(spark: SparkSession, tmp_path: Path) -> None:
    """It is the same whenever and by whatever path somebody looks, and no other store has it; a password in a
    path is nobody's business."""
    one, two = (ColdStore(spark, str(tmp_path / name)) for name in ("one", "two"))
    assert one.name == ColdStore(spark, f"{tmp_path}/two/../one").name != two.name
    assert one.place.endswith("/one")
    for root, shown in {
        "s3a://key:geheim@bucket/cold": "s3a://bucket/cold",
        "abfs://timers@account.dfs.core.windows.net/cold": "abfs://timers@account.dfs.core.windows.net/cold",
    }.items():
        one.files.root = root
        assert one.place == shown
