"""Somebody who gives a topic more partitions and fewer again, whatever happens to the relays."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.worlds.relay.insistent import InsistentThread
from tests.worlds.relay.producer import Producer

PAUSE = 0.1
"""Seconds between two questions whether a move is over."""


class Resharding(InsistentThread):
    """Moves a topic into each of these numbers of partitions in turn, at `rate` timers a second, in a
    thread. Leaving it waits for the last move. `done` are the numbers that were reached."""

    def __init__(
        self, producers: Sequence[Producer], topic: str, numbers: Sequence[int], *, rate: int
    ) -> None:
        super().__init__(producers, topic, "resharding")
        self._numbers = numbers
        self._rate = rate
        self.done: list[int] = []

    def _play(self) -> None:
        for number in self._numbers:
            while not self._has(number):
                time.sleep(PAUSE)
            self.done.append(number)

    def _has(self, number: int) -> bool:
        topic = self._caller.ask(
            lambda producer: producer.reshard(
                self._topic, number, rate=self._rate, timeout=self._caller.patience
            )
        )
        return topic.partitions == number and not topic.moving_to
