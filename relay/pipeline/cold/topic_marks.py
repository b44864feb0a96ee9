"""The marks of a plan's topics: opened before the plan reads anything, renewed while a driver works on it,
and closed when it is done."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from relay.core.errors import InvalidField, OtherLayout, ServiceError, WrongKeyType
from relay.core.instants import SECOND
from relay.core.partitions import Layout
from relay.pipeline.cold.store import ColdStore
from relay.pipeline.spark.redis_target import Target
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import HeldMarks, Loading, Marks


class SweepBusy(ServiceError):
    """Another sweep of this topic is under way, or one over another store was never finished. `held` are the
    plan and the place of a sweep that has a driver."""

    def __init__(self, message: str, held: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        self.held = held


@dataclass(frozen=True, slots=True)
class Lock:
    """For how long a driver owns marks (`micros`), after how many seconds marks that nobody keeps are
    removed, and whether a plan of another store is given up that nobody has finished."""

    micros: int
    ttl: int
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """The marks of topics, and why others have none."""

    marks: dict[str, Marks] = field(default_factory=dict)
    refused: dict[str, SweepBusy] = field(default_factory=dict)


class TopicMarks:
    """One driver's marks."""

    def __init__(self, cold: ColdStore, target: Target, lock: Lock) -> None:
        self._cold, self._target, self._lock = cold, target, lock
        self._driver = secrets.token_hex(8)
        self._name = cold.name
        self._open_now: dict[str, Marks] = {}

    def open(self, topics: Iterable[str], plan: str, patience: float) -> Opened:
        """Open marks for a plan. All topics together wait for `patience` seconds for other sweeps and for
        moves, which may be longer than marks are a driver's: they are kept meanwhile. Raises `StoreError`."""
        deadline = time.monotonic() + patience
        opened = Opened()
        with self._target.open() as store, self.kept(opened.marks.values()):
            for topic in sorted(topics):
                try:
                    opened.marks[topic] = self._open(store, topic, plan, deadline)
                except SweepBusy as busy:
                    opened.refused[topic] = busy
        self._open_now |= opened.marks
        return opened

    def close(self, marks: Iterable[Marks]) -> None:
        """Close marks, as far as they are this driver's still."""
        with self._target.open() as store:
            loading = Loading(store.server)
            for each in marks:
                self._open_now.pop(each.layout.topic, None)
                with suppress(OtherLayout):  # then they are not this plan's
                    loading.close(each.layout, each.plan, self._driver)

    def close_left(self, topics: Iterable[str], plan: str) -> None:
        """Close the marks of a plan that is done, if its driver was killed before it closed them. Whoever has
        opened them since for a later plan has a name of his own, and keeps them."""
        with self._target.open() as store:
            loading = Loading(store.server)
            for topic in topics:
                layout = store.layouts.look_up(topic)
                key = store.server.keys.key("marks", layout.partitions[0])
                of, place, driver = store.server.ask("HMGET", key, "plan", "store", "driver")
                if (of, place) == (plan.encode(), self._name.encode()):
                    with suppress(OtherLayout):
                        loading.close(layout, plan, driver.decode())

    def close_all(self, without: Collection[str]) -> None:
        """Close what this driver has opened and not closed, for a plan that another was quicker to begin and
        has finished."""
        self.close([marks for topic, marks in self._open_now.items() if topic not in without])

    @contextmanager
    def kept(self, marks: Collection[Marks]) -> Generator[None, None, None]:
        """Keep marks within the block, also those that come to the collection meanwhile. A failure breaks
        nothing: a load notices lost marks by itself."""
        over = threading.Event()

        def keep() -> None:
            while not over.wait(self._lock.micros / SECOND / 3):
                with suppress(ServiceError), self._target.open() as store:
                    loading = Loading(store.server)
                    for each in list(marks):
                        with suppress(OtherLayout, WrongKeyType):  # they are that topic's alone
                            loading.keep(
                                each.layout,
                                each.plan,
                                self._driver,
                                lock=self._lock.micros,
                                ttl=self._lock.ttl,
                            )

        thread = threading.Thread(target=keep, name="marks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _open(self, store: BulkStore, topic: str, plan: str, deadline: float) -> Marks:
        while True:
            told = self._opened(store, topic, plan, max(deadline - time.monotonic(), 0.0))
            if isinstance(told, Marks):
                return told
            if not told.micros:
                raise SweepBusy(
                    f"a sweep of {topic!r} over {told.place} was not finished (plan {told.plan}): run "
                    "that one again first, or, if nobody ever will, this one with --take-over"
                )
            if time.monotonic() + told.micros / SECOND > deadline:
                raise SweepBusy(
                    f"another sweep of {topic!r} is under way, over {told.place}; run this one later",
                    (told.plan, told.place),
                )
            time.sleep(told.micros / SECOND)

    def _opened(self, store: BulkStore, topic: str, plan: str, patience: float) -> Marks | HeldMarks:
        """Open the marks of all partitions, or return those that another has. Raises `SweepBusy` for a topic
        that moves."""
        loading = Loading(store.server)
        while True:
            try:
                layout = store.layouts.at_rest(topic, patience)
            except InvalidField as moves:
                raise SweepBusy(f"{moves.field}: {moves.problem}") from None
            try:
                return self._open_all(loading, layout, plan)
            except OtherLayout as told:
                store.layouts.learn(topic, told.layout)

    def _open_all(self, loading: Loading, layout: Layout, plan: str) -> Marks | HeldMarks:
        """The first partition's marks keep others away, and moves. They come first."""
        epochs: list[str] = []
        for partition in layout.partitions:
            told = loading.open(
                partition,
                plan,
                self._driver,
                lock=self._lock.micros,
                ttl=self._lock.ttl,
                epoch=secrets.token_hex(8),
                store=self._name,
                place=self._cold.place,
                take_over=self._lock.take_over,
            )
            if isinstance(told, HeldMarks):
                return told
            epochs.append(told)
        return Marks(layout, " ".join(epochs), plan)
