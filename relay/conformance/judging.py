"""Plays the scenes, one after the other, and says how each went."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from relay.conformance.observed import Broken, Unasked
from relay.conformance.scene import Scene
from relay.conformance.stage import set_up
from relay.conformance.under_test import MakeClient

PAGE = "docs/reference/protocol.md"


class Grade(StrEnum):
    """How a scene went."""

    PASSED = "passed"
    FAILED = "failed"
    LEFT_OUT = "left out"
    """The scene is about something that the client did not ask for."""


@dataclass(frozen=True, slots=True)
class SceneVerdict:
    """A scene, how it went, what was found against the client, and how long it took in seconds."""

    scene: Scene
    grade: Grade
    found: str
    seconds: float

    @property
    def section(self) -> str:
        """Where the rule is stated."""
        return f"{PAGE}#{self.scene.section}"


async def judge(make: MakeClient, scenes: Sequence[Scene], patience: float) -> AsyncIterator[SceneVerdict]:
    """Play the scenes with a client of its own each, and yield their verdicts as they come.

    `make` makes them. `patience` is the time in seconds that a client has for each step, once it has started.
    """
    for each in scenes:
        began = time.monotonic()
        grade, found = await _judged(make, each, patience)
        yield SceneVerdict(each, grade, found, time.monotonic() - began)


async def _judged(make: MakeClient, scene: Scene, patience: float) -> tuple[Grade, str]:
    async with set_up(make, patience) as stage:
        try:
            await scene.play(stage)
            stage.check()
        except Broken as broken:
            return Grade.FAILED, str(broken)
        except Unasked:
            return Grade.LEFT_OUT, ""
    return Grade.PASSED, ""
