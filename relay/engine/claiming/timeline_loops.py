"""Which loops take due timers off timelines: pollers for topics that applications take, and promoters."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import anyio
from anyio.abc import TaskStatus

from relay.core.policy import Policies
from relay.core.ports import Stores
from relay.engine.claiming.clock_watch import ClockWatch
from relay.engine.claiming.poller import Poller
from relay.engine.claiming.preference import Preference
from relay.engine.claiming.promoter import Promoter
from relay.engine.claiming.recaller import Recaller
from relay.engine.claiming.timetable import Timetable
from relay.engine.clock import Clock
from relay.engine.delivery.dispatcher import Dispatcher
from relay.engine.loop_starter import LoopStarter
from relay.engine.redis_health import RedisHealth
from relay.telemetry.metrics.instruments import Instruments

NO_LAYOUT = "Redis refuses to say which partitions a topic has"


@dataclass(slots=True, eq=False)
class _Polled:
    """A topic that is polled: its partitions, which are none while its layout is asked for, and the scopes of
    its tasks."""

    partitions: Sequence[str] = ()
    scopes: list[anyio.CancelScope] = field(default_factory=list)
    preference: Preference | None = None

    def start(
        self,
        loop: Callable[[], Awaitable[None]],
        loops: LoopStarter,
        afterwards: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Start a loop that ends with the scopes, and what is to be done then."""
        scope = anyio.CancelScope()
        self.scopes.append(scope)

        async def run() -> None:
            with scope:
                await loop()
            if afterwards is not None:
                await afterwards()

        loops.start(run)


class TimelineLoops:
    """A poller for each partition of the topics that applications take, and a promoter for each topic with a
    list or a stream, with the wake hints that they wait for.

    A topic whose layout is not known is polled once it has been asked for. When a topic has another layout
    than was known, its pollers are replaced; a claim that is under way then ends as it would have, and one
    whose reply was lost is found as it would have been. Several relays share the partitions of a topic out
    among them.
    """

    def __init__(
        self,
        stores: Stores,
        policies: Policies,
        dispatcher: Dispatcher,
        redis_health: RedisHealth,
        clock: Clock,
        instruments: Instruments,
        nonce: Callable[[], bytes],
    ) -> None:
        self._stores = stores
        self._policies = policies
        self._dispatcher = dispatcher
        self._redis_health = redis_health
        self._clock = clock
        self._instruments = instruments
        self._nonce = nonce
        self._relay = secrets.token_hex(8)
        """This relay's name in heartbeats."""
        self._polled: dict[str, _Polled] = {}
        self._pollers: dict[str, Poller] = {}
        """By partition."""
        self._promoters: dict[str, Promoter] = {}
        self._loops: LoopStarter | None = None
        self._hints_lock = anyio.Lock()
        self._clock_watch: ClockWatch | None = None
        self._recaller: Recaller | None = None
        if stores.clocks is not None:
            self._clock_watch = ClockWatch(stores.places, stores.clocks, clock, self._stepped)
            self._recaller = Recaller(stores.clocks, policies, redis_health, clock)
        stores.layouts.changed.append(self._replace)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run all loops until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                self._loops = LoopStarter(tasks)
                self._promote(self._loops)
                if self._clock_watch is not None:
                    self._loops.start(self._clock_watch.run)
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._loops = None

    def poll(self, topic: str) -> None:
        """Take the due timers of a topic, which has a session, until `stop`. Raises `RuntimeError` if the
        loops do not run."""
        if self._loops is None:
            raise RuntimeError("the loops are not running")
        layout = self._stores.layouts.known(topic)
        if layout is None:
            polled = self._polled[topic] = _Polled()
            polled.start(partial(self._ask, topic), self._loops)
            return
        polled = self._polled[topic] = _Polled(layout.partitions)
        pollers = {partition: self._poller(partition) for partition in layout.partitions}
        for partition, poller in pollers.items():
            polled.start(poller.run, self._loops, poller.find_lost)
            if self._clock_watch is not None and self._recaller is not None:
                self._clock_watch.watch(partition)
                polled.start(partial(self._recaller.recall, partition), self._loops)
        self._pollers |= pollers
        if len(pollers) > 1 and self._stores.heartbeats is not None:
            polled.preference = Preference(
                self._relay,
                layout,
                pollers,
                self._stores.heartbeats,
                self._stores.hints,
                self._redis_health,
                self._clock,
                self._loops,
                stays_behind=lambda: self._dispatcher.behind(topic) > 0,
            )
            polled.start(polled.preference.run, self._loops, polled.preference.leave)
        self._loops.start(self._watch, layout.partitions)

    def stop(self, topic: str) -> None:
        """Poll a topic no more."""
        polled = self._polled.pop(topic)
        for scope in polled.scopes:
            scope.cancel()
        for partition in polled.partitions:
            del self._pollers[partition]
        if self._loops is not None:
            self._loops.start(self._watch, polled.partitions)

    async def leave(self) -> None:
        """Call other relays to the partitions that this one polls first, since it takes no more timers."""
        async with anyio.create_task_group() as tasks:
            for polled in self._polled.values():
                if polled.preference is not None:
                    tasks.start_soon(polled.preference.leave)

    @property
    def running(self) -> bool:
        """Whether topics can be polled."""
        return self._loops is not None

    def capacity_changed(self, topic: str) -> None:
        """Note that the applications of a topic have another room."""
        for partition in self._polled[topic].partitions if topic in self._polled else ():
            self._pollers[partition].capacity_changed()

    def wake(self, topic: str) -> None:
        """Look for due timers of the topic now."""
        for name in (topic, *(self._polled[topic].partitions if topic in self._polled else ())):
            self.due_at(name, 0)

    def due_at(self, partition: str, due: int) -> None:
        """Look for due timers of the partition at `due` at the latest (microseconds by the server's clock; 0
        means now); later, if other relays come first."""
        if partition in self._pollers:
            self._pollers[partition].due_at(due)
        if partition in self._promoters:
            self._promoters[partition].due_at(due)

    def called(self, partition: str, rank: int) -> None:
        """Help at the partition, if this relay has the rank that is called."""
        if partition in self._pollers:
            self._pollers[partition].called(rank)

    def clock_steps(self) -> dict[str, float]:
        """The largest step of each place's clock, in seconds; see `PlaceClock.seconds`."""
        return {} if self._clock_watch is None else self._clock_watch.seconds()

    def _stepped(self, partitions: Collection[str], by: int) -> None:
        """Note that the clock of some partitions has stepped: when their timers are due is to be asked again,
        and if it went back, leases stand too far ahead."""
        if self._recaller is None or self._loops is None:
            return
        stepped = set(partitions)
        for polled in self._polled.values():
            for partition in stepped.intersection(polled.partitions):
                self.due_at(partition, 0)
                if by < 0:
                    polled.start(partial(self._recaller.recall, partition, -by), self._loops)

    def _poller(self, partition: str) -> Poller:
        policy = self._policies(partition)
        return Poller(
            partition,
            policy,
            Timetable(policy, self._clock),
            self._stores.source(policy),
            self._dispatcher,
            self._redis_health,
            self._instruments,
            self._nonce,
        )

    async def _ask(self, topic: str) -> None:
        """Ask for a topic's layout until it is known. `_replace` is called then, whoever has asked."""
        await self._redis_health.insist(topic, partial(self._stores.layouts.ask, topic), NO_LAYOUT)

    def _replace(self, topic: str) -> None:
        """Note that another layout of the topic is known than before."""
        layout, polled = self._stores.layouts.known(topic), self._polled.get(topic)
        if self._loops is None or layout is None or polled is None:
            return
        if layout.partitions != polled.partitions:
            self.stop(topic)
            self.poll(topic)

    def _promote(self, loops: LoopStarter) -> None:
        """Start to move due timers out of the timelines of topics with a list or a stream, which have one
        partition each."""
        if self._stores.promotions is None:
            return
        names = self._policies.promoted()
        for topic, policy in names.items():
            self._promoters[topic] = Promoter(
                topic,
                Timetable(policy, self._clock),
                self._stores.promotions,
                self._redis_health,
                self._instruments,
                self._nonce,
            )
            loops.start(self._promoters[topic].run)
        loops.start(self._watch, tuple(names))

    async def _watch(self, partitions: Sequence[str]) -> None:
        """Start or stop to listen for hints on these partitions, as their pollers come and go.

        Calls come one at a time, each by the state at its turn. So the last call sees the last state,
        and a stream that ends while its call is under way does not end the hints of another stream's topic.
        """
        for name in partitions:
            async with self._hints_lock:
                if name in self._pollers or name in self._promoters:
                    hear = partial(self.due_at, name), partial(self.called, name)
                    await self._stores.hints.watch(name, *hear)
                else:
                    await self._stores.hints.unwatch(name)
