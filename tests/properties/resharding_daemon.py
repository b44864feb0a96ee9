"""What of the daemon is at work in a topic that is resharded, and who drives it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from relay.core.errors import ServiceError
from relay.core.outcomes import Again, Ending, Verb
from relay.core.partitions import Layout
from relay.core.timers import (
    NO_CONDITION,
    Condition,
    Content,
    NewTimer,
    NewTimers,
    OnConflict,
    Scheduled,
    TimerState,
)
from relay.engine.partitioning import Partitioning
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.moves import RedisMoves
from relay.store.partitions.timers import PartitionedTimers
from relay.store.partitions.topics import PartitionedTopics
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.properties.resharding_seam import TOPIC, Step
from tests.properties.resharding_truth import Found, Op

if TYPE_CHECKING:
    from relay.engine.redis_health import RedisHealth
    from relay.store.server.server import Server

R = TypeVar("R")
T = TypeVar("T")

Thing = Callable[[], Coroutine[Step, Any, None]]
"""Begins what somebody does."""


class Kinds(NamedTuple):
    """The classes that a run is to test."""

    timers: type[PartitionedTimers] = PartitionedTimers
    carrier: type[Carrier] = Carrier
    redriver: type[Carrier] = Carrier
    """Carries dead letters that are redriven."""
    moves: type[RedisMoves] = RedisMoves


AS_THEY_ARE = Kinds()


class Process:
    """A process of the daemon's, as far as it works on the topic."""

    def __init__(self, server: Server, kinds: Kinds) -> None:
        self.server = server
        self.layouts = RedisLayouts(server)
        carrier = kinds.carrier(server)
        topics = RedisTopics(server)
        self.timers = kinds.timers(
            RedisStore(server, arrive=carrier.arrive), topics, self.layouts, server, carrier
        )
        self.topics = PartitionedTopics(topics, self.layouts, kinds.redriver(server))
        self.moves = kinds.moves(server, self.layouts, carrier)
        self.partitioning = Partitioning(self.layouts, cast("RedisHealth", _Healthy()))

    @property
    def layout(self) -> Layout:
        known = self.layouts.known(TOPIC)
        assert known is not None
        return known


class _Healthy:
    async def noted(self, _topic: str, work: Awaitable[T]) -> T:
        return await work


class Actor:
    """Somebody who does one thing after the other in a process. `things` begin each. The one that is under
    way waits at `step`, and makes a call about a timer perhaps: `op`, which has a `number`."""

    def __init__(self, name: str, process: Process, things: Iterator[Thing]) -> None:
        self.name = name
        self.process = process
        self.step: Step | None = None
        self.op: Op | None = None
        self.timer_id = ""
        self.number = 0
        self.in_doubt = False
        """The last reply was lost, and the call may have had its effect."""
        self._things = things
        self._coroutine: Coroutine[Step, Any, None] | None = None

    def next(self) -> bool:
        """Begin the next thing; return whether there is one."""
        for thing in self._things:
            self._coroutine = thing()
            self.go(None)
            return True
        return False

    def go(self, reply: Any) -> None:
        """Take a reply, or an error, and go on to the next step."""
        assert self._coroutine is not None
        try:
            if isinstance(reply, Exception):
                self.step = self._coroutine.throw(reply)
            else:
                self.step = self._coroutine.send(reply)
        except StopIteration:
            self.step = None

    def die(self) -> None:
        """Do nothing more of this."""
        assert self._coroutine is not None
        self._coroutine.close()
        self.step = None


def ending(op: Op) -> Ending:
    assert op.verb is not None
    if op.verb is Verb.RESCHEDULE:
        return Ending(op.verb, again=Again(op.due, None, Content(str(op.version).encode(), {}, "")))
    return Ending(op.verb, retry_after=0 if op.verb is Verb.NACK else None)


async def asked(process: Process, timer_id: str, op: Op) -> Any:
    """Ask for something as the engine does."""

    async def begun(work: Callable[[str], Awaitable[R]]) -> R:
        return await process.partitioning.begin(TOPIC, lambda layout: work(layout.partition(timer_id)))

    if op.kind == "cancel":
        (changed,) = await begun(lambda place: process.timers.cancel(place, [timer_id]))
        return changed.change
    if op.kind == "run":
        (changed,) = await begun(lambda place: process.timers.run(place, [timer_id]))
        return changed.change
    if op.kind == "list":
        page = await process.partitioning.begin(
            TOPIC, lambda layout: process.timers.list(layout, state=None, limit=10, cursor="")
        )
        listed = {each.timer_id: each for each in page.timers}.get(timer_id)
        return listed and Found(0, listed.due, listed.state is TimerState.LEASED)
    if op.kind == "get":
        found = await begun(lambda place: process.timers.get(place, timer_id))
        return found and Found(int(found.payload), found.due, found.state is TimerState.LEASED)
    condition = Condition(only_pending=True) if op.kind == "change" else NO_CONDITION
    intent = OnConflict.KEEP_EXISTING if op.kind == "create" else OnConflict.REPLACE
    timer = NewTimer(timer_id, str(op.version).encode(), op.due, intent=intent, condition=condition)

    async def submit(parts: Mapping[str, NewTimers]) -> dict[str, list[Scheduled | ServiceError]]:
        results: dict[str, list[Scheduled | ServiceError]] = {}
        for place, some in parts.items():
            try:
                results[place] = [*await process.timers.schedule(place, some)]
            except ServiceError as failure:
                results[place] = [failure] * len(some)
        return results

    ((result,),) = (await process.partitioning.schedule({TOPIC: NewTimers.of([timer])}, submit)).values()
    if isinstance(result, ServiceError):
        raise result
    return result.change
