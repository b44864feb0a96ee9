"""What the nemesis calls a fault."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chaos.world import World


class Fault(Protocol):
    """One kind of fault. The nemesis calls `strike`, waits while the load goes on, calls `heal`, and begins
    the next one when `World.whole` holds again. So an object has at most one strike under way, and keeps what
    `heal` needs.

    Whoever takes from a server what it had answered for, says until when it is known to be safe with
    `World.lost_after`: the judge counts what was acknowledged later as explained loss, and nothing else.
    """

    name: str
    """As the page names it, such as "relay killed"."""

    seconds: tuple[float, float]
    """How long the nemesis waits between `strike` and `heal`: between these, by chance. (0, 0) where `strike`
    is all of it."""

    def strike(self, world: World, chance: Random) -> None:
        """Do it. It has happened when this returns."""

    def heal(self, world: World) -> None:
        """Undo it, so that everything runs again; it may take a while until everything is in step."""
