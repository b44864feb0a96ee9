"""A relay stands still while a call lies in its socket. Its caller is gone when it goes on."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.chaos import count
from tests.ghosts.callers import ByGrpc, ByHttp, Caller, Detour
from tests.ghosts.rounds import Rounds
from tests.ghosts.scene import Scene
from tests.ghosts.slow_line import SlowLine
from tests.ghosts.stories import PATIENT, STORIES, Resumed, ScheduledAnew, Story

ROUNDS = count(1, 400)

WAITS = 0.3
"""Seconds that the first caller waits, and more after each round in which they were over before its bytes
were on their way."""

OVER = b"no effect from now on"
"""What the relay says to a call whose time is over."""

TOLD = [
    pytest.param(way, story, id=f"{name}-{story.name}")
    for name, way, stories in (
        ("grpc", ByGrpc, [story for story in STORIES if story is not Resumed]),
        ("http", ByHttp, [ScheduledAnew]),
    )
    for story in stories
]
"""The line has to know the last bytes of the first call: a timer's id, and no body behind it."""


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("way", "story"), TOLD)
def test_what_waited_in_a_relay_does_nothing(scene: Scene, way: type[Caller], story: type[Story]) -> None:
    """Race: the relay is frozen when the call comes, and does not hear that its caller has gone, since the
    line keeps that back. It reads the call as one that has just come, and has all of its time. The caller has
    repeated it by another relay by then, and gone on."""
    topic, relay = "orders", scene.patient
    rounds = Rounds(ROUNDS, "the bytes were on their way when the caller gave up")
    address = relay.target if way is ByGrpc else relay.api
    with (
        SlowLine(int(address.rpartition(":")[2])) as line,
        closing(way(Detour(f"127.0.0.1:{line.port}", f"127.0.0.1:{line.port}"), topic)) as slow,
        closing(way(scene.other, topic)) as other,
    ):
        for _ in rounds:
            scene.tell(story, topic).play(slow, other)  # so that a connection is there, and the scripts
            told = scene.tell(story, topic)
            told.before(other)
            waits = round(WAITS * (1 + rounds.in_vain), 2)
            with relay.frozen():
                rounds.met += scene.given_up(told, slow, waits, line=line, pass_on=True)
                told.first(other, PATIENT)
                told.after(other)
            line.wait_answered(OVER)
            assert told.state(scene.client) == told.end, "a ghost"
