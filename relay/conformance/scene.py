"""What a scene is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from relay.conformance.stage import Stage

Play = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A rule, where docs/reference/protocol.md states it, and what shows whether a client keeps it."""

    name: str
    rule: str
    section: str
    """The anchor in docs/reference/protocol.md."""
    play: Play


def scene(section: str, rule: str) -> Callable[[Play], Scene]:
    """Make a scene of a function, named after it, which raises `Broken` if the client breaks the rule."""

    def made(play: Play) -> Scene:
        return Scene(play.__name__.replace("_", "-"), rule, section, play)

    return made
