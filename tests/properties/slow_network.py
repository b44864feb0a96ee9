"""Two relays whose calls may be on their way for any time, and whose server's clock may be set.

A machine on it says who calls, and what has to be true. Nothing here knows which instants calls carry.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from redis.exceptions import NoScriptError, ResponseError

from relay.core.instants import SECOND
from relay.store.keys import KeyNames
from relay.store.server.scripts import Call, Prepared, Scripts
from relay.store.server.server_clock import RENEW, ServerClock
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.texts import BY_OUR_CLOCK, BY_THE_SYSTEMS

TTL = SECOND
"""Microseconds that one try may act."""
TRAVEL = 5_000
"""Microseconds that a question for the server's time takes at most, there and back."""

PICK = st.integers(0, 1000)
QUICK = ("answered", "unanswered")
FATES = (*QUICK, "held", "held", "held")
"""Redis runs a try at once, and it is answered or its reply is lost; or it is held on its way."""
WAITS = st.sampled_from([1, TRAVEL, TTL // 2, TTL, 11 * SECOND, 3600 * SECOND])
STEPS = st.sampled_from([-1, -TTL // 2, -3600 * SECOND, 1, TTL, 3600 * SECOND])

Weighted = tuple[int, str, Mapping[str, st.SearchStrategy[Any]]]
"""How often something happens, its method, and what that is given."""
NETWORK: Sequence[Weighted] = ((4, "arrive", {"pick": PICK}), (2, "wait", {"duration": WAITS}))
STEPPING: Weighted = (1, "step", {"by": STEPS})


def sending(fates: Sequence[str] = FATES) -> Mapping[str, st.SearchStrategy[Any]]:
    """How a try is sent, and what becomes of it."""
    relays, travel = st.integers(0, 1), st.sampled_from([0, TRAVEL])
    return {"relay": relays, "fate": st.sampled_from(fates), "travel": travel}


Actions = st.SearchStrategy[tuple[str, dict[str, Any]]]
A = TypeVar("A")


def weighted(weights: Sequence[Weighted]) -> Actions:
    """Any of these, by its weight."""
    actions = [
        st.tuples(st.just(name), st.fixed_dictionaries(dict(given)))
        for weight, name, given in weights
        for _ in range(weight)
    ]
    return st.sampled_from(actions).flatmap(lambda action: action)


@dataclass(frozen=True, eq=False)
class Try(Generic[A]):
    """One try of what was `asked`, on its way, which may act from `began` until `deadline` (monotonic
    microseconds). `known`: of how many settings of the server's clock its relay knew, or had to know."""

    asked: A
    call: Call[Any]
    command: Callable[[bool], tuple[Any, ...]]
    began: int
    deadline: int
    known: int


@dataclass
class Relay:
    """What a relay knows of the server's clock, and of how many of its settings."""

    clock: ServerClock
    known: int = 0


@dataclass
class Ran:
    """What Redis made of a try. `done`: the script has not refused it as one that comes too late."""

    done: bool
    reply: Any = field(default=None)


class SlowNetwork(RuleBasedStateMachine, Generic[A]):
    """One topic. `bound` gives it a server."""

    bench: ClassVar[Bench]
    runner: ClassVar[asyncio.Runner]
    scripts: ClassVar[Scripts]
    clock: ClassVar[type[ServerClock]]
    actions: ClassVar[Actions]
    steps: ClassVar[int]

    @classmethod
    def bound(
        cls,
        bench: Bench,
        runner: asyncio.Runner,
        actions: Actions,
        clock: type[ServerClock] = ServerClock,
        **more: Any,
    ) -> type[Self]:
        """The machine on a topic of `bench`, where these things happen; `more` are attributes of its own."""
        texts = {name: text.replace(BY_THE_SYSTEMS, BY_OUR_CLOCK) for name, text in bench.texts.items()}
        given = {
            "bench": bench,
            "runner": runner,
            "scripts": Scripts(KeyNames(), texts),
            "clock": clock,
            "actions": actions,
            "steps": 0,
            **more,
        }
        return type(f"Bound{cls.__name__}", (cls,), given)

    def __init__(self) -> None:
        super().__init__()
        self.bench.raw.delete(*self.bench.keys)
        self.bench.now = NOW
        self.monotonic = 0
        self.relays = [Relay(self.clock()) for _ in range(2)]
        self.held: list[Try[A]] = []
        self.set: list[tuple[int, int]] = []
        """When the server's clock was set, and by how much."""

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Somebody does something."""
        name, given = data.draw(self.actions)
        getattr(self, name)(**given)

    # ---------------------------------------------------------------------------- relays

    def send(self, asked: A, call: Call[Any], *, relay: int, fate: str, travel: int) -> Try[A]:
        """By a relay, which gives it up `TTL` from now."""
        by = self.relays[relay]
        began = self.monotonic
        self._learn(by, travel)
        deadline = began + TTL
        prepared = self.scripts.prepare(call, lambda _: 0)
        known = max(by.known, sum(at < began - RENEW * SECOND for at, _ in self.set))
        command = _command(prepared, by.clock.at(deadline / SECOND))
        sent = Try(asked, call, command, began, deadline, known)
        if fate == "held":
            self.held.append(sent)
            return sent
        if not self.run(sent, answered=fate == "answered") and fate == "answered":
            by.clock.forget()
        return sent

    def _learn(self, by: Relay, travel: int) -> None:
        """As a connection does before it sends a call: it asks for the server's time if it has to."""
        if not by.clock.is_old(self.monotonic / SECOND):
            return
        asked = self.monotonic
        self.pass_by(travel // 2)
        told, by.known = self.bench.now, len(self.set)
        self.pass_by(travel - travel // 2)
        by.clock.heard(told, asked / SECOND, self.monotonic / SECOND)

    # --------------------------------------------------------------- the network, and time

    def arrive(self, pick: int) -> None:
        """Bytes that were held up come to Redis; their sender does not hear of it."""
        if self.held:
            self.run(self.held.pop(pick % len(self.held)), answered=False)

    def wait(self, duration: int) -> None:
        self.pass_by(duration)

    def step(self, by: int) -> None:
        """The server's clock is set."""
        self.bench.now += by
        self.set.append((self.monotonic, by))

    def pass_by(self, duration: int) -> None:
        """Let time go on."""
        if duration > 0:
            self.monotonic += duration
            self.bench.now += duration

    def is_over(self, sent: Try[A]) -> bool:
        """Whether it can't act any more. Where the clock was set back that is later by as much: the docs say
        so. By less than a question travels, nobody notices that it was."""
        stepped = sum(by for _, by in self.set[sent.known :])
        unnoticed = sum(by for _, by in self.set[: sent.known] if -TRAVEL < by < 0)
        return self.monotonic > sent.deadline + max(-stepped, 0) - unnoticed

    def in_time(self, sent: Try[A]) -> bool:
        """Whether it has to act: nobody has set the clock, and there is time enough."""
        return len(self.set) == sent.known and self.monotonic + TRAVEL <= sent.deadline

    @abstractmethod
    def run(self, sent: Try[A], *, answered: bool) -> bool:
        """Redis runs a try; return whether it did so, and has not refused it."""

    def execute(self, sent: Try[A]) -> Ran:
        """What comes of it."""
        try:
            try:
                reply = self.bench.raw.execute_command(*sent.command(True))
            except NoScriptError:
                reply = self.bench.raw.execute_command(*sent.command(False))
        except ResponseError as refusal:
            if not str(refusal).startswith("GIVENUP"):
                raise
            return Ran(False)
        return Ran(True, sent.call.read(reply) if sent.call.read else reply)


def _command(prepared: Prepared, until: int) -> Callable[[bool], tuple[Any, ...]]:
    return lambda known: prepared.command(until, known=known)
