"""Many timers that fall due soon, written by the batch, some of them moved and some cancelled before that."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import grpc

from relay.core.instants import SECOND
from relay.v1 import timer_pb2
from tests.asked_for import AskedFor
from tests.worlds.relay.insistent import TRY, GivenUp, Insistent
from tests.worlds.relay.producer import Producer

BATCH = 50
SOON, LATER = 0.05, 6.0
"""Seconds from a call to the due time that it names, at least and at most."""
MOVED, CANCELLED = 0.2, 0.1
"""Parts of the timers that are moved once, and that are cancelled in the end."""


class Crowd:
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
        self._caller = Insistent(producers)
        self._topic = topic
        self._ids = [f"{name}-{n}" for n in range(size)]
        self._pause = seconds * BATCH / size
        self._chance = random.Random(seed)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)
        self.asked: list[AskedFor] = []
        self.written = 0
        """How many timers are through: written, and moved or cancelled if they were to be."""

    @property
    def size(self) -> int:
        """How many timers there will be."""
        return len(self._ids)

    @property
    def refusals(self) -> Counter[grpc.StatusCode]:
        """The tries that ended with an error, by its code."""
        return self._caller.refusals

    def _run(self) -> None:
        with suppress(GivenUp):
            self._play()

    def _play(self) -> None:
        begins = time.monotonic()
        while self.written < self.size and not self._leaving.wait(max(begins - time.monotonic(), 0)):
            begins += self._pause
            batch = self._ids[self.written : self.written + BATCH]
            self._store({timer_id: self._soon() for timer_id in batch})
            moved = self._chance.sample(batch, round(len(batch) * MOVED))
            self._store({timer_id: self._soon() for timer_id in moved})
            for timer_id in self._chance.sample(batch, round(len(batch) * CANCELLED)):
                self._cancel(timer_id)
            self.written += len(batch)

    def _soon(self) -> int:
        return int((time.time() + self._chance.uniform(SOON, LATER)) * SECOND)

    def _store(self, dues: Mapping[str, int]) -> None:
        left, began = [_spec(self._topic, *each) for each in dues.items()], time.time()
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

    def _cancel(self, timer_id: str) -> None:
        began = time.time()
        self._caller.ask(lambda producer: producer.cancel(self._topic, timer_id, timeout=TRY))
        self.asked.append(AskedFor(timer_id, began, time.time(), answered=True, cancels=True))

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


def _spec(topic: str, timer_id: str, due: int) -> timer_pb2.TimerSpec:
    spec = timer_pb2.TimerSpec(topic=topic, timer_id=timer_id, payload=b"%d" % due)
    spec.due_time.FromMicroseconds(due)
    return spec
