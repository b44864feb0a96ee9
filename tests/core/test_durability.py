"""Levels of durability as values and as text."""

from __future__ import annotations

from collections.abc import Generator
from contextvars import copy_context
from types import coroutine

import pytest

from relay.core.durability import STORED, Durability, needed, needing

LEVELS = {
    "stored": STORED,
    "fsync": Durability(fsync=True),
    "replicas:1": Durability(replicas=1),
    "fsync+replicas:5": Durability(fsync=True, replicas=5),
}


@pytest.mark.parametrize("text", LEVELS)
def test_there_and_back(text: str) -> None:
    assert Durability.parse(text) == LEVELS[text]
    assert str(LEVELS[text]) == text
    assert LEVELS[text].waits == (text != "stored")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "Fsync",
            "replicas",
            "replicas:",
            "replicas:x",
            "replicas:0",
            "replicas:6",
            "fsync+",
            "+replicas:1",
        ),
        *("fsyncreplicas:1", "replicas:1+fsync", "stored+fsync", " fsync", "fsync\n", "replicas:99999999999"),
    ],
)
def test_what_is_none(text: str) -> None:
    """It is said what to write."""
    with pytest.raises(ValueError, match="give stored, fsync, replicas:1 to replicas:5, or both"):
        Durability.parse(text)


def test_the_stronger_and_the_weaker() -> None:
    fsync, two = Durability(fsync=True), Durability(replicas=2)
    assert fsync.joined(two) == Durability(fsync=True, replicas=2)
    assert STORED.joined(two) == two.joined(STORED) == two
    assert fsync.common(two) == STORED
    assert Durability(fsync=True, replicas=3).common(two) == two


def test_what_is_needed_within_a_block() -> None:
    assert needed() is STORED
    with needing(Durability(fsync=True)):
        with needing(STORED):
            assert needed() is STORED
        assert needed() == Durability(fsync=True)
    assert needed() is STORED


def test_a_coroutine_that_is_thrown_away_ends_in_another_context() -> None:
    """As by the garbage collector, or by who steps it by hand: it leaves that context's level alone."""

    @coroutine
    def pause() -> Generator[None, None, None]:
        yield

    async def waits() -> None:
        with needing(Durability(fsync=True)):
            await pause()

    thrown_away = waits()
    copy_context().run(thrown_away.send, None)
    with needing(Durability(replicas=1)):
        thrown_away.close()
        assert needed() == Durability(replicas=1)
