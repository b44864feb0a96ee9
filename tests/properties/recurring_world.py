"""Two relays tick one recurrence; people change, pause, trigger, remove and put it again; its occurrences
end, or not; the clock goes on, also by hours. What a relay has computed may be written late, or never.

The judge knows the rule, every second of whose minutes is an instant, and asks at each step: has each nominal
instant that has passed one occurrence, or one reason?
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, ClassVar, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from relay.core.instants import SECOND
from relay.core.recurring.nominal import Nominal, write_instant
from relay.core.recurring.recurrence import (
    CatchUp,
    Overlap,
    Recurrence,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import backfilled, triggered, turn
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.recurrences import RedisRecurrences
from tests.worlds.scripts.asking import NOW
from tests.worlds.scripts.bench import Bench

MINUTE = 60 * SECOND
NAME = "r"

T = TypeVar("T")


class RecurringWorld(RuleBasedStateMachine):
    """One recurrence on a topic. `subclass` gives it a server."""

    bench: ClassVar[Bench]
    runner: ClassVar[asyncio.Runner]
    steps: ClassVar[int] = 0

    @classmethod
    def subclass(cls, bench: Bench, runner: asyncio.Runner) -> type[RecurringWorld]:
        """The machine on a topic of `bench`."""
        return type("BoundRecurringWorld", (cls,), {"bench": bench, "runner": runner, "steps": 0})

    @initialize(overlap=st.sampled_from(Overlap), catch_up=st.sampled_from(CatchUp))
    def begin(self, overlap: Overlap, catch_up: CatchUp) -> None:
        """A topic without anything."""
        for key in self.bench.raw.keys(f"*{self.bench.topic}*"):
            if not str(key).rstrip("'").endswith(":now"):
                self.bench.raw.delete(key)
        self.bench.now = NOW
        self.store = RedisRecurrences(self.bench.redis, Carrier(self.bench.redis))
        self.wanted = Recurrence(NAME, Rule(every=MINUTE), b"x", overlap=overlap, catch_up=catch_up)
        self.computed: list[Turn] = []
        self.changes: list[tuple[StoredRecurrence, Standing]] = []
        self.came: Counter[str] = Counter()
        """How often each occurrence was taken in, as the scripts answered."""
        self.since: int | None = None
        """The first nominal instant that the recurrence has to account for; None while there is none."""
        self.asked = 0
        """How many further runs people have asked for."""
        self.version = 0
        self.put()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        type(self).steps += 1
        return self.runner.run(call)

    def read(self) -> StoredRecurrence | None:
        return self.runner.run(self.store.get(self.bench.topic, NAME))[1]

    def instants(self, since: int | None) -> list[Nominal]:
        if since is None:
            return []
        return [Nominal(since + n * MINUTE, 0) for n in range((self.bench.now - since) // MINUTE + 3)]

    # ---------------------------------------------------------------------------- the clock

    @rule(seconds=st.sampled_from([1, 30, 60, 61, 300, 3600]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self.bench.now += seconds * SECOND

    # --------------------------------------------------------------------------- the relays

    @rule()
    def compute(self) -> None:
        """A relay reads what is due, and computes the turn."""
        due = self.runner.run(self.store.due(self.bench.topic, 5))
        for kept in due.kept:
            self.computed.append(turn(kept, self.instants(kept.standing.next), due.now, "2026a"))

    @rule()
    def compute_by_another_calendar(self) -> None:
        """A relay that knows another calendar than the others computes the same turns by that."""
        due = self.runner.run(self.store.due(self.bench.topic, 5))
        for kept in due.kept:
            known = [
                each._replace(left_out="calendar") if each.instant // MINUTE % 2 else each
                for each in self.instants(kept.standing.next)
            ]
            self.computed.append(turn(kept, known, due.now, "2026a"))

    @rule(number=st.integers(0, 3), again=st.booleans())
    def write(self, number: int, again: bool) -> None:
        """A relay writes what it has computed, now or a while ago; perhaps the reply is lost, and it is
        written again."""
        if not self.computed:
            return
        made = self.computed[number % len(self.computed)]
        if not again:
            self.computed.remove(made)
        self.note(made)

    def note(self, made: Turn) -> Turned:
        stood = self.lives(made.kept.standing.last)
        there = {each.timer_id for each in made.occurrences if self.lives(each.timer_id)}
        (word,) = self.run(self.store.turn(self.bench.topic, [made], self.bench.now))
        if word is Turned.DONE:
            assert stood == made.kept.stands, "it went by whether the last occurrence had ended"
            new = [each for each in made.occurrences if each.timer_id not in there]
            self.came.update(each.timer_id for each in new)
            assert all(self.due(each.timer_id) <= self.bench.now for each in new), "nothing is early"
        return word

    def lives(self, timer_id: str) -> bool:
        return self.bench.raw.zscore(self.bench.timeline, timer_id) is not None

    def due(self, timer_id: str) -> int:
        stored = self.runner.run(self.bench.store.get(self.bench.topic, timer_id))
        assert stored is not None
        return stored.due

    @rule()
    def tick(self) -> None:
        """A relay computes and writes at once."""
        self.compute()
        if self.computed:
            self.note(self.computed.pop())

    # ----------------------------------------------------------------------- applications

    @rule(number=st.integers(0, 5))
    def end(self, number: int) -> None:
        """An occurrence ends."""
        names = cast("list[bytes]", self.bench.raw.zrange(self.bench.timeline, 0, -1))
        if names:
            self.run(self.bench.store.cancel(self.bench.topic, [names[number % len(names)].decode()]))

    # ------------------------------------------------------------------------------- people

    def put(self) -> None:
        """Keep it, with its first instant ahead; as the engine does, once what has passed is settled."""
        kept, now = self.read(), self.bench.now
        if kept is not None:
            return
        first = now - now % MINUTE + MINUTE
        standing = Standing(version=1, next=first)
        done = self.run(self.store.keep(self.bench.topic, None, self.wanted, standing, now, reason="put"))
        assert done
        self.since, self.came, self.asked = first, Counter(), 0

    @rule()
    def put_again(self) -> None:
        """If it is there, nothing happens."""
        self.put()

    @rule(pauses=st.booleans())
    def pause(self, pauses: bool) -> None:
        """Read it to pause or resume it, once what has passed is settled."""
        kept = self.read()
        if kept is None:
            return
        if kept.standing.next is not None and kept.standing.next <= self.bench.now:
            self.note(turn(kept, self.instants(kept.standing.next), self.bench.now, "2026a"))
            return
        paused = self.bench.now if pauses else None
        self.changes.append((kept, replace(kept.standing, version=kept.standing.version + 1, paused=paused)))

    @rule()
    def change(self) -> None:
        """Write a change that was read for, perhaps a while ago."""
        if self.changes:
            kept, standing = self.changes.pop(0)
            now = self.bench.now
            self.run(self.store.keep(self.bench.topic, kept, self.wanted, standing, now, reason="paused"))

    @rule(
        minutes=st.sampled_from([0, 0, 0, 1, 3]),
        apart=st.sampled_from([0, 45]),
        overlap=st.sampled_from(Overlap),
    )
    def ask(self, minutes: int, apart: int, overlap: Overlap) -> None:
        """For a run now, beside the rule; or for the minutes before, at once or one after another."""
        kept, now = self.read(), self.bench.now
        if kept is None:
            return
        made = triggered(kept, now)
        if minutes:
            nominals = [now - now % MINUTE - n * MINUTE for n in range(minutes, 0, -1)]
            apart = 0 if overlap is Overlap.ALLOW else apart * SECOND  # they are made ahead of their time
            made = backfilled(kept, nominals, now, apart, overlap)
        if self.note(made) is Turned.DONE:
            self.asked += minutes or len(made.occurrences)

    def is_nominal(self, timer_id: str) -> bool:
        return "~" not in timer_id

    @rule(removes=st.integers(0, 9))
    def remove(self, removes: int) -> None:
        """Seldom, so that its life is long."""
        kept = self.read()
        if kept is not None and removes == 0:
            assert self.run(self.store.remove(self.bench.topic, kept))
            self.since = None
            self.bench.raw.delete(self.bench.timeline, self.bench.payloads)

    # ------------------------------------------------------------------------------ the judge

    @invariant()
    def each_instant_once(self) -> None:
        """Every nominal instant before `next` has an occurrence or a reason; none has two occurrences."""
        kept = self.read()
        assert (kept is None) == (self.since is None)
        if kept is None or self.since is None:
            return
        standing = kept.standing
        assert standing.next is not None
        passed = (standing.next - self.since) // MINUTE
        left = sum(standing.left_out.values())
        assert [name for name, count in self.came.items() if count > 1] == []
        nominal = sum(map(self.is_nominal, self.came))
        buffered = standing.buffered is not None
        held = standing.held is not None
        assert nominal + left + buffered + held == passed, (write_instant(standing.next), standing)
        assert standing.runs == len(self.came)
        assert len(self.came) - nominal + standing.to_fill == self.asked, "what is asked for comes once"
