"""A caller says for how long it waits, and gives the call up then; its bytes go on."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.chaos import count
from tests.ghosts.callers import Caller
from tests.ghosts.rounds import Rounds
from tests.ghosts.scene import Scene
from tests.ghosts.stories import PATIENT, Story
from tests.ghosts.test_held_back import TOLD

ROUNDS = count(2, 400)
WAITS = 0.15
"""Seconds that the caller waits, and more after each round in which they were over before its bytes were on
their way. The relay alone would wait for a minute."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("way", "story"), TOLD)
def test_the_caller_gives_up(scene: Scene, way: type[Caller], story: type[Story]) -> None:
    """When its time is over it asks another relay: what it asks for there stands."""
    topic, rounds = "orders", Rounds(ROUNDS, "the bytes were on their way when the caller gave up")
    with closing(way(scene.patient, topic)) as slow, closing(way(scene.other, topic)) as other:
        for met in rounds:
            told = scene.tell(story, topic)
            told.before(other)
            waits = round(WAITS * (1 + rounds.in_vain), 2)
            rounds.met += scene.given_up(told, slow, waits, mark=told.script, hang_up=met % 2 == 1)
            told.first(other, PATIENT)
            told.after(other)
            assert told.state(scene.client) == told.end
            late = scene.line.deliver()
            assert told.state(scene.client) == told.end, f"a ghost; Redis answered the late call {late!r}"
