"""Callers who repeat what they ask for, by two relays, while bytes arrive late and the server's clock steps.

It is a model of promise 11 as callers see it: what was answered stands until somebody asks for something
else, and a call that was given up changes nothing from then on. It knows nothing of the instants that calls
carry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from redis.exceptions import NoScriptError, ResponseError

from relay.core.instants import SECOND, from_score
from relay.store.keys import KeyNames
from relay.store.server.scripts import Call, Prepared, Scripts
from relay.store.server.server_clock import RENEW, ServerClock
from relay.store.verbs import people, timeline
from relay.store.verbs.terms import when_words
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import ENVELOPE
from tests.worlds.scripts.texts import BY_OUR_CLOCK, BY_THE_SYSTEMS

TTL = SECOND
"""Microseconds that one try may act."""
TRAVEL = 5_000
"""Microseconds that a question for the server's time takes at most, there and back."""
YEAR = 365 * 86_400 * SECOND
IDS = ("a", "é")
PAUSE = "the pause"
MATTERS = (*IDS, PAUSE)
"""What callers ask for: timers, and whether the topic is paused. The state of one is when it is due, or until
when it is paused; None without it."""

Effect = Callable[[int | None, int], int | None]
"""What a call makes of a matter's state when it is run at an instant of the server's."""


@dataclass(eq=False)
class Asked:
    """A call of somebody's, in however many tries. `may`: the states that it can have left each matter in, by
    what has arrived in time."""

    call: Call[Any]
    effect: Effect
    matters: tuple[str, ...]
    may: dict[str, set[int | None]] = field(default_factory=dict)
    last: int = 0
    """Until when the newest try may act (monotonic microseconds)."""


@dataclass(frozen=True, eq=False)
class Try:
    """One try, on its way, which may act until `deadline` (monotonic microseconds). `known`: of how many
    settings of the server's clock its relay knew, or had to know."""

    asked: Asked
    command: Callable[[bool], tuple[Any, ...]]
    deadline: int
    known: int


@dataclass
class Relay:
    """What a relay knows of the server's clock, and of how many of its settings."""

    clock: ServerClock
    known: int = 0


PICK = st.integers(0, 1000)
FATES = st.sampled_from(["answered", "unanswered", "held", "held", "held"])
VERBS = ("schedule", "schedule", "cancel", "run", "pause", "resume")
WAITS = st.sampled_from([1, TRAVEL, TTL // 2, TTL, 11 * SECOND, 3600 * SECOND])
STEPS = st.sampled_from([-1, -TTL // 2, -3600 * SECOND, 1, TTL, 3600 * SECOND])


def weighted(verbs: tuple[str, ...], steps: bool) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Any action, by weight. `verbs`: what callers ask for; `steps`: whether the server's clock steps."""
    ids = st.sampled_from([IDS[:1], IDS[1:], IDS])
    relays, travel = st.integers(0, 1), st.sampled_from([0, TRAVEL])
    calls = {"relay": relays, "fate": FATES, "travel": travel}
    weights: list[tuple[int, str, Mapping[str, st.SearchStrategy[Any]]]] = [
        (6, "ask", {"verb": st.sampled_from(verbs), "ids": ids, **calls}),
        (6, "again", {"pick": PICK, **calls}),
        (2, "give_up", {"pick": PICK}),
        (4, "arrive", {"pick": PICK}),
        (2, "wait", {"duration": WAITS}),
        (1 if steps else 0, "step", {"by": STEPS}),
    ]
    actions = [
        st.tuples(st.just(name), st.fixed_dictionaries(dict(given)))
        for weight, name, given in weights
        for _ in range(weight)
    ]
    return st.sampled_from(actions).flatmap(lambda action: action)


class LateCalls(RuleBasedStateMachine):
    """One topic. `of` binds it to a server."""

    bench: ClassVar[Bench]
    runner: ClassVar[asyncio.Runner]
    scripts: ClassVar[Scripts]
    clock: ClassVar[type[ServerClock]]
    actions: ClassVar[st.SearchStrategy[tuple[str, dict[str, Any]]]]
    patient: ClassVar[bool]
    steps: ClassVar[int]

    @classmethod
    def of(
        cls,
        bench: Bench,
        runner: asyncio.Runner,
        *,
        verbs: tuple[str, ...] = VERBS,
        clock: type[ServerClock] = ServerClock,
        steps: bool = True,
        patient: bool = True,
    ) -> type[LateCalls]:
        """The machine on a topic of `bench`. `patient`: callers wait with the next try until the one before
        can't act any more."""
        texts = {name: text.replace(BY_THE_SYSTEMS, BY_OUR_CLOCK) for name, text in bench.texts.items()}
        bound = {
            "bench": bench,
            "runner": runner,
            "scripts": Scripts(KeyNames(), texts),
            "clock": clock,
            "actions": weighted(verbs, steps),
            "patient": patient,
            "steps": 0,
        }
        return type("BoundLateCalls", (cls,), bound)

    def __init__(self) -> None:
        super().__init__()
        self.bench.raw.delete(*self.bench.keys)
        self.bench.now = NOW
        self.monotonic = 0
        self.relays = [Relay(self.clock()) for _ in range(2)]
        self.serial: Iterator[int] = count(1)
        self.believed: dict[str, int | None] = dict.fromkeys(MATTERS)
        self.under_way: dict[str, Asked] = {}
        self.held: list[Try] = []
        self.set: list[tuple[int, int]] = []
        """When the server's clock was set, and by how much."""

    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Somebody does something."""
        name, given = data.draw(self.actions)
        getattr(self, name)(**given)

    # --------------------------------------------------------------------------- callers

    def ask(self, verb: str, ids: tuple[str, ...], **how: Any) -> None:
        """For something new; what is asked of a matter already has to end before that."""
        asked = self._asked(verb, ids)
        if self.under_way.keys().isdisjoint(asked.matters):
            for matter in asked.matters:
                self.under_way[matter] = asked
                asked.may[matter] = {self.believed[matter]}
            self._try(asked, **how)

    def _asked(self, verb: str, ids: tuple[str, ...]) -> Asked:
        topic = self.bench.topic
        due = NOW + YEAR + next(self.serial)
        if verb == "schedule":
            args = [part for each in ids for part in (each, when_words(due, None), ENVELOPE)]
            return Asked(timeline.schedule(topic, 0, args), lambda *_: due, ids)
        if verb == "cancel":
            args = [part for each in ids for part in (each, "")]
            return Asked(timeline.cancel(topic, cast("list[str]", args)), lambda *_: None, ids)
        if verb == "run":
            return Asked(timeline.run(topic, ids), lambda old, now: old and min(old, now), ids)
        if verb == "pause":
            return Asked(people.pause(topic, "at", due), lambda *_: due, (PAUSE,))
        return Asked(people.pause(topic, "end", 0), lambda *_: None, (PAUSE,))

    def again(self, pick: int, **how: Any) -> None:
        """The next try of a call without an answer, perhaps by the other relay."""
        if asked := self._open(pick):
            if self.patient:
                self._pass(asked.last + 1 - self.monotonic)
            self._try(asked, **how)

    def give_up(self, pick: int) -> None:
        """Have no further try. When the last one is over, whatever there is will stand."""
        if asked := self._open(pick):
            if self.patient:
                self._pass(asked.last + 1 - self.monotonic)
            self._end(asked)

    def _open(self, pick: int) -> Asked | None:
        calls = list(dict.fromkeys(self.under_way.values()))
        return calls[pick % len(calls)] if calls else None

    def _end(self, asked: Asked) -> None:
        """It is answered, or given up: from now on it does nothing."""
        found = self._found()
        for matter in asked.matters:
            assert found[matter] in asked.may[matter], f"{matter}: {found[matter]} of {asked.may[matter]}"
            self.believed[matter] = found[matter]
            del self.under_way[matter]

    # ---------------------------------------------------------------------------- relays

    def _try(self, asked: Asked, *, relay: int, fate: str, travel: int) -> None:
        by = self.relays[relay]
        began = self.monotonic
        self._learn(by, travel)
        deadline = began + TTL
        prepared = self.scripts.prepare(asked.call, lambda _: 0)
        known = max(by.known, sum(at < began - RENEW * SECOND for at, _ in self.set))
        sent = Try(asked, self._command(prepared, by.clock.at(deadline / SECOND)), deadline, known)
        asked.last = deadline
        if fate == "held":
            self.held.append(sent)
            return
        if not self._run(sent, answered=fate == "answered") and fate == "answered":
            by.clock.forget()

    @staticmethod
    def _command(prepared: Prepared, until: int) -> Callable[[bool], tuple[Any, ...]]:
        return lambda known: prepared.command(until, known=known)

    def _learn(self, by: Relay, travel: int) -> None:
        """As a connection does before it sends a call: it asks for the server's time if it has to."""
        if not by.clock.is_old(self.monotonic / SECOND):
            return
        asked = self.monotonic
        self._pass(travel // 2)
        told, by.known = self.bench.now, len(self.set)
        self._pass(travel - travel // 2)
        by.clock.heard(told, asked / SECOND, self.monotonic / SECOND)

    # --------------------------------------------------------------- the network, and time

    def arrive(self, pick: int) -> None:
        """Bytes that were held up come to Redis; their sender does not hear of it."""
        if self.held:
            self._run(self.held.pop(pick % len(self.held)), answered=False)

    def wait(self, duration: int) -> None:
        self._pass(duration)

    def step(self, by: int) -> None:
        """The server's clock is set."""
        self.bench.now += by
        self.set.append((self.monotonic, by))

    def _pass(self, duration: int) -> None:
        if duration > 0:
            self.monotonic += duration
            self.bench.now += duration

    def _run(self, sent: Try, *, answered: bool) -> bool:
        """Redis runs a try; return whether it did so, and has not refused it."""
        asked, before = sent.asked, self._found()
        stepped = sum(by for _, by in self.set[sent.known :])
        over = self.monotonic > sent.deadline + max(-stepped, 0)
        done = self._execute(sent)
        if not over:
            if len(self.set) == sent.known and self.monotonic + TRAVEL <= sent.deadline:
                assert done, "nobody has set the clock, and there was time enough"
            for matter in asked.matters if done else ():
                state = asked.effect(before[matter], self.bench.now)
                if self.under_way.get(matter) is asked:
                    asked.may[matter] = {*asked.may[matter], state} if not answered else {state}
                elif self.monotonic > sent.deadline:  # the clock was set back: it is said in the docs
                    self._stepped_over(matter, state)
        if answered and done:
            self._end(asked)
        return done

    def _stepped_over(self, matter: str, state: int | None) -> None:
        self.believed[matter] = state
        if matter in self.under_way:
            self.under_way[matter].may[matter].add(state)

    def _execute(self, sent: Try) -> bool:
        """Whether the script has not refused it as one that comes too late."""
        try:
            try:
                self.bench.raw.execute_command(*sent.command(True))
            except NoScriptError:
                self.bench.raw.execute_command(*sent.command(False))
        except ResponseError as refusal:
            if not str(refusal).startswith("GIVENUP"):
                raise
            return False
        return True

    # ----------------------------------------------------------------------- the promise

    def _found(self) -> dict[str, int | None]:
        """The state of each matter."""
        state = self.bench.state()
        found: dict[str, int | None] = {PAUSE: state.pause}
        for timer_id in IDS:
            at, _, record = state.of(timer_id)
            found[timer_id] = None if at is None else from_score(record.due if record else at)
        return found

    @invariant()
    def no_ghosts(self) -> None:
        """What was answered stands, unless somebody asks for something else meanwhile."""
        type(self).steps += 1
        found = self._found()
        for matter in MATTERS:
            asked = self.under_way.get(matter)
            expected = asked.may[matter] if asked else {self.believed[matter]}
            assert found[matter] in expected, f"a ghost: {matter} is {found[matter]}, and not {expected}"
