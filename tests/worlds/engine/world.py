"""A small world for engine tests: one store, one clock, relays over them, applications on relays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from anyio.abc import TaskGroup

from relay.core.outcomes import Ending, Verb
from relay.core.partitions import Layout
from relay.core.policy import Policies, RetryPolicy, TopicPolicy
from relay.core.ports import Moves, Stores, TimerStore, TopicStore, WakeHints
from relay.core.timers import NewTimer, StoredTimer, TimerState
from relay.engine.clock import Clock
from relay.engine.delivery.leases import Lease
from relay.engine.delivery.session import Problem, Session
from relay.engine.engine import Engine
from relay.store.memory_recurrences import MemoryCalendars
from relay.telemetry.traces.tracing import Tracing
from tests.worlds.engine.doubles import Beats, Counts, GatedStore, Hints, Registered
from tests.worlds.engine.fake_clock import FakeClock, settle
from tests.worlds.engine.layouts import GatedLayouts

TOPIC = "t"


@dataclass(eq=False)
class App:
    """An application on one stream. It takes what was said to it when the test looks."""

    engine: Engine
    session: Session
    problems: list[tuple[bytes, Problem]] = field(default_factory=list)
    drained: bool = False
    held: list[Lease] = field(default_factory=list)

    def take(self) -> list[Lease]:
        """Everything that can be sent now, as one list of deliveries."""
        taken: list[Lease] = []
        while True:
            outgoing = self.session.take()
            taken += outgoing.leases
            self.problems += outgoing.problems
            self.drained |= outgoing.drain
            if not (outgoing.leases or outgoing.problems or outgoing.drain):
                self.held += taken
                return taken

    def names(self) -> list[str]:
        """The timers of `take`."""
        return [lease.timer.timer_id for lease in self.take()]

    def one(self) -> Lease:
        """The one delivery that can be sent now."""
        (lease,) = self.take()
        return lease

    def complaints(self) -> list[Problem]:
        """The problems said since the last look."""
        self.take()
        said, self.problems = [problem for _, problem in self.problems], []
        return said

    def end(self, lease: Lease, verb: Verb = Verb.ACK, **options: Any) -> None:
        self.engine.end(self.session, [lease.token], Ending(verb, **options))

    def ack(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self.end(lease)

    def receive(self, lease: Lease) -> None:
        self.engine.received(self.session, [lease.token])

    def extend(self, lease: Lease) -> None:
        self.engine.extend(self.session, lease.token)

    async def leave(self, *, broken: bool = False) -> None:
        """The stream ends."""
        self.engine.detach(self.session, broken=broken)
        await settle()


class Engines:
    """Relays' engines on one store in memory, whose calls can be held and failed."""

    def __init__(self, clock: Clock, now: Callable[[], int], policy: TopicPolicy | None = None) -> None:
        self.clock = clock
        self.store = GatedStore(now)
        self.layouts = GatedLayouts(self.store)
        self.store.check = self.layouts.check
        self.topics = Registered()
        self.beats = Beats(now)
        self.calendars = MemoryCalendars()
        self.counts = Counts()
        self.policy = policy or TopicPolicy()
        self.policies: dict[str, TopicPolicy] = {}
        self.moves: Moves | None = None

    def tune(self, topic: str = TOPIC, **changes: Any) -> None:
        """Change a topic's policy; say so before an application attaches."""
        self.policies[topic] = replace(self.policies.get(topic, self.policy), **changes)

    def make(
        self,
        hints: WakeHints,
        store: TimerStore | None = None,
        topics: TopicStore | None = None,
        *,
        closed: bool = False,
        tracing: Tracing | None = None,
    ) -> Engine:
        """An engine; on another store, if one is given."""
        known = topics or cast("TopicStore", self.topics)
        return Engine(
            Stores(
                store or self.store,
                known,
                hints,
                self.store.places,
                self.layouts,
                self.moves,
                heartbeats=self.beats,
                calendars=self.calendars,
            ),
            Policies(self.policy, self.policies, closed=closed),
            self.counts,
            self.clock,
            tracing,
        )


class World(Engines):
    """Everything on one fake clock. `engine` is the first relay; `relay` starts others."""

    clock: FakeClock
    engine: Engine

    def __init__(self, tasks: TaskGroup) -> None:
        clock = FakeClock()
        super().__init__(
            clock, clock.server, TopicPolicy(retry=RetryPolicy(initial=0.0))
        )  # no waits by chance
        self.tasks = tasks
        self.hints = Hints()

    async def relay(self, hints: Hints | None = None, tracing: Tracing | None = None) -> Engine:
        """Start one more relay on the same store."""
        engine = self.make(self.heard(hints or Hints()), tracing=tracing)
        await self.tasks.start(engine.run)
        return engine

    def heard(self, hints: Hints) -> Hints:
        """Let these hints hear the others' calls for help."""
        if hints is not self.hints:
            self.hints.all.append(hints)
            hints.all = self.hints.all
        return hints

    async def app(self, *topics: str, max_outstanding: int = 1_000, engine: Engine | None = None) -> App:
        """An application that opens a stream."""
        engine = engine or self.engine
        session = engine.open(topics or (TOPIC,), max_outstanding)
        engine.attach(session)
        await settle()
        return App(engine, session)

    async def put(self, *names: str, delay: float = 0.0, topic: str = TOPIC, payload: bytes = b"x") -> None:
        """Store timers behind the relay's back, as another publisher does."""
        timers = [NewTimer(name, payload, delay=round(delay * 1e6)) for name in names]
        await self.store.inner.schedule(topic, timers)

    async def schedule(self, name: str, delay: float = 0.0, topic: str = TOPIC) -> None:
        """Store a timer through the relay."""
        await self.engine.schedule(topic, NewTimer(name, b"x", delay=round(delay * 1e6)))
        await settle()

    async def get(self, name: str, topic: str = TOPIC) -> StoredTimer | None:
        return await self.store.inner.get(topic, name)

    async def stored(self, topic: str = TOPIC) -> dict[str, TimerState]:
        """All timers of a topic."""
        page = await self.store.inner.list(Layout(topic), state=None, limit=100_000, cursor="")
        return {timer.timer_id: timer.state for timer in page.timers}

    async def leased(self, topic: str = TOPIC) -> set[str]:
        return {name for name, state in (await self.stored(topic)).items() if state is TimerState.LEASED}

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def hint(self, delay: float, topic: str = TOPIC) -> None:
        """What another relay's pub/sub hint does; without a delay it tells of a time that is past."""
        self.hints.watchers[topic](self.clock.server() + (round(delay * 1e6) or -1_000))
