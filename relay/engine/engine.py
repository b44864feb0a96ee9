"""The engine as the outside sees it: schedule, read, attach an application, drain."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from relay.core.dispatch import Dispatch
from relay.core.durability import STORED, Durability, needing
from relay.core.errors import DurabilityMissed, GivenUp, PartlyDone, ServiceError, StoreRefused, TopicFull
from relay.core.loop.call_ends import end_call_with
from relay.core.outcomes import ACKED, Ending, Verb, nonces, spent
from relay.core.partitions import Layout, involved, topic_of
from relay.core.policy import HandlerPolicy, Policies, TopicPolicy
from relay.core.ports import MAX_PER_CALL, SourceOf, Stores, TopicStore, share
from relay.core.timers import (
    NO_CONDITION,
    Change,
    Changed,
    Condition,
    DeadLetter,
    NewTimer,
    NewTimers,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
    TopicStats,
    content_size,
)
from relay.engine.claiming.timeline_loops import TimelineLoops
from relay.engine.clock import Clock, SystemClock
from relay.engine.coalescing.batch import Items, Result
from relay.engine.coalescing.coalescer import Coalescer
from relay.engine.coalescing.levels import Levels
from relay.engine.delivery.dispatcher import Dispatcher
from relay.engine.delivery.ended_leases import EndedLeases
from relay.engine.delivery.lease_keeper import LeaseKeeper
from relay.engine.delivery.leases import Lease
from relay.engine.delivery.session import Session
from relay.engine.delivery.settler import Settler
from relay.engine.expecting import Expecting
from relay.engine.partitioning import Partitioning
from relay.engine.recurring.computing import Computing
from relay.engine.recurring.forecasting import Forecasting
from relay.engine.recurring.history import History
from relay.engine.recurring.kept_calendars import KeptCalendars
from relay.engine.recurring.recurrences import Recurrences
from relay.engine.recurring.tickers import Tickers
from relay.engine.redis_health import RedisHealth
from relay.engine.relay_state import relay_state
from relay.engine.timer_history import TimerHistories
from relay.engine.topic_watch import NAMES_FRESH, TopicWatch
from relay.engine.upkeep.janitor import Janitor
from relay.engine.upkeep.mover import Mover
from relay.engine.upkeep.tidier import Tidier
from relay.engine.upkeep.topic_registry import TopicRegistry
from relay.telemetry.metrics.catalogue import REDRIVEN, SCHEDULED
from relay.telemetry.metrics.gauges import Gauges, RelayState
from relay.telemetry.metrics.instruments import Instruments
from relay.telemetry.traces.tracing import Tracing

Made = TypeVar("Made", Scheduled, Changed)

log = logging.getLogger(__name__)

LEAVE_TIMEOUT = 2.0
"""Seconds that a draining relay has to call others to the partitions that it polls first."""

FLUSH_TIMEOUT = 5.0
"""Seconds that the last settlements and releases have to be written after a drain."""

FULL, GIVEN_UP = (
    Change.FULL,
    Change.GIVEN_UP,
)  # a lookup for every timer of a batch is expensive: Python 3.11's enums do it in Python

DURABLE_AT_ONCE, MOST_DURABLE = 700, 100_000
"""The store calls that may be under way at once for a durability that is waited for, and the timers that may
wait for one."""

STALLED = 60.0
"""Seconds without a tick of the lease keeper after which the process counts as stuck."""


MOST_DEATHS = 25
"""The number of dead letters of a redrive that are read for the spans of their deaths: each whole, by a
call."""


class Engine:
    """All loops of one relay."""

    def __init__(
        self,
        stores: Stores,
        policies: Policies,
        instruments: Instruments,
        clock: Clock | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self._store = stores.timers
        self._source_of: SourceOf = lambda topic: stores.source(policies(topic))
        self._promotions = stores.promotions
        self._topics = stores.topics
        self._policies = policies
        self._instruments = instruments
        self._clock = clock or SystemClock()
        self._tracing = tracing or Tracing()
        self._redis_health = RedisHealth(stores.places, self._clock, instruments)
        self._layouts = stores.layouts
        self._partitioning = Partitioning(stores.layouts, self._redis_health)
        self._settler = Settler(
            self._source_of,
            stores.places,
            policies,
            self._redis_health,
            self._clock,
            instruments,
            self._tracing,
        )
        self._dispatcher = Dispatcher(self._settler, policies, self._clock, instruments, self._tracing)
        self._loops = TimelineLoops(
            stores, policies, self._dispatcher, self._redis_health, self._clock, instruments, nonces()
        )
        self._dispatcher.capacity_changed = self._loops.capacity_changed
        self._keeper = LeaseKeeper(
            self._source_of,
            stores.places,
            self._dispatcher,
            policies,
            self._redis_health,
            self._clock,
            instruments,
        )
        self._schedules: Levels[NewTimers, Scheduled] = Levels(
            lambda level: Coalescer(
                partial(self._shared, self._write, level),
                _sizes,
                attrgetter("timer_ids"),
                NewTimers.joined,
                self._clock,
                stores.places,
                **_bounds(level),
            )
        )
        self._registry = TopicRegistry(stores.topics, self._clock)
        self._topic_watch = TopicWatch(
            stores.topics,
            stores.places,
            self._registry.known,
            self._redis_health.answers,
            self._clock,
            self._with_dispatch,
        )
        self._mover = (
            Mover(stores.moves, stores.layouts, policies, self._clock, instruments) if stores.moves else None
        )
        self._janitor = Janitor(stores.topics, stores.places, policies, self._clock, instruments)
        self._cancels: Levels[list[str], Changed] = Levels(
            lambda level: Coalescer(
                partial(self._shared, self._store.cancel, level),
                partial(map, len),
                list,
                _chained,
                self._clock,
                stores.places,
                **_bounds(level),
            )
        )
        self._tickers: Tickers | None = None
        self._recurrences: Recurrences | None = None
        self._history: History | None = None
        computing = Computing()
        self.calendars = KeptCalendars(stores.calendars, self._clock)
        if (kept := stores.recurrences) is not None:
            due_at = self._loops.due_at
            self._tickers = Tickers(
                kept,
                self.calendars,
                stores.layouts,
                policies,
                computing,
                due_at,
                self._redis_health,
                self._clock,
                instruments,
            )
            self._recurrences = Recurrences(
                kept,
                self.calendars,
                stores.layouts,
                self._partitioning,
                policies,
                self._tickers,
                computing,
                due_at,
                self._registry.note,
            )
            self._history = History(self._store, kept, self._partitioning, policies)
        self.forecasts = Forecasting(stores.forecasts, self.calendars, self._partitioning, computing)
        self.expecting = Expecting(
            stores.forecasts, self._partitioning, self._settler.rates.rate, self._clock
        )
        self.timer_history = TimerHistories(
            self._store, stores.topics, stores.histories, self._partitioning, policies
        )
        self._draining = False

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run all loops until cancelled."""
        async with anyio.create_task_group() as tasks:
            for loop in (
                self._redis_health.run,
                self._settler.run,
                self._keeper.run,
                self._keeper.renew,
                self._schedules.run,
                self._cancels.run,
                self._registry.run,
                self._janitor.run,
                self._topic_watch.run,
            ):
                tasks.start_soon(loop)
            self._start_tidying(tasks)
            if self._mover is not None:
                tasks.start_soon(self._mover.run)
            if self._tickers is not None:
                await tasks.start(self._tickers.run)
            await tasks.start(self._loops.run)
            task_status.started()

    # Calls of producers

    def admit(self, field: str, topic: str) -> str:
        """Return the topic's name if the topic is admitted. Raises `InvalidField`."""
        return self._policies.admit(field, topic)

    def max_payload_bytes(self, topic: str) -> int:
        """Return the topic's limit."""
        return self._policies.largest(topic)

    def seals(self, topic: str) -> bool:
        """Return whether the contents of the topic's timers are sealed."""
        return self._policies.seals(topic)

    def keys_changed(self) -> None:
        """Note that other keys open contents from now on."""
        self._dispatcher.keys_changed()

    def lifetime(self, topic: str) -> float:
        """Return the seconds after which a silent delivery of the topic is given up."""
        return self._policies(topic).lifetime

    def durability(self, topic: str, asked: Durability = STORED) -> Durability:
        """Return what an OK of a change in the topic means: what was asked for, and never less than the
        topic's own."""
        return self._policies(topic).durability.joined(asked)

    def _level(self, topic: str, asked: Durability) -> Durability:
        level = self.durability(topic, asked)
        if level.waits:
            end_call_with(DurabilityMissed)
        return level

    @contextmanager
    def durably(self, topic: str, asked: Durability = STORED) -> Iterator[Durability]:
        """Within the block each change waits until it has the durability that the topic has or that was asked
        for, which the block is given. What belongs to no topic, whose name is empty then, has that of the
        settings' defaults. For calls that share no script call with others: `schedule`, `schedule_many` and
        `cancel` are told what was asked for."""
        level = self._level(topic, asked)
        with needing(level):
            yield level

    async def schedule(self, topic: str, timer: NewTimer, asked: Durability = STORED) -> Scheduled:
        """Store a timer; see `TimerStore.schedule`. Concurrent calls share a script call. Raises
        `DurabilityMissed` if it is not as durable as it has to be."""
        began, schedules = self._clock.now(), self._schedules[self._level(topic, asked)]
        timers, spans = self._tracing.schedule({topic: NewTimers.of((timer,))})
        with spans:
            result = await self._partitioning.begin(
                topic,
                lambda layout: schedules.submit(layout.partition(timer.timer_id), timers[topic]),
            )
        self._instruments.schedule_took(topic, self._clock.now() - began, spans.context(topic, 0))
        if result.change is FULL:
            raise self._full(topic)
        return result

    async def schedule_many(
        self, timers: Mapping[str, NewTimers], asked: Durability = STORED
    ) -> dict[str, list[Scheduled | ServiceError]]:
        """Store many timers, which are given by topic. Each has a result or an error of its own."""
        began = self._clock.now()
        timers, spans = self._tracing.schedule(timers, batch=True)
        with spans:
            results = await self._partitioning.schedule(timers, partial(self._submit, asked))
            failed = {topic: _failed(some) for topic, some in results.items()}
            for topic, failures in failed.items():
                for place, failure in failures.items():
                    spans.refused(topic, place, failure)
        took = self._clock.now() - began
        for topic, some in results.items():
            if len(failed[topic]) < len(some):
                self._instruments.schedule_took(topic, took)
            for place, result in enumerate(some):
                if isinstance(result, Scheduled) and result.change is FULL:
                    some[place] = self._full(topic)
        return results

    async def _submit(
        self, asked: Durability, timers: Mapping[str, NewTimers]
    ) -> dict[str, list[Scheduled | ServiceError]]:
        """Bring timers, which are given by partition, to the coalescers of their levels, all at once."""
        by_level: dict[Durability, dict[str, NewTimers]] = {}
        for partition, some in timers.items():
            by_level.setdefault(self._level(partition, asked), {})[partition] = some
        if len(by_level) == 1:
            ((level, brought),) = by_level.items()
            return await self._schedules[level].submit_many(brought)
        results: dict[str, list[Scheduled | ServiceError]] = {}

        async def submit(level: Durability, brought: dict[str, NewTimers]) -> None:
            results.update(await self._schedules[level].submit_many(brought))

        async with anyio.create_task_group() as tasks:
            for level, brought in by_level.items():
                tasks.start_soon(submit, level, brought)
        return results

    async def _write(
        self, partition: str, timers: NewTimers, *, deadlines: Sequence[float]
    ) -> list[Scheduled]:
        most = share(self._layouts, partition, self._policies(partition).max_waiting)
        try:
            results = await self._store.schedule(partition, timers, max_waiting=most, deadlines=deadlines)
        except PartlyDone as partly:
            self._scheduled(partition, [each for each in partly.results if isinstance(each, Scheduled)])
            raise
        self._scheduled(partition, results)
        return results

    def _scheduled(self, partition: str, results: list[Scheduled]) -> None:
        """Note stored timers. This is not part of answering the caller, who may have gone while the timers
        are there."""
        dues = [result.due for result in results if result.stored and result.due is not None]
        if dues:
            topic = topic_of(partition)
            self._instruments.count(SCHEDULED, topic, n=len(dues))
            for each in involved(partition):
                self._loops.due_at(each, min(dues))
            self._registry.note(topic)

    def _full(self, topic: str) -> TopicFull:
        return TopicFull.of(topic, self._policies(topic).max_waiting)

    async def cancel(
        self,
        topic: str,
        timer_id: str,
        condition: Condition = NO_CONDITION,
        asked: Durability = STORED,
    ) -> Changed:
        """Remove a timer for which the condition holds; see `TimerStore.cancel`. Raises
        `DurabilityMissed`."""
        level = self._level(topic, asked)
        if condition == NO_CONDITION:
            cancels = self._cancels[level]
            return await self._partitioning.begin(
                topic, lambda layout: cancels.submit(layout.partition(timer_id), [timer_id])
            )

        async def cancel(layout: Layout) -> list[Changed]:
            with needing(level):
                return await self._written(
                    partial(self._store.cancel, condition=condition), layout.partition(timer_id), [timer_id]
                )

        (changed,) = await self._partitioning.begin(topic, cancel)
        return changed

    async def cancel_occurrences(self, topic: str, recurrence_id: str) -> int:
        """Remove all occurrences of a recurrence that have not ended, whether or not it is there still, and
        return how many. To call again after a failure goes on with the others."""
        names = await self.recurrences.occurrences(topic, recurrence_id)
        cancelled = 0
        for start in range(0, len(names), MAX_PER_CALL):
            some = names[start : start + MAX_PER_CALL]
            cancelled += await self._partitioning.begin(topic, partial(self._cancel_occurrences, some))
        return cancelled

    async def _cancel_occurrences(self, names: Sequence[str], layout: Layout) -> int:
        """Remove occurrences of one recurrence, which has all of them in one partition. One call."""
        changes = await self._written(self._store.cancel, layout.partition(names[0]), names)
        return sum(each.change is Change.CANCELLED for each in changes)

    async def run_timer(self, topic: str, timer_id: str) -> Changed:
        """Make a timer due now; see `TimerStore.run`."""

        async def run(layout: Layout) -> Changed:
            partition = layout.partition(timer_id)
            (changed,) = await self._written(self._store.run, partition, [timer_id])
            if changed.change is Change.RUN:
                for each in involved(partition):
                    self._loops.due_at(each, 0)
            return changed

        return await self._partitioning.begin(topic, run)

    async def _shared(
        self,
        write: Callable[..., Awaitable[list[Made]]],
        level: Durability,
        partition: str,
        items: Items,
        deadlines: Sequence[float],
    ) -> list[Made | ServiceError]:
        """Write for several producers, who asked for this level; `deadlines` are those of
        `TimerStore.schedule`."""
        try:
            with needing(level):
                results = await self._written(partial(write, deadlines=deadlines), partition, items)
        except PartlyDone as partly:
            return [
                GivenUp() if not isinstance(each, ServiceError) and each.change is GIVEN_UP else each
                for each in partly.results
            ]
        return [GivenUp() if result.change is GIVEN_UP else result for result in results]

    async def _written(
        self, write: Callable[[str, Items], Awaitable[list[Result]]], partition: str, items: Items
    ) -> list[Result]:
        """Write for a producer, and note whether Redis answered."""
        return await self._redis_health.noted(partition, write(partition, items))

    async def get(self, topic: str, timer_id: str) -> StoredTimer | None:
        """Read a timer."""
        return await self._partitioning.begin(
            topic, lambda layout: self._store.get(layout.partition(timer_id), timer_id)
        )

    def dispatch(self, topic: str) -> Dispatch:
        """Return where the topic's due timers go."""
        return self._policies(topic).dispatch

    def passed(self, topic: str) -> tuple[int, int] | None:
        """Return what came through this relay; see `Instruments.passed`."""
        return self._instruments.passed(topic)

    @property
    def configured(self) -> Collection[str]:
        """Return the topics that have settings of their own."""
        return self._policies.own

    async def stats(self, topic: str) -> TopicStats:
        """Return the state of the topic, with that of its list or stream."""
        return await self._with_dispatch(await self._topics.stats(topic))

    async def _with_dispatch(self, stats: TopicStats) -> TopicStats:
        if keeps := self._policies(stats.topic).journal_keeps:
            stats = replace(stats, journal_keeps=keeps)
        if self._promotions is None or self.dispatch(stats.topic) is Dispatch.LEASE:
            return stats
        return replace(stats, dispatched=await self._promotions.state(stats.topic))

    @property
    def recurrences(self) -> Recurrences:
        """The calls about recurrences. Raises `StoreRefused` where none are kept."""
        if self._recurrences is None:
            raise StoreRefused("this store keeps no recurrences")
        return self._recurrences

    @property
    def history(self) -> History:
        """What became of occurrences. Raises `StoreRefused` where no recurrences are kept."""
        if self._history is None:
            raise StoreRefused("this store keeps no recurrences")
        return self._history

    @property
    def topics(self) -> TopicStore:
        """The calls of operators."""
        return self._topics

    async def redrive(self, topic: str, dead_ids: Sequence[str]) -> list[Change]:
        """Bring dead letters back to life; see `TopicStore.redrive`."""
        letters: list[DeadLetter] = []
        if self._tracing.follows_deaths:
            found = [await self._topics.dead_letter(topic, each) for each in dead_ids[:MOST_DEATHS]]
            letters = [letter for letter in found if letter is not None]
        with self._tracing.redrive(topic, letters):
            changes = await self._topics.redrive(topic, dead_ids)
        self._instruments.count(REDRIVEN, topic, n=changes.count(Change.RUN))
        if Change.RUN in changes:
            self._loops.wake(topic)
        return changes

    async def reshard(self, topic: str, partitions: int, *, rate: int = 0) -> Layout:
        """Begin to move a topic into another number of partitions; see `Mover.begin`. Raises `StoreRefused`
        where topics keep the partitions that they have."""
        if self._mover is None:
            raise StoreRefused("this store keeps the partitions that topics have")
        return await self._redis_health.noted(topic, self._mover.begin(topic, partitions, rate=rate))

    async def page(
        self, topic: str, *, state: TimerState | None, limit: int, cursor: str, max_bytes: int | None = None
    ) -> Page:
        """Read a page of a topic; see `TimerStore.list`. `max_bytes` are those of all partitions."""

        def read(layout: Layout) -> Awaitable[Page]:
            share = max_bytes and max(max_bytes // len(layout.partitions), 1)
            return self._store.list(layout, state=state, limit=limit, cursor=cursor, max_bytes=share)

        return await self._partitioning.begin(topic, read)

    def cursor_at(self, instant: int) -> str:
        """Return the cursor of a page that begins at an instant; see `TimerStore.cursor_at`."""
        return self._store.cursor_at(instant)

    # Calls of applications that take deliveries

    def open(
        self,
        topics: Sequence[str],
        max_outstanding: int,
        slow_outstanding: int = 0,
        handlers: Mapping[str, HandlerPolicy] | None = None,
    ) -> Session:
        """Make a session for one stream. Deliveries begin with `attach`. `handlers` are the wishes of its
        topics' handlers, as the policy allows them."""
        return Session(topics, max_outstanding, self._clock, slow_outstanding, handlers)

    def narrowed(self, topic: str, asked: HandlerPolicy) -> HandlerPolicy:
        """Return what holds of the wishes of a topic's handler."""
        return self._policies(topic).narrowed(asked)

    def attach(self, session: Session) -> None:
        """Deliver to the session from now on; while the relay drains, only tell it so. Raises `RuntimeError`
        if the engine does not run."""
        if self._draining:
            session.drain(say=True)
            return
        if not self._loops.running:
            raise RuntimeError("the engine is not running")
        for topic in self._dispatcher.attach(session):
            self._loops.poll(topic)
            if self._tickers is not None:
                self._tickers.follow(topic)
            self._registry.note(topic)
        self._keeper.wake()

    def detach(self, session: Session, *, broken: bool) -> None:
        """Release at once what the session holds; see `Dispatcher.detach`."""
        for topic in self._dispatcher.detach(session, broken=broken):
            self._loops.stop(topic)

    def pushed(self) -> dict[str, TopicPolicy]:
        """Return the topics that the relay pushes to their application, instead of waiting for its stream."""
        return self._policies.pushed()

    def resize(self, session: Session, capacity: int) -> None:
        """Let the session hold `size` deliveries from now on; release at once what can't be sent."""
        self._dispatcher.resize(session, capacity)

    def time_left(self, lease: Lease) -> float:
        """Return the seconds until a delivery without a sign of life is given up."""
        return lease.silent_until - self._clock.now()

    def give_back(
        self,
        session: Session,
        token: bytes,
        *,
        received: bool = False,
        broken: bool = False,
        alone: bool = False,
        began: bool = True,
    ) -> None:
        """Release a delivery that the application did not settle.

        `received` means that it had reached the application, so the attempt counts. The others are those of
        `Dispatcher.release`.
        """
        for leases, places in session.end((token,)).items():
            lease = leases[places[0]]
            lease.received |= received
            self._dispatcher.release([lease], broken=broken, alone=alone, began=began)

    def quiesce(self, session: Session, *, say: bool = False) -> None:
        """Send nothing new to an application that drains, and release at once what has not been sent to
        it. With `say` it is told to drain."""
        self._dispatcher.drain(session, say=say)

    def received(self, session: Session, tokens: Iterable[bytes]) -> None:
        """Note that handlers have started."""
        self._settler.receipts(session.received(tokens), session)

    def extend(self, session: Session, token: bytes) -> None:
        """Note that a handler is still at work."""
        for lease in session.received((token,)):
            self._keeper.extend(lease)

    def payload_limit(self, session: Session, token: bytes) -> int:
        """Return the payload limit of a delivery's topic; 0 if there is no such delivery."""
        lease = session.leases.get(token)
        return 0 if lease is None else self.max_payload_bytes(lease.topic)

    def end(self, session: Session, tokens: Sequence[bytes], ending: Ending) -> None:
        """Note that handlers are done, all with this outcome."""
        for leases, places in session.end(tokens).items():
            if ending is ACKED:
                self._settler.settle(EndedLeases.of(leases, places, ending, session))
                continue
            written = [self._completed(leases[place], ending) for place in places]
            for alike, some in groupby(zip(written, places, strict=True), itemgetter(0)):
                there = [place for _, place in some]
                self._settler.settle(EndedLeases.of(leases, there, alike, session))

    def _completed(self, lease: Lease, ending: Ending) -> Ending:
        """Tell what an application said, and return what is to be written of it."""
        self._tell(lease, ending)
        if ending.verb is Verb.NACK and lease.last:
            return spent(ending.error)
        return ending.of(lease.timer, partial(self._dispatcher.wait, lease))

    @staticmethod
    def _tell(lease: Lease, ending: Ending) -> None:
        """Log that a delivery has failed, if it has."""
        if ending.verb not in (Verb.NACK, Verb.REJECT):
            return
        where: dict[str, str | int] = {
            "topic": lease.topic,
            "timer_id": lease.timer_id,
            "attempt": lease.attempt,
            "reason": ending.error,
        }
        if lease.trace is not None:
            lease.trace.reason = ending.error
            where |= lease.trace.ids
        rejected = ending.verb is Verb.REJECT
        log.log(
            logging.WARNING if rejected else logging.DEBUG,
            "timer rejected by its application" if rejected else "delivery failed",
            extra=where,
        )

    async def flush(self, session: Session) -> None:
        """Wait until all that the session has settled is in Redis."""
        await self._settler.flush(session)

    # Life and death

    def ready(self, *, needs_redis: bool = True) -> list[str]:
        """Say why the relay is not ready to serve; empty if it is."""
        reasons = ["draining"] if self._draining else []
        trouble = self._redis_health.trouble
        if needs_redis and trouble is not None:
            reasons.append(f"Redis is away: {trouble}")
        return reasons

    @property
    def draining(self) -> bool:
        """Whether the relay is about to stop."""
        return self._draining

    def live(self) -> list[str]:
        """Say why the process should be restarted; empty if there is no reason."""
        age = self._clock.now() - self._keeper.last_tick
        return [f"the lease keeper has not run for {age:.0f} s"] if age > STALLED else []

    async def look(self, gauges: Gauges) -> None:
        """Update the gauges of the relay and its topics, within `topic_watch.PATIENCE` seconds whatever Redis
        does."""
        state, topics = await self.standing()
        gauges.show(state, topics)

    async def standing(self, *, names_within: float = NAMES_FRESH) -> tuple[RelayState, Sequence[TopicStats]]:
        """Return the state of this relay and of topics, as `look` shows them: what one read of Redis found
        serves all who ask within a second. A topic of another relay shows up within `names_within` seconds
        and that one."""
        topics = await self._topic_watch.look(names_within=names_within)
        return self.state(), topics

    @property
    def silent_places(self) -> Sequence[str]:
        """The places of Redis whose topics are missing from what `standing` told last: they were too slow."""
        return self._topic_watch.silent

    @property
    def has_more_topics(self) -> bool:
        """Whether there are more topics than `standing` looks at."""
        return self._topic_watch.is_cut

    def state(self) -> RelayState:
        """Return the state of this relay; nothing is read for it."""
        return relay_state(
            self._dispatcher,
            self._settler,
            self._keeper,
            self._redis_health,
            self._loops.clock_steps(),
            self._clock,
        )

    async def outlast(self, timeout: float) -> None:
        """Go on until no application takes deliveries any more, for at most `timeout` seconds."""
        end = self._clock.now() + timeout
        while any(session.attended for session in self._dispatcher.sessions()) and self._clock.now() < end:
            await self._clock.sleep(0.02)

    async def drain(self, timeout: float) -> None:
        """Claim nothing more, tell all sessions to drain, wait up to `timeout` seconds for them, then release
        the rest and write it."""
        self._draining = True
        for session in self._dispatcher.sessions():
            self._dispatcher.drain(session, say=True)
        end = self._clock.now() + timeout
        with anyio.move_on_after(LEAVE_TIMEOUT):
            await self._loops.leave()
        while self._dispatcher.sessions() and self._clock.now() < end:
            await self._clock.sleep(0.02)
        for session in self._dispatcher.sessions():
            self.detach(session, broken=False)
        with anyio.move_on_after(FLUSH_TIMEOUT) as scope:
            while self._dispatcher.claiming:  # a claim may still bring timers that must be released
                await self._clock.sleep(0.02)
            await self._settler.flush()
        if scope.cancelled_caught:
            log.error("Redis did not take the last releases; these timers come again when their leases end")

    def _start_tidying(self, tasks: TaskGroup) -> None:
        """Tidy the lists and streams of topics that have one."""
        names = self._policies.promoted()
        if self._promotions is None or not names:
            return
        for topic in names:
            self._registry.note(topic)
        tidier = Tidier(
            self._promotions, self._topics, names, self._redis_health, self._clock, self._instruments
        )
        tasks.start_soon(tidier.run)


def _bounds(level: Durability) -> dict[str, int]:
    """How much may be under way, and wait, for a level."""
    return {"at_once": DURABLE_AT_ONCE, "most": MOST_DURABLE} if level.waits else {}


def _sizes(timers: NewTimers) -> Iterable[int]:
    return map(content_size, timers.payloads, timers.headers)


def _chained(parts: Iterable[list[str]]) -> list[str]:
    return list(chain.from_iterable(parts))


def _failed(results: Sequence[Scheduled | ServiceError]) -> dict[int, ServiceError]:
    """Return the errors by their places."""
    return {place: each for place, each in enumerate(results) if isinstance(each, ServiceError)}
