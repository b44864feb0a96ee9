"""Callers who repeat what they ask for, by two relays, while bytes arrive late and the server's clock steps.

It is a model of promise 11 as callers see it: what was answered stands until somebody asks for something
else, and a call that was given up changes nothing from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from relay.core.instants import SECOND, from_score
from relay.store.server.scripts import Call
from relay.store.server.server_clock import ServerClock
from relay.store.verbs import people, timeline
from relay.store.verbs.terms import when_words
from tests.properties.slow_network import NETWORK, PICK, STEPPING, SlowNetwork, Try, sending, weighted
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import ENVELOPE

YEAR = 365 * 86_400 * SECOND
IDS = ("a", "é")
PAUSE = "the pause"
MATTERS = (*IDS, PAUSE)
"""What callers ask for: timers, and whether the topic is paused. The state of one is when it is due, or until
when it is paused; None without it."""
VERBS = ("schedule", "schedule", "cancel", "run", "pause", "resume")

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


class LateCalls(SlowNetwork[Asked]):
    """One topic. `of` binds it to a server."""

    patient: ClassVar[bool]

    @classmethod
    def of(
        cls,
        bench: Bench,
        runner: asyncio.Runner,
        *,
        verbs: tuple[str, ...] = VERBS,
        clock: type[ServerClock] = ServerClock,
        patient: bool = True,
    ) -> type[LateCalls]:
        """The machine on a topic of `bench`, whose callers ask for `verbs`. `patient`: they wait with the
        next try until the one before can't act any more."""
        ids = st.sampled_from([IDS[:1], IDS[1:], IDS])
        actions = weighted(
            (
                (6, "ask", {"verb": st.sampled_from(verbs), "ids": ids, **sending()}),
                (6, "again", {"pick": PICK, **sending()}),
                (2, "give_up", {"pick": PICK}),
                *NETWORK,
                STEPPING,
            )
        )
        return cls.bound(bench, runner, actions, clock, patient=patient)

    def __init__(self) -> None:
        super().__init__()
        self.serial: Iterator[int] = count(1)
        self.believed: dict[str, int | None] = dict.fromkeys(MATTERS)
        self.under_way: dict[str, Asked] = {}

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
                self.pass_by(asked.last + 1 - self.monotonic)
            self._try(asked, **how)

    def _try(self, asked: Asked, **how: Any) -> None:
        asked.last = self.send(asked, asked.call, **how).deadline

    def give_up(self, pick: int) -> None:
        """Have no further try. When the last one is over, whatever there is will stand."""
        if asked := self._open(pick):
            if self.patient:
                self.pass_by(asked.last + 1 - self.monotonic)
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

    # ------------------------------------------------------------- what Redis makes of it

    def run(self, sent: Try[Asked], *, answered: bool) -> bool:
        """As in `SlowNetwork`."""
        asked, before = sent.asked, self._found()
        over = self.is_over(sent)
        done = self.execute(sent).done
        if not over:
            assert done or not self.in_time(sent), "nobody has set the clock, and there was time enough"
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
