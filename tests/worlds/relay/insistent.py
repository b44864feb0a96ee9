"""A caller who repeats each call until it is answered, by one relay after the other."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

import grpc

from relay.v1 import timer_pb2
from tests.asked_for import AskedFor
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

    def cancel(self, topic: str, timer_id: str) -> AskedFor:
        """Cancel a timer; what was asked for. Raises `GivenUp`."""
        began = time.time()
        self.ask(lambda producer: producer.cancel(topic, timer_id, timeout=TRY))
        return AskedFor(timer_id, began, time.time(), answered=True, cancels=True)


class InsistentThread(ABC):
    """Such a caller in a thread, from the time at which it is entered. Leaving it waits for its end."""

    def __init__(self, producers: Sequence[Producer], topic: str, name: str) -> None:
        self._caller = Insistent(producers)
        self._topic = topic
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    @abstractmethod
    def _play(self) -> None:
        """What it does, until it has done all or is left."""

    @property
    def refusals(self) -> Counter[grpc.StatusCode]:
        """The tries that ended with an error, by its code."""
        return self._caller.refusals

    def _run(self) -> None:
        with suppress(GivenUp):
            self._play()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        if kind is not None:
            self._caller.give_up()
        self._thread.join()


def due_at(topic: str, timer_id: str, due: int) -> timer_pb2.TimerSpec:
    """A timer whose payload is its due time (microseconds)."""
    spec = timer_pb2.TimerSpec(topic=topic, timer_id=timer_id, payload=b"%d" % due)
    spec.due_time.FromMicroseconds(due)
    return spec
