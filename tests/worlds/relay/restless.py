"""Callers who change their minds: they schedule timers, move them and cancel them, and repeat each call until
it is answered, whatever happens to the relays."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from relay.core.instants import SECOND
from tests.asked_for import AskedFor
from tests.worlds.relay.insistent import TRY, InsistentThread, due_at
from tests.worlds.relay.producer import Producer

CHANGES = 4
"""How many times a timer is changed; then it is to be delivered, or it stays cancelled."""


class Restless(InsistentThread):
    """One such caller, in a thread, until it is left. `asked` are its calls; `wanted` the timers that it
    wants in the end, and `unwanted` those that it does not. A payload is the due time (microseconds)."""

    def __init__(
        self, producers: Sequence[Producer], topic: str, *, seed: int, name: str = "restless"
    ) -> None:
        super().__init__(producers, topic, name)
        self._name = name
        self._chance = random.Random(seed)
        self._due = int(time.time() + 7200) * SECOND
        self.asked: list[AskedFor] = []
        self.wanted: set[str] = set()
        self.unwanted: set[str] = set()

    def __str__(self) -> str:
        tries = f"{len(self.asked)} calls in {self._caller.tries} tries"
        return (
            f"{tries}, for {len(self.wanted)} timers that were wanted and {len(self.unwanted)} that were not"
        )

    def _play(self) -> None:
        number = 0
        while not self._leaving.is_set():
            number += 1
            self._timer(f"{self._name}-{number}")

    def _timer(self, timer_id: str) -> None:
        """All that is asked for one timer; its due times are hours away, but for the last."""
        self._schedule(timer_id, self._later())
        for _ in range(self._chance.randrange(CHANGES)):
            if self._chance.random() < 0.5:
                self.asked.append(self._caller.cancel(self._topic, timer_id))
            if self._chance.random() < 0.7:
                self._schedule(timer_id, self._later())
        if self._chance.random() < 0.3:
            self.asked.append(self._caller.cancel(self._topic, timer_id))
            self.unwanted.add(timer_id)
        else:
            self._schedule(timer_id, int(time.time() * SECOND))
            self.wanted.add(timer_id)

    def _later(self) -> int:
        """A due time that no other call has."""
        self._due += 1
        return self._due

    def _schedule(self, timer_id: str, due: int) -> None:
        spec = due_at(self._topic, timer_id, due)
        began = time.time()
        self._caller.ask(lambda producer: producer.store(spec, timeout=TRY, wait=False))
        self.asked.append(AskedFor(timer_id, began, time.time(), answered=True, due=due))
