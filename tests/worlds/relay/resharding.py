"""Somebody who gives a topic more partitions and fewer again, whatever happens to the relays."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import grpc

from tests.worlds.relay.insistent import GivenUp, Insistent
from tests.worlds.relay.producer import Producer

PAUSE = 0.1
"""Seconds between two questions whether a move is over."""


class Resharding:
    """Moves a topic into each of these numbers of partitions in turn, at so many timers a second, in a
    thread. Leaving it waits for the last move. `done` are the numbers that were reached."""

    def __init__(
        self, producers: Sequence[Producer], topic: str, numbers: Sequence[int], *, rate: int
    ) -> None:
        self._caller = Insistent(producers)
        self._topic = topic
        self._numbers = numbers
        self._rate = rate
        self._thread = threading.Thread(target=self._run, name="resharding")
        self.done: list[int] = []

    @property
    def refusals(self) -> Counter[grpc.StatusCode]:
        """The tries that ended with an error, by its code."""
        return self._caller.refusals

    def _run(self) -> None:
        with suppress(GivenUp):
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

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._caller.give_up()
        self._thread.join()
