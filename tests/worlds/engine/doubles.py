"""What stands in for Redis, its pub/sub and the meters: calls can be held, failed and counted."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from opentelemetry.trace import SpanContext

from relay.core.outcomes import (
    NO_LIMITS,
    ClaimRequest,
    Extension,
    Limits,
    Settled,
    Settlement,
    Verdict,
)
from relay.core.partitions import Layout
from relay.core.ports import MAX_PER_CALL, ignore_call
from relay.core.timers import (
    NO_CONDITION,
    Changed,
    Claim,
    Condition,
    NewTimer,
    Page,
    Scheduled,
    StoredTimer,
    TimerState,
    TopicStats,
)
from relay.store.memory import MemoryStore
from relay.telemetry.metrics.catalogue import InstrumentSpec
from relay.telemetry.metrics.instruments import Instruments
from tests.settlements import End, one_by_one

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A call that was made, with what it carried."""

    verb: str
    topic: str
    items: tuple[object, ...] = ()


@dataclass(eq=False)
class Door:
    """What becomes of matching calls: held until `open`, failed, or both.

    `after` says on which side of the store's work: a call that is held or failed after it has
    happened; a failure there is a lost reply.
    """

    verb: str
    topic: str | None
    after: bool
    error: Exception | None
    left: float
    held: anyio.Event | None
    reached: int = 0

    def open(self) -> None:
        """Let held calls through, and hold and fail nothing more."""
        self.left = 0
        if self.held is not None:
            self.held.set()

    def fits(self, verb: str, topic: str) -> bool:
        return self.left > 0 and verb == self.verb and self.topic in (None, topic)

    async def pass_through(self) -> None:
        if self.held is not None:
            await self.held.wait()
        if self.error is not None:
            raise self.error


@dataclass(eq=False)
class Doors:
    """Doors by verb, and the calls that came to them."""

    calls: list[Call] = field(default_factory=list)
    doors: list[Door] = field(default_factory=list)

    def hold(self, verb: str, *, topic: str | None = None, after: bool = False, times: float = 1) -> Door:
        """Hold the next calls of a verb until the door is opened."""
        return self._door(verb, topic, after, None, times, anyio.Event())

    def fail(
        self,
        verb: str,
        error: Exception,
        *,
        topic: str | None = None,
        after: bool = False,
        times: float = math.inf,
    ) -> Door:
        """Let calls of a verb fail until the door is opened."""
        return self._door(verb, topic, after, error, times, None)

    def _door(
        self,
        verb: str,
        topic: str | None,
        after: bool,
        error: Exception | None,
        times: float,
        held: anyio.Event | None,
    ) -> Door:
        door = Door(verb, topic, after, error, times, held)
        self.doors.append(door)
        return door

    def open_all(self) -> None:
        for door in self.doors:
            door.open()

    def count(self, verb: str, topic: str | None = None) -> int:
        """How many calls of a verb were made."""
        return sum(call.verb == verb and topic in (None, call.topic) for call in self.calls)

    def items(self, verb: str) -> list[object]:
        """What all calls of a verb carried."""
        return [item for call in self.calls if call.verb == verb for item in call.items]

    async def through(
        self, verb: str, topic: str, work: Callable[[], Awaitable[T]], items: Sequence[object] = ()
    ) -> T:
        """Do the work of a call, through the first door that fits."""
        assert len(items) <= MAX_PER_CALL, f"{verb} with {len(items)} items"
        self.calls.append(Call(verb, topic, tuple(items)))
        await asyncio.sleep(0)  # a real call always lets others run
        door = next((door for door in self.doors if door.fits(verb, topic)), None)
        if door is None:
            return await work()
        door.left -= 1
        door.reached += 1
        if door.after:
            result = await work()
            await door.pass_through()
            return result
        await door.pass_through()
        return await work()


class GatedPlaces:
    """`Places` in the test's hand; pings go through the store's doors, with the place in the topic's
    stead."""

    def __init__(self, doors: Doors) -> None:
        self.changed: list[Callable[[], None]] = []
        self._doors = doors
        self._of: dict[str, str] = {}
        self._held_up: set[str] = set()

    def hold_up(self, topic: str) -> None:
        """Let a topic's calls have to wait while its place answers others."""
        self._held_up.add(topic)
        for changed in self.changed:
            changed()

    def put(self, **places: str) -> None:
        """Let topics have these places from now on."""
        self._of |= places
        for changed in self.changed:
            changed()

    def of(self, topic: str) -> str:
        return self._of.get(topic, "")

    def lane(self, topic: str) -> str:
        return f"{self.of(topic)} {topic}" if topic in self._held_up else self.of(topic)

    async def ping(self, place: str) -> None:
        async def alive() -> None:
            """As a store in memory is."""

        await self._doors.through("ping", place, alive)


class GatedStore(Doors):
    """A `TimerStore` in memory, behind doors."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self.inner = MemoryStore(clock)
        self.places = GatedPlaces(self)
        self.alike: list[list[str]] = []
        """The timers of each settlement: those that end alike."""
        self.check: Callable[[str], None] = lambda _: None
        """Called with the name that each call is about; it raises what Redis refuses."""

    async def through(
        self, verb: str, topic: str, work: Callable[[], Awaitable[T]], items: Sequence[object] = ()
    ) -> T:
        async def checked() -> T:
            self.check(topic)
            return await work()

        return await super().through(verb, topic, checked, items)

    def settlements(self) -> list[End]:
        """What all calls of `settle` carried."""
        return [each for each in self.items("settle") if isinstance(each, End)]

    async def schedule(
        self,
        topic: str,
        timers: Sequence[NewTimer],
        *,
        max_waiting: int = 0,
        deadlines: Sequence[float] = (),
    ) -> list[Scheduled]:
        return await self.through(
            "schedule",
            topic,
            lambda: self.inner.schedule(topic, timers, max_waiting=max_waiting, deadlines=deadlines),
            timers,
        )

    async def cancel(
        self,
        topic: str,
        timer_ids: Sequence[str],
        condition: Condition = NO_CONDITION,
        *,
        deadlines: Sequence[float] = (),
    ) -> list[Changed]:
        return await self.through(
            "cancel",
            topic,
            lambda: self.inner.cancel(topic, timer_ids, condition, deadlines=deadlines),
            timer_ids,
        )

    async def run(self, topic: str, timer_ids: Sequence[str]) -> list[Changed]:
        return await self.through("run", topic, lambda: self.inner.run(topic, timer_ids), timer_ids)

    async def get(self, topic: str, timer_id: str, *, with_content: bool = True) -> StoredTimer | None:
        return await self.through(
            "get", topic, lambda: self.inner.get(topic, timer_id, with_content=with_content)
        )

    async def claim(self, topic: str, request: ClaimRequest) -> Claim:
        assert request.limit > 0, "a claim without room"
        return await self.through("claim", topic, lambda: self.inner.claim(topic, request), (request.limit,))

    async def claimed(self, topic: str, request: ClaimRequest, *, since: int, until: int) -> Claim:
        return await self.through(
            "claimed", topic, lambda: self.inner.claimed(topic, request, since=since, until=until)
        )

    async def settle(
        self, topic: str, settlements: Sequence[Settlement], *, limits: Limits = NO_LIMITS
    ) -> list[Settled]:
        items = [*one_by_one(settlements)]
        self.alike += [list(each.timer_ids) for each in settlements]
        assert len({s.timer_id for s in items}) == len(items), "a timer twice in a call"
        return await self.through(
            "settle", topic, lambda: self.inner.settle(topic, settlements, limits=limits), items
        )

    async def extend(self, topic: str, extensions: Sequence[Extension], *, lease: int) -> list[Verdict]:
        assert len({e.timer_id for e in extensions}) == len(extensions), "a timer twice in a call"
        return await self.through(
            "extend", topic, lambda: self.inner.extend(topic, extensions, lease=lease), extensions
        )

    def cursor_at(self, instant: int) -> str:
        return self.inner.cursor_at(instant)

    async def list(
        self,
        layout: Layout,
        *,
        state: TimerState | None,
        limit: int,
        cursor: str,
        max_bytes: int | None = None,
    ) -> Page:
        return await self.inner.list(layout, state=state, limit=limit, cursor=cursor, max_bytes=max_bytes)


class Registered(Doors):
    """The part of `TopicStore` that engines on a store in memory use: which topics there are."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.error: Exception | None = None

    async def register(self, topic: str) -> None:
        if self.error is not None:
            raise self.error
        self.names.append(topic)

    async def lock(self, name: str, topic: str = "", *, ttl: int) -> bool:
        return False

    async def topics(self) -> list[str]:
        return sorted(self.names)

    async def overview(self, topics: Sequence[str]) -> list[TopicStats]:
        async def work() -> list[TopicStats]:
            return [TopicStats(topic, 0, 0, 0, None, 0, None, None) for topic in topics]

        return await self.through("overview", topics[0] if topics else "", work, topics)


class Hints(Doors):
    """`WakeHints` that the test gives by hand, also behind doors. A call for help is heard by the relays
    whose hints are `all`."""

    def __init__(self) -> None:
        super().__init__()
        self.watchers: dict[str, Callable[[int], None]] = {}
        self.called: dict[str, Callable[[int], None]] = {}
        self.all: list[Hints] = [self]

    async def watch(
        self, topic: str, woken: Callable[[int], None], called: Callable[[int], None] = ignore_call
    ) -> None:
        async def work() -> None:
            self.watchers[topic], self.called[topic] = woken, called

        await self.through("watch", topic, work)

    async def unwatch(self, topic: str) -> None:
        async def work() -> None:
            self.watchers.pop(topic, None)
            self.called.pop(topic, None)

        await self.through("unwatch", topic, work)

    async def call_for_help(self, topic: str, rank: int) -> None:
        async def work() -> None:
            for hints in self.all:
                if topic in hints.called:
                    hints.called[topic](rank)

        await self.through("call_for_help", topic, work, (rank,))


class Beats(Doors):
    """`Heartbeats` in memory, behind doors."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._until: dict[str, dict[str, int]] = {}

    async def beat(self, topic: str, relay: str, *, lasts: int) -> Sequence[str]:
        async def work() -> Sequence[str]:
            now, until = self._clock(), self._until.get(topic, {}) | {relay: self._clock() + lasts}
            last = now + lasts if lasts else math.inf  # the clock has stepped back
            self._until[topic] = {name: end for name, end in until.items() if now < end <= last}
            return list(self._until[topic])

        return await self.through("beat", topic, work, (relay, lasts))


class Counts(Instruments):
    """Meters that the test reads. `total`: by the counter's name and what it tells besides the topic."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.latenesses: list[float] = []
        self.handlers: list[float] = []
        self.schedules: list[float] = []

    def count(self, spec: InstrumentSpec, *values: str, n: float = 1) -> None:
        told = [value for name, value in zip(spec.attributes, values, strict=True) if name != "topic"]
        self.total[" ".join([spec.name.removeprefix("relay."), *told])] += int(n)

    def lateness(self, topic: str, seconds: Sequence[float]) -> None:
        self.latenesses += seconds

    def passed(self, topic: str) -> tuple[int, int] | None:
        return None  # what `total` tells is not by topic

    def handled(self, topic: str, seconds: float, count: int, spans: Sequence[SpanContext] = ()) -> None:
        self.handlers += [seconds] * count

    def schedule_took(self, topic: str, seconds: float, span: SpanContext | None = None) -> None:
        self.schedules.append(seconds)
