"""Moves the timers of topics that are to have another number of partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import random
from typing import NamedTuple

import anyio

from relay.core.dispatch import Dispatch
from relay.core.errors import InvalidField, OtherLayout, ServiceError
from relay.core.pacing import Jitter
from relay.core.partitions import MAX_PARTITIONS, Layout, is_count
from relay.core.policy import TopicPolicy
from relay.core.ports import Layouts, Moves
from relay.engine.clock import Clock
from relay.engine.loop_starter import LoopStarter
from relay.telemetry.metrics.catalogue import MOVED
from relay.telemetry.metrics.instruments import Instruments

PATIENCE = 5.0
"""Seconds without progress, plus up to half of them again, after which a relay takes part in a move that
another one has begun."""

RETRY = 1.0
"""Seconds between two tries of a move that did not end."""

log = logging.getLogger(__name__)


class Watched(NamedTuple):
    """A move that another relay does, its progress, and when it is left if there is no more until then."""

    layout: Layout
    progress: str
    until: float


class Mover:  # see 0084
    """Does the moves that this relay has begun, and goes on with those that others have left.

    There is no lock: a relay that sees no progress takes part. Several relays at once waste work and do no
    harm.
    """

    def __init__(
        self,
        moves: Moves,
        layouts: Layouts,
        policy: Callable[[str], TopicPolicy],
        clock: Clock,
        instruments: Instruments,
        jitter: Jitter = random,
    ) -> None:
        self._moves = moves
        self._layouts = layouts
        self._policy = policy
        self._clock = clock
        self._instruments = instruments
        self._jitter = jitter
        self._ours: dict[str, int] = {}
        """The epochs of the moves that this relay has begun, or has taken up, by topic."""
        self._watched: dict[str, Watched] = {}
        self._at_work: set[str] = set()
        """The topics that have a task here."""
        self._early: set[str] = set()
        """Those that were heard of before there were tasks."""
        self._loops: LoopStarter | None = None
        layouts.changed.append(self._look)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._loops = LoopStarter(tasks)
                for topic in self._early:
                    self._look(topic)
                await anyio.sleep_forever()
        finally:
            self._loops = None

    async def begin(self, topic: str, partitions: int, *, rate: int = 0) -> Layout:
        """Begin a move, and do it; see `Moves.begin`. Raises `InvalidField` where that can't be,
        `StoreError`."""
        policy = self._policy(topic)
        if not is_count(partitions):
            raise InvalidField(
                "partitions", f"must be a power of two from 1 to {MAX_PARTITIONS}, got {partitions}"
            )
        if policy.dispatch is not Dispatch.LEASE:
            raise InvalidField(
                "partitions", f"can't be changed: a topic with dispatch {policy.dispatch.value} has one"
            )
        before = self._layouts.known(topic)
        layout = await self._moves.begin(topic, partitions, rate=rate)
        if before is None or before.epoch != layout.epoch:  # otherwise another relay has begun it
            self._ours[topic] = layout.epoch  # before the task runs that `_look` has started
        return layout

    def _look(self, topic: str) -> None:
        layout = self._layouts.known(topic)
        if layout is None or not layout.towards or topic in self._at_work:
            return
        if self._loops is None:
            self._early.add(topic)
            return
        self._at_work.add(topic)
        self._loops.start(self._move, topic)

    async def _move(self, topic: str) -> None:
        """Work on a topic until it is at rest."""
        said = False
        try:
            while (layout := self._layouts.known(topic)) is not None and layout.towards:
                try:
                    if self._ours.get(topic) == layout.epoch or await self._is_left(layout):
                        await self._do(layout)
                except OtherLayout:
                    pass  # the layout that it has is known by now, as a rule
                except Exception as failure:  # whatever it is, it must not end the relay
                    if not said:
                        log.warning(
                            "a topic can't be moved now",
                            extra=_about(layout) | {"reason": str(failure)},
                            exc_info=None if isinstance(failure, ServiceError) else failure,
                        )
                    said = True
                # A place that has lost data may have an older layout, by which the move can't end yet.
                if self._layouts.known(topic) == layout:
                    await self._clock.sleep(RETRY)
        finally:
            self._at_work.discard(topic)
            self._watched.pop(topic, None)

    async def _is_left(self, layout: Layout) -> bool:
        """Wait for a while, and return whether nobody has moved anything meanwhile: then the move is ours.

        The wait goes on after an error: otherwise a move could be left for as long as nodes come and go.
        """
        topic = layout.topic
        watched = self._watched.get(topic)
        if watched is None or watched.layout != layout:
            watched = self._watch(layout, await self._moves.last(layout))
        await self._clock.sleep(max(watched.until - self._clock.now(), 0))
        if self._layouts.known(topic) != layout:
            return False
        progress = await self._moves.last(layout)
        if progress != watched.progress:
            self._watch(layout, progress)
            return False
        self._ours[topic] = layout.epoch
        return True

    def _watch(self, layout: Layout, progress: str) -> Watched:
        until = self._clock.now() + PATIENCE * (1 + self._jitter() / 2)
        watched = self._watched[layout.topic] = Watched(layout, progress, until)
        return watched

    async def _do(self, layout: Layout) -> None:
        rate, began, count = await self._moves.rate(layout), self._clock.now(), 0
        log.info("moving the timers of a topic", extra=_about(layout) | {"rate": rate})

        async def moved(size: int) -> None:
            nonlocal count
            count += size
            self._instruments.count(MOVED, layout.topic, n=size)
            if rate:
                await self._clock.sleep(max(began + count / rate - self._clock.now(), 0))

        await self._moves.run(layout, moved)
        log.info("the timers of a topic have been moved", extra=_about(layout) | {"count": count})


def _about(layout: Layout) -> dict[str, str | int]:
    return {"topic": layout.topic, "partitions": layout.count, "towards": layout.towards}
