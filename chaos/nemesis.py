"""The nemesis: one fault after the other, in an order that a seed decides, while the load goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from chaos.faults.fault import Fault
from chaos.world import World

PAUSE = 0.05, 0.3
"""Seconds of peace between two faults."""


class Nemesis:
    """Strikes `number` times; each kind of fault comes about equally often.

    `done` counts them by name. It stops early where `minutes` are over: a row has an end.
    """

    def __init__(
        self, world: World, faults: Sequence[Fault], number: int, seed: int, *, minutes: float = 45.0
    ) -> None:
        self._world = world
        self._faults = faults
        self._number = number
        self._chance = Random(seed)
        self._minutes = minutes
        self.done: Counter[str] = Counter()

    def run(self, tell: Callable[[str], None]) -> None:
        """All of them. Raises AssertionError if the world does not become whole again."""
        ends = time.monotonic() + self._minutes * 60
        for fault in self._order():
            if time.monotonic() > ends:
                return
            self._one(fault)
            tell(f"{self.done.total()} of {self._number} faults")

    def _order(self) -> list[Fault]:
        order: list[Fault] = []
        while len(order) < self._number:
            order += self._chance.sample(self._faults, len(self._faults))
        return order[: self._number]

    def _one(self, fault: Fault) -> None:
        chance = Random(self._chance.random())
        self._world.ledger.write("strike", fault=fault.name)
        fault.strike(self._world, chance)
        time.sleep(chance.uniform(*fault.seconds))
        fault.heal(self._world)
        self._world.ledger.write("heal", fault=fault.name)
        self._world.until_whole()
        self.done[fault.name] += 1
        time.sleep(chance.uniform(*PAUSE))
