"""Clocks that are set, in rows with `clocks`."""

from __future__ import annotations

from random import Random

from chaos.under.clocks import Clocks, Owner
from chaos.world import World

HOUR = 3_600


def clocks_of(world: World) -> Clocks:
    assert world.clocks, "the row has no clocks"
    return world.clocks


class ClockStepped:
    """The clock of one process is an hour ahead, or an hour behind; then it is right again, by a step."""

    seconds = 1.0, 4.0

    def __init__(self, owner: Owner) -> None:
        self.name = f"clock of {owner} stepped"
        self._owner: Owner = owner

    def strike(self, world: World, chance: Random) -> None:
        self._clock = chance.choice(clocks_of(world).of[self._owner])
        self._clock.step(chance.choice((-HOUR, HOUR)))

    def heal(self, world: World) -> None:
        self._clock.step(0)


class ClockLeaps:
    """A server's clock leaps back by seconds, a few times in a row, while scripts go by it; then it is right
    again."""

    name = "clock of server leaps back"
    seconds = 0.5, 2.0

    def strike(self, world: World, chance: Random) -> None:
        self._clock = chance.choice(clocks_of(world).of["server"])
        behind = 0
        for _ in range(chance.randint(1, 4)):
            behind += chance.randint(1, 3)
            self._clock.step(-behind)

    def heal(self, world: World) -> None:
        self._clock.step(0)
