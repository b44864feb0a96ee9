"""A caller who repeats each call until it is answered, by one relay after the other."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import grpc

from tests.worlds.relay.producer import Producer, code_of, is_final

TRY = 1.0
"""Seconds that a try may take. The next one, by the next relay, begins when it can't act any more."""

R = TypeVar("R")


class GivenUp(Exception):
    """The test has failed meanwhile, and there may never be an answer."""


class Insistent:
    """`tries` are all calls that were made, `refusals` those that ended with an error, by its code."""

    def __init__(self, producers: Sequence[Producer], patience: float = TRY) -> None:
        self._producers = producers
        self.patience = patience
        """Seconds that a try may take: `call` has to make it with this time-out."""
        self.tries = 0
        self.refusals: Counter[grpc.StatusCode] = Counter()
        self._giving_up = threading.Event()

    def give_up(self) -> None:
        """End `ask`, in whichever thread."""
        self._giving_up.set()

    def ask(self, call: Callable[[Producer], R]) -> R:
        """The answer. Raises `GivenUp`."""
        while not self._giving_up.is_set():
            producer = self._producers[self.tries % len(self._producers)]
            self.tries += 1
            began = time.monotonic()
            try:
                return call(producer)
            except grpc.RpcError as error:
                self.refusals[code_of(error)] += 1
                if not is_final(error):
                    time.sleep(max(began + self.patience - time.monotonic(), 0))
        raise GivenUp
