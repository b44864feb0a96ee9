"""Many timers that fall due soon, written by the batch, some of them moved and some cancelled before that."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

from relay.core.instants import SECOND
from tests.asked_for import AskedFor
from tests.worlds.relay.insistent import TRY, InsistentThread, due_at
from tests.worlds.relay.producer import Producer

BATCH = 50
SOON, LATER = 0.05, 6.0
"""Seconds from a call to the due time that it names, at least and at most."""
MOVED, CANCELLED = 0.2, 0.1
"""Parts of the timers that are moved once, and that are cancelled in the end."""


class Crowd(InsistentThread):
    """Writes `size` timers over about `seconds` in a thread, each call repeated until it is answered. `asked`
    are its calls. A payload is the due time (microseconds), which no other call has for that timer."""

    def __init__(
        self,
        producers: Sequence[Producer],
        topic: str,
        size: int,
        *,
        seed: int,
        seconds: float,
        name: str = "crowd",
    ) -> None:
        super().__init__(producers, topic, name)
        self._ids = [f"{name}-{n}" for n in range(size)]
        self._pause = seconds * BATCH / size
        self._chance = random.Random(seed)
        self.asked: list[AskedFor] = []
        self.written = 0
        """How many timers are through: written, and moved or cancelled if they were to be."""

    @property
    def size(self) -> int:
        """How many timers there will be."""
        return len(self._ids)

    def _play(self) -> None:
        begins = time.monotonic()
        while self.written < self.size and not self._leaving.wait(max(begins - time.monotonic(), 0)):
            begins += self._pause
            batch = self._ids[self.written : self.written + BATCH]
            self._store({timer_id: self._soon() for timer_id in batch})
            moved = self._chance.sample(batch, round(len(batch) * MOVED))
            self._store({timer_id: self._soon() for timer_id in moved})
            for timer_id in self._chance.sample(batch, round(len(batch) * CANCELLED)):
                self.asked.append(self._caller.cancel(self._topic, timer_id))
            self.written += len(batch)

    def _soon(self) -> int:
        return int((time.time() + self._chance.uniform(SOON, LATER)) * SECOND)

    def _store(self, dues: Mapping[str, int]) -> None:
        left, began = [due_at(self._topic, *each) for each in dues.items()], time.time()
        while left:
            again = self._caller.ask(
                lambda producer: producer.store_many(left, timeout=TRY, wait=False)  # noqa: B023
            )
            ended, names = time.time(), {spec.timer_id for spec in again}
            for spec in left:
                if spec.timer_id not in names:
                    due = dues[spec.timer_id]
                    self.asked.append(AskedFor(spec.timer_id, began, ended, answered=True, due=due))
            left = again
