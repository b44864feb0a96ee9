"""A connection is cut in the middle of a reply: Redis has run the call, and the relay can't know."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.chaos import count
from tests.ghosts.callers import ByGrpc, Caller
from tests.ghosts.rounds import Rounds
from tests.ghosts.scene import HASTY, Scene
from tests.ghosts.stories import PATIENT, STORIES, Story, answered

pytestmark = pytest.mark.slow

ROUNDS = count(2, 400)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_an_open_outcome_is_told_when_it_is_over(scene: Scene, story: type[Story]) -> None:
    """Whether it acted is known to nobody; that it acts no more is what the caller has to know, and so the
    error comes no earlier. Each time another part of the reply arrives."""
    topic, rounds = "orders", Rounds(ROUNDS, "Redis sent a reply to the call, which was cut")
    with closing(ByGrpc(scene.hasty, topic)) as slow, closing(ByGrpc(scene.other, topic)) as other:
        for met in rounds:
            scene.tell(story, topic).play(slow, other)
            told = scene.tell(story, topic)
            told.before(other)
            rounds.met += cut(scene, told, slow, after=met % 8)
            told.first(other, PATIENT)
            told.after(other)
            assert told.state(scene.client) == told.end


def cut(scene: Scene, told: Story, caller: Caller, *, after: int) -> bool:
    """Make the first call, and cut its reply after so many bytes. Whether it came to that: the relay may have
    had too little time."""
    before = scene.line.cut
    scene.line.cut_reply(told.script, after)
    began = time.monotonic()
    assert not answered(lambda: told.first(caller, PATIENT))
    if scene.line.cut == before:
        return False
    assert time.monotonic() - began >= HASTY, "the relay told of an open outcome while the call could act"
    return True
