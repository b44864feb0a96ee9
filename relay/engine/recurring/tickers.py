"""Which topics this relay ticks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
from anyio.abc import TaskStatus

from relay.core.policy import Policies
from relay.core.ports import Layouts, RecurrenceStore, share
from relay.engine.claiming.timeline_loops import NO_LAYOUT
from relay.engine.claiming.timetable import Timetable
from relay.engine.clock import Clock
from relay.engine.loop_starter import LoopStarter
from relay.engine.recurring.computing import Computing
from relay.engine.recurring.kept_calendars import KeptCalendars
from relay.engine.recurring.ticker import Ticker
from relay.engine.recurring.zone_updates import ZoneUpdates
from relay.engine.redis_health import RedisHealth
from relay.telemetry.metrics.instruments import Instruments


class Tickers:
    """A ticker for each partition of the topics that this relay has to do with, from then on: those that its
    settings name, that its applications take, that it was called about recurrences of.

    Relays that tick for one topic need not know of each other.
    """

    def __init__(
        self,
        store: RecurrenceStore,
        calendars: KeptCalendars,
        layouts: Layouts,
        policies: Policies,
        computing: Computing,
        due_at: Callable[[str, int], None],
        redis_health: RedisHealth,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """`due_at` is told the due times of occurrences, by partition."""
        self._store = store
        self._calendars = calendars
        self._layouts = layouts
        self._policies = policies
        self._due_at = due_at
        self._redis_health = redis_health
        self._clock = clock
        self._instruments = instruments
        self._computing = computing
        self._zone_updates = ZoneUpdates(store, redis_health, computing)
        self._loops: LoopStarter | None = None
        self._followed: dict[str, anyio.CancelScope] = {}
        self._partitions: dict[str, tuple[str, ...]] = {}
        self._tickers: dict[str, Ticker] = {}
        """By partition."""
        layouts.changed.append(self._replace)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Tick until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._loops = LoopStarter(tasks)
                for topic in self._policies.own:
                    self.follow(topic)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._loops = None

    def follow(self, topic: str) -> None:
        """Tick for a topic from now on."""
        if self._loops is None or topic in self._followed:
            return
        scope = self._followed[topic] = anyio.CancelScope()
        self._loops.start(self._tick, topic, scope)

    def due_at(self, partition: str, instant: int) -> None:
        """Look at a partition at `instant` at the latest (microseconds by the server's clock)."""
        if partition in self._tickers:
            self._tickers[partition].due_at(instant)

    async def _tick(self, topic: str, scope: anyio.CancelScope) -> None:
        with scope:
            layout = self._layouts.known(topic)
            if layout is None:
                ask = partial(self._layouts.ask, topic)
                layout = await self._redis_health.insist(topic, ask, NO_LAYOUT)
            tickers = {partition: self._ticker(partition) for partition in layout.partitions}
            self._partitions[topic] = layout.partitions
            self._tickers |= tickers
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._zone_updates.run, layout)
                    for ticker in tickers.values():
                        tasks.start_soon(ticker.run)
            finally:
                for partition in tickers:
                    self._tickers.pop(partition, None)

    def _ticker(self, partition: str) -> Ticker:
        policy = self._policies(partition)
        return Ticker(
            partition,
            Timetable(policy, self._clock),
            self._store,
            self._calendars,
            self._computing,
            self._due_at,
            lambda name: share(self._layouts, name, policy.max_waiting),
            self._redis_health,
            self._instruments,
        )

    def _replace(self, topic: str) -> None:
        """Note that another layout of the topic is known than before."""
        layout, ticked = self._layouts.known(topic), self._partitions.get(topic)
        if self._loops is None or layout is None or ticked is None or ticked == layout.partitions:
            return
        self._followed.pop(topic).cancel()
        del self._partitions[topic]
        self.follow(topic)
