"""A rolling upgrade from the version before, and back."""

from __future__ import annotations

from random import Random

from chaos.under.code import before, unpack
from chaos.world import World


class RelayReplaced:
    """A relay ends in order, and one of the other version comes in its place: first each becomes one of the
    version before, then each one of this version again, and so on. Two versions serve one topic meanwhile."""

    name = "relay replaced, other version"
    seconds = 0.0, 1.0

    def __init__(self) -> None:
        self._struck = 0

    def strike(self, world: World, chance: Random) -> None:
        old = world.directory / "version-before"
        if not old.exists():
            self._new = world.relays[0].root
            unpack(before(), old)
        number = len(world.relays)
        self._relay = world.relays[self._struck % number]
        self._relay.terminate()
        self._relay.root = self._new if (self._struck // number) % 2 else old
        self._struck += 1

    def heal(self, world: World) -> None:
        self._relay.start()
