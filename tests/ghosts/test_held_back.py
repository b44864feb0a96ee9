"""Bytes that arrive after their caller gave them up: a network that is merely slow."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.chaos import count
from tests.ghosts.callers import ByColumns, ByGrpc, ByHttp, Caller
from tests.ghosts.rounds import Rounds
from tests.ghosts.scene import Scene
from tests.ghosts.stories import PATIENT, STORIES, Resumed, Story

ROUNDS = count(2, 400)
"""How often the bytes of a call have to be on their way when it is given up."""

WAYS: dict[str, type[Caller]] = {"grpc": ByGrpc, "columns": ByColumns, "http": ByHttp}
TOLD = [
    pytest.param(way, story, id=f"{name}-{story.name}")
    for name, way in WAYS.items()
    for story in STORIES
    if not (way is ByColumns and story is Resumed)  # which schedules nothing
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("way", "story"), TOLD)
def test_the_relay_gives_up(scene: Scene, way: type[Caller], story: type[Story]) -> None:
    """The relay says that there is no answer: in turn because none came in time, and because its connection
    was cut. From then on the call can't act: not on what the caller asks for next."""
    topic, rounds = "orders", Rounds(ROUNDS, "the bytes were on their way when the relay gave up")
    with closing(way(scene.hasty, topic)) as slow, closing(way(scene.other, topic)) as other:
        for met in rounds:
            told = scene.tell(story, topic)
            told.before(other)
            rounds.met += scene.given_up(told, slow, mark=told.script, hang_up=met % 2 == 1)
            told.first(other, PATIENT)
            told.after(other)
            assert told.state(scene.client) == told.end
            late = scene.line.deliver()
            assert told.state(scene.client) == told.end, f"a ghost; Redis answered the late call {late!r}"
