"""The nemesis and ledgers: the seed decides the order, each kind comes as often, all is healed in between."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos import ledger, nemesis, run
from chaos.faults.pods import is_at_work
from chaos.ledger import Ledger
from chaos.nemesis import Nemesis
from chaos.world import World
from tests.faults.stories import Story


class Told:
    """A fault that only says what was done with it."""

    seconds = 0.0, 0.0

    def __init__(self, name: str, said: list[str]) -> None:
        self.name = name
        self._said = said

    def strike(self, _: World, chance: Random) -> None:
        self._said.append(f"{self.name} strikes {chance.randrange(1_000_000)}")

    def heal(self, _: World) -> None:
        self._said.append(f"{self.name} heals")


class Whole:
    """A world that says when it was waited for."""

    def __init__(self, directory: Path, said: list[str]) -> None:
        self.ledger = Ledger(directory, "nemesis")
        self._said = said

    def until_whole(self) -> None:
        self._said.append("whole")


def played(directory: Path, seed: int, **options: Any) -> tuple[list[str], Counter[str]]:
    """What a nemesis of three faults did, ten times; and what it counted."""
    said: list[str] = []
    faults = [Told(name, said) for name in "abc"]
    each = Nemesis(cast("World", Whole(directory, said)), faults, 10, seed, **options)
    each.run(lambda _: None)
    return said, each.done


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nemesis, "PAUSE", (0.0, 0.0))


def test_a_seed_decides(tmp_path: Path) -> None:
    assert played(tmp_path, 1) == played(tmp_path, 1)
    assert played(tmp_path, 1) != played(tmp_path, 2)


def test_each_kind_comes_about_equally_often(tmp_path: Path) -> None:
    _, done = played(tmp_path, 1)
    assert sorted(done.values()) == [3, 3, 4]


def test_each_is_healed_and_the_world_is_whole_before_the_next(tmp_path: Path) -> None:
    said, _ = played(tmp_path, 1)
    strikes, heals, wholes = said[::3], said[1::3], said[2::3]
    assert [each.split()[0] for each in strikes] == [each.split()[0] for each in heals]
    assert set(wholes) == {"whole"}
    kinds = [entry["kind"] for entry in ledger.read(tmp_path)]
    assert kinds == ["strike", "heal"] * 10


def test_it_ends_when_its_time_is_over(tmp_path: Path) -> None:
    _, done = played(tmp_path, 1, minutes=0.0)
    assert not done


def test_a_line_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    """A process was killed in the midst of it."""
    own = Ledger(tmp_path, "of-one")
    own.write("ready")
    own.close()
    with (tmp_path / "of-one.jsonl").open("ab") as file:
        file.write(b'{"kind":"beg')
    assert [entry["kind"] for entry in ledger.read(tmp_path)] == ["ready"]


def test_a_ledger_goes_on_where_a_process_died(tmp_path: Path) -> None:
    for kind in ("ready", "begin"):
        own = Ledger(tmp_path, "of-one")
        own.write(kind)
        own.close()
    assert [entry["kind"] for entry in ledger.read(tmp_path)] == ["ready", "begin"]


def test_nothing_breaks_before_there_is_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nemesis begins once each caller was answered and each handler has begun."""
    world = cast("World", SimpleNamespace(directory=tmp_path, relays=[SimpleNamespace(name="one")]))
    writers = [("answer", name) for name in run.CALLERS] + [("begin", "of-one")]

    def eventually(ask: Callable[[], bool], what: str) -> None:
        while not ask():
            assert writers, f"nothing is left that could say that {what}"
            kind, name = writers.pop(0)
            Ledger(tmp_path, name).write(kind)

    monkeypatch.setattr(run, "eventually", eventually)
    run.until_loaded(world)
    assert not writers, "it was waited for all of them"


def test_a_pod_is_killed_while_a_handler_is_at_work(tmp_path: Path) -> None:
    """For so long already; not after its end, and not once its application has died and is ready again."""
    path = tmp_path / "of-one.jsonl"
    assert not is_at_work(path, 0.5, 10.0), "there was no application yet"
    story = Story(until=-1.0).write("ready", 1.0).begin(5.0)

    def at_work(now: float) -> bool:
        path.write_text("".join(f"{json.dumps(entry)}\n" for entry in story.entries), encoding="utf-8")
        return is_at_work(path, 0.5, now)

    assert not at_work(5.4)
    assert at_work(5.6)
    story.write("ready", 6.0)
    assert not at_work(6.1)
    story.handled(7.0)
    assert not at_work(8.0)
