"""Redis stands still while a call lies in its socket. Its caller is gone when it goes on."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.chaos import count
from tests.ghosts.callers import ByGrpc
from tests.ghosts.rounds import Rounds
from tests.ghosts.scene import Scene
from tests.ghosts.stories import PATIENT, Cancelled, Moved, ScheduledAnew, Story

ROUNDS = count(2, 400)

STORIES = Moved, Cancelled, ScheduledAnew
"""Those whose first call begins with what acts. The others read first how things stand, for the action log,
and come no further while Redis stands still; `test_held_back` holds what acts."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_what_waited_in_redis_does_nothing(scene: Scene, story: type[Story]) -> None:
    """It is SIGSTOP, as when a machine is paused: the first thing that Redis does then is to run the call."""
    topic, rounds = "orders", Rounds(ROUNDS, "the bytes were on their way to Redis when the relay gave up")
    with closing(ByGrpc(scene.hasty, topic)) as slow, closing(ByGrpc(scene.other, topic)) as other:
        for met in rounds:
            scene.tell(story, topic).play(slow, other)  # so that a connection is there, and the scripts
            told = scene.tell(story, topic)
            told.before(other)
            scene.server.freeze()
            try:
                rounds.met += scene.given_up(told, slow, hang_up=met % 2 == 1, pass_on=True)
            finally:
                scene.server.thaw()
            late = scene.line.deliver()
            assert told.state(scene.client) == told.begin, f"a ghost; Redis answered the late call {late!r}"
            told.first(other, PATIENT)
            told.after(other)
            assert told.state(scene.client) == told.end
