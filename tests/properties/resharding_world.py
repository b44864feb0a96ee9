"""Clients, relays, movers and an operator at work on one topic that is resharded, each step by itself.

What a run is made of, and each step, is drawn. After a while all go on until they end, and late calls arrive;
then the move that may be under way is finished, and what lies in Redis is held against what may be true.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from redis.exceptions import RedisError

from relay.core.errors import OtherLayout, OutOfTime, ServiceError, StoreFull, StoreUnavailable
from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Extension, Limits, Settlement, Verb
from relay.core.partitions import LEAVING, Layout
from relay.core.ports import AGAIN
from relay.core.timers import Change, Claim, ClaimedTimers
from relay.store.partitions import carrying
from relay.store.partitions import moves as moves_module
from relay.store.partitions import timers as timers_module
from relay.store.partitions import topics as topics_module
from relay.store.verbs.timeline import ClaimReply
from tests.properties.resharding_daemon import AS_THEY_ARE, Actor, Kinds, Process, Thing, asked, ending
from tests.properties.resharding_journal import replayed
from tests.properties.resharding_redis import here, record, settled, version
from tests.properties.resharding_seam import TOPIC, Nodes, Seam, Step, in_turn
from tests.properties.resharding_truth import LEASE, Op, State, Truth, Violation
from tests.worlds.scripts.asking import NOW

Choose = Callable[[int], int]
"""Draws a number below another one. 0 is what happens if nothing special does."""

MOST_STEPS = 600
"""No run takes that many, unless it never ends."""

KEEP = Limits(keep=True)
"""What is rejected leaves a dead letter."""

BACK = "move/back"
"""A batch has gone back."""

PRODUCERS = ("schedule", "create", "change", "cancel", "get", "run", "list", "redrive")
OUTCOMES = (Verb.ACK, Verb.NACK, Verb.RESCHEDULE, Verb.REJECT, Verb.RELEASE)

IDS = {1: "ahd", 2: "ahed"}
"""Ids by the number of partitions that the topic begins with. The first two move together, and the last one
stays where it is."""


@dataclass(frozen=True)
class Plan:
    """How much there is of what, at most. `moves` are made during a run, `history` before it."""

    clients: int = 2
    ops: int = 2
    relays: int = 2
    claims: int = 2
    movers: int = 2
    moves: int = 2
    history: int = 2
    lost: int = 2
    late: int = 2
    deaths: int = 2
    full: int = 1
    ticks: int = 3
    operator: int = 0
    base: int = 0
    """The partitions that the topic begins with; 0: 1 or 2."""
    kinds: Sequence[str] = PRODUCERS
    outcomes: Sequence[Verb] = OUTCOMES
    batch: int = 0
    """Timers in a batch; 0: 1 or 2."""
    ids: str = ""
    at_first: bool = False
    """Every id has a timer at first."""
    dead: bool = False
    """And a dead letter, too."""
    begun: bool = False
    """A move has begun at first."""
    order: Sequence[int] = ()
    """Who goes on in the first steps, in which the new place is full for as long as `full` says."""
    due: int = 0
    """In how many seconds timers are due at most."""


class Told(NamedTuple):
    """A line of what has happened."""

    who: str
    step: Step
    reply: object = None

    def __str__(self) -> str:
        return f"{self.who}: {self.step} -> {self.reply!r:.200}"


@dataclass
class Late:
    """A call that is still under way when nobody waits for it any more."""

    step: Step
    timer_id: str = ""
    number: int = 0


@dataclass
class World:
    """One run. `choose` draws what happens."""

    nodes: Nodes
    seams: Sequence[Seam]
    choose: Choose
    plan: Plan
    kinds: Kinds
    now: int = NOW
    trace: list[object] = field(default_factory=list)
    steps: int = 0
    met: set[str] = field(default_factory=set)
    """What has been seen of the protocol: refusals of the scripts, what became of batches, and answers."""
    paused: bool = False
    """A pause has been answered, and no resume has begun."""

    def __post_init__(self) -> None:
        self.nodes.empty()
        self.nodes.set_clock(self.now)
        self.base = self.plan.base or 1 + self.choose(2)
        self.batch = self.plan.batch or 1 + self.choose(2)
        self._steady = self.choose(2)
        """Whoever is at work goes on as a rule: other runs are found so."""
        self.ids = self.plan.ids or IDS[self.base]
        self.late: list[Late] = []
        self.actors: list[Actor] = []
        self.truths: dict[str, Truth] = {}
        self.left = {
            name: getattr(self.plan, name) for name in ("lost", "late", "deaths", "full", "ticks", "moves")
        }
        self._numbers, self._versions, self._nonces = count(1), count(1), count(1)
        self._free = iter(self.seams)
        self._current: Actor | None = None

    # ------------------------------------------------------------------ what a run is made of

    def _process(self) -> Process:
        return Process(next(self._free), self.kinds)

    def run(self) -> None:
        """Everything, from the beginning to the end. Raises `Violation`."""
        try:
            texts = self._begin()
            self._people(texts)
            for number in self.plan.order:
                actor = self.actors[number]
                is_full = self.left["full"] and actor.step is not None and actor.step.verb == "move/put"
                self.left["full"] -= bool(is_full)
                self._act(actor, "full" if is_full else "done")
            for _ in range(40 + self.choose(40)):
                self._anything()
            self._finish()
            for timer_id, state in settled(self.nodes, 2 * self.base, self.ids).items():
                self.truths[timer_id].stands(state)
            self.met |= {kind.name for kind in replayed(self.nodes, 2 * self.base, self.steps)}
        except Violation as violation:
            raise Violation("\n  ".join([str(violation), *map(str, self.trace)])) from None

    def _begin(self) -> list[str]:
        """Some timers, and perhaps some moves. Return the layouts that there have been."""
        if self.base > 1:
            self.nodes.of(0).set(self.nodes.key("layout", 0), f"1 {self.base}")
        first = self._process()
        first.layouts.learn(TOPIC, f"1 {self.base}" if self.base > 1 else "")
        for timer_id in self.ids:
            self.truths[timer_id] = Truth(timer_id, frozenset({(State(None), frozenset())}), self.now)
        texts = [first.layout.text]
        moved = self.choose(1 + self.plan.history)
        empty = self.choose(2) and not self.plan.at_first
        if not empty:
            self._fill(first)
        for _ in range(moved):
            self._complete(Actor("history", first, iter([lambda: self._move_once(first, texts)])))
        if empty:
            self._fill(first, all_of_them=False)
        if self.plan.begun:
            self._complete(Actor("history", first, iter([lambda: self._begin_move(first, texts)])))
        found = here(self.nodes, 2 * self.base)
        self.trace.append(
            f"{self.base} partitions, batches of {self.batch}, layouts {texts}, at first {found}"
        )
        return texts

    def _fill(self, process: Process, *, all_of_them: bool = True) -> None:
        for timer_id in self.ids:
            if all_of_them or self.choose(2):
                things = [self._producing(process, timer_id, self._producer_op("schedule"))]
                if self.plan.dead:
                    things *= 2
                    things.insert(1, lambda: self._claiming(process))
                self._complete(Actor("fill", process, iter(things)))

    async def _move_once(self, process: Process, texts: list[str]) -> None:
        await self._begin_move(process, texts)
        await process.moves.run(process.layout, _moved)
        texts.append(process.layout.text)

    async def _begin_move(self, process: Process, texts: list[str]) -> None:
        await process.moves.begin(TOPIC, self._towards(process.layout))
        texts.append(process.layout.text)

    def _towards(self, layout: Layout) -> int:
        return self.base * 2 if layout.count == self.base else self.base

    def _people(self, texts: list[str]) -> None:
        plan = self.plan
        makers = (
            *[("client", self._client)] * plan.clients,
            *[("relay", self._relay)] * plan.relays,
            *[("mover", self._mover)] * plan.movers,
            *[("operator", self._operator)] * plan.operator,
        )
        for number, (name, maker) in enumerate(makers):
            process = self._process()
            text = texts[0 if name == "mover" else self.choose(len(texts))]
            process.layouts.learn(TOPIC, text)
            self.trace.append(f"{name} {number} knows {text!r}")
            actor = Actor(f"{name} {number}", process, maker(process))
            self.actors.append(actor)
            self._next(actor)

    # ------------------------------------------------------------------ what each of them does

    def _client(self, process: Process) -> Iterator[Thing]:
        for _ in range(1 + self.choose(self.plan.ops)):
            kind = self.plan.kinds[self.choose(len(self.plan.kinds))]
            if kind == "redrive":
                yield lambda: self._redriving(process)
                continue
            yield self._producing(process, self._id(), self._producer_op(kind))

    def _id(self) -> str:
        """The first one as a rule."""
        return self.ids[max(0, self.choose(2 * len(self.ids)) - len(self.ids))]

    def _producer_op(self, kind: str) -> Op:
        if kind in ("schedule", "create", "change"):
            return Op(kind, next(self._versions), self.now + self.choose(1 + self.plan.due) * SECOND)
        return Op(kind)

    def _producing(self, process: Process, timer_id: str, op: Op) -> Thing:
        async def thing() -> None:
            for _ in range(2):  # a caller tries once more
                try:
                    await self._perform(timer_id, op, lambda: asked(process, timer_id, op))
                    return
                except ServiceError:
                    if not self.choose(2):
                        return

        return thing

    async def _redriving(self, process: Process) -> None:
        """Redrive one of the letters that there are. One that is moved meanwhile has another name, and so its
        caller may always be told that it is gone."""
        topics = process.topics
        with suppress(ServiceError):
            page = await topics.dead_page(TOPIC, limit=10, cursor="")
            if not page.letters:
                return
            name = page.letters[self.choose(len(page.letters))].dead_id
            letter = await topics.dead_letter(TOPIC, name)
            if letter is None:
                return

            async def redrive() -> Change:
                (change,) = await topics.redrive(TOPIC, [name])
                if change is Change.GONE:
                    raise OutOfTime
                return change

            await self._perform(letter.timer_id, Op("redrive", int(letter.payload)), redrive)

    def _relay(self, process: Process) -> Iterator[Thing]:
        for _ in range(self.plan.claims):
            yield lambda: self._claiming(process)

    async def _claiming(self, process: Process) -> None:
        partition, sent, timers = "", self.now, ClaimedTimers.of(())
        nonce = next(self._nonces).to_bytes(16, "big")
        request = ClaimRequest(limit=5, lease=LEASE, nonce=nonce, max_bytes=1 << 20)
        for _ in range(1 + AGAIN):
            partition = self._polled(process.layout)
            try:
                timers = (await process.timers.claim(partition, request)).timers
                break
            except OtherLayout:
                pass
            except ServiceError:  # it may have taken something all the same
                find = partial(process.timers.claimed, partition, request, since=sent, until=self.now)
                timers = await self._found(nonce, find)
                break
        for timer in timers:
            if not self.choose(4):
                extension = Extension(timer.timer_id, nonce, False)
                await self._leasing(
                    timer.timer_id,
                    Op("extend", nonce=nonce),
                    partial(process.timers.extend, partition, [extension], lease=LEASE),
                )
            verb = self.plan.outcomes[self.choose(len(self.plan.outcomes))]
            op = Op("settle", nonce=nonce, verb=verb)
            if verb is Verb.RESCHEDULE:
                op = op._replace(version=next(self._versions), due=self.now)
            settlement = Settlement(nonce, ending(op), [timer.timer_id])
            await self._leasing(
                timer.timer_id,
                op,
                partial(process.timers.settle, partition, [settlement], limits=KEEP),
            )

    async def _found(self, nonce: bytes, find: Callable[[], Awaitable[Claim]]) -> ClaimedTimers:
        """What a claim has taken of which the reply was lost, and whether one id is among that."""
        timers, timer_id = ClaimedTimers.of(()), self._id()

        async def call() -> bool:
            nonlocal timers
            timers = (await find()).timers
            return timer_id in timers.timer_ids

        with suppress(ServiceError):
            await self._perform(timer_id, Op("find", nonce=nonce), call)
        return timers

    async def _leasing(self, timer_id: str, op: Op, work: Callable[[], Awaitable[Sequence[Any]]]) -> None:
        async def call() -> Any:
            (told,) = await work()
            return told

        for _ in range(2):
            try:
                await self._perform(timer_id, op, call)
                return
            except ServiceError:
                if not self.choose(2):
                    return

    def _polled(self, layout: Layout) -> str:
        """A partition in which one of the ids may be."""
        name = layout.partition(self._id())
        if name.endswith(LEAVING) and self.choose(2):
            return layout.filled(name)
        return name.removesuffix(LEAVING)

    def _mover(self, process: Process) -> Iterator[Thing]:
        """In the stead of one that dies comes another, who knows what that one knew."""
        while True:
            yield lambda: self._moving(process)
            if not self.left["moves"] and not record(self.nodes).towards:
                return

    async def _moving(self, process: Process) -> None:
        layout = process.layout
        try:
            if not layout.towards:
                layout = await process.layouts.ask(TOPIC)
            if not layout.towards:
                if not self.left["moves"]:
                    return
                self.left["moves"] -= 1
                layout = await process.moves.begin(TOPIC, self._towards(layout))
            if layout.towards:
                await process.moves.run(layout, _moved)
        except (OtherLayout, StoreFull, StoreUnavailable):
            pass

    def _operator(self, process: Process) -> Iterator[Thing]:
        async def pause() -> None:
            with suppress(OtherLayout):
                await process.topics.pause(TOPIC)
                self.paused = True
                self.trace.append("paused")

        async def resume() -> None:
            self.paused = False
            with suppress(OtherLayout):
                await process.topics.resume(TOPIC)

        for _ in range(self.plan.operator):
            yield pause
            yield resume
        yield pause

    async def _perform(self, timer_id: str, op: Op, work: Callable[[], Awaitable[Any]]) -> None:
        """Make one call, and tell what comes of it."""
        actor = self._current
        assert actor is not None
        actor.timer_id, actor.op, actor.number = timer_id, op, next(self._numbers)
        number = actor.number
        try:
            answer = await work()
        except ServiceError as failure:
            self._failed(actor, number, timer_id)
            self.trace.append(f"{actor.name}: {op} fails: {failure!r}")
            raise
        finally:
            actor.op = None
        if op.kind in ("list", "find") and not answer and BACK in self.met:
            # It reads one partition after the other: what goes back and leaves again may be in none.
            self.truths[timer_id].undone(number)
        else:
            self.truths[timer_id].answer(number, answer)
        self.trace.append(f"{actor.name}: {timer_id} {op.kind} answers {answer}")
        self.met.add(f"{op.kind} {_word(answer)}")

    def _failed(self, actor: Actor, number: int, timer_id: str) -> None:
        if actor.in_doubt:
            self.truths[timer_id].unknown(number)
        else:
            self.truths[timer_id].undone(number)

    # ------------------------------------------------------------------ what happens

    def _anything(self) -> None:
        """One step of somebody's, or something else."""
        what = self.choose(12)
        if what == 11 and self.left["ticks"]:
            self._tick()
        elif what == 10 and self.late:
            self._arrive()
        elif what == 9 and self.actors:
            self.actors[self.choose(len(self.actors))].process.layouts.learn(TOPIC, record(self.nodes).text)
        elif busy := self._busy():
            actor = self._current
            if actor not in busy or not self._steady or self.choose(3) == 2:
                actor = busy[self.choose(len(busy))]
            assert actor is not None
            self._act(actor, self._fate(actor))

    def _busy(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.step is not None]

    def _tick(self) -> None:
        self.left["ticks"] -= 1
        self.now += SECOND + LEASE * self.choose(2)
        self.nodes.set_clock(self.now)
        for truth in self.truths.values():
            truth.tick(self.now)
        self.trace.append(f"it is {(self.now - NOW) // SECOND} s")

    def _arrive(self) -> None:
        """A late call arrives."""
        late = self.late.pop(self.choose(len(self.late)))
        self._send(late.step, "LATE")
        if late.timer_id:
            self.truths[late.timer_id].unknown(late.number)

    def _fate(self, actor: Actor) -> str:
        """What becomes of an actor's step."""
        if actor.name.startswith("operator"):
            return "done"
        assert actor.step is not None
        if actor.step.verb == "move/put" and self.left["full"] and self.choose(3):
            fate = kind = "full"
        else:
            fate = (*["done"] * 12, "lost", "late", "dies", "dies behind it")[self.choose(16)]
            kind = "deaths" if "dies" in fate else fate
        if kind == "done" or not self.left[kind]:
            return "done"
        self.left[kind] -= 1
        return fate

    def _act(self, actor: Actor, fate: str) -> None:
        step = actor.step
        assert step is not None
        is_about_op = actor.op is not None and step.verb.startswith(("timeline/", "people/"))
        truth = self.truths[actor.timer_id] if actor.op else None
        if actor.op and truth:
            truth.begin(actor.number, actor.op)
        label = f"{actor.name}{'' if fate == 'done' else f' {fate.upper()}'}"
        if fate == "full":
            self.trace.append(Told(label, step))
            self._go(actor, StoreFull())
            return
        reply = None
        if fate in ("late", "dies"):
            self.trace.append(Told(label, step))
        else:
            reply = self._send(step, label)
        if fate == "late":
            self.late.append(Late(step, actor.timer_id if is_about_op else "", actor.number))
        if fate == "done":
            self._go(actor, reply)
        elif fate == "lost":
            self._go(actor, StoreUnavailable(), in_doubt=is_about_op)
        else:
            if truth and is_about_op and fate == "dies behind it":
                truth.unknown(actor.number)
            elif truth and not (is_about_op and fate == "late"):
                truth.undone(actor.number)
            actor.op = None
            actor.die()
            self._next(actor)

    def _send(self, step: Step, label: str) -> Any:
        """Do what is to be sent; its reply, or an error."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Violation("it never ends")
        try:
            reply = self.nodes.run(step)
        except RedisError as failure:
            self.trace.append(Told(label, step, failure))
            self.met.add(str(failure).partition(" ")[0])
            return failure
        self.trace.append(Told(label, step, reply))
        whole = reply
        if step.prepared is not None and step.prepared.journaled:
            reply, _ = reply
        if step.verb in ("move/put", "move/void"):
            self.met.add(f"{step.verb} {(reply[0] if isinstance(reply, list) else reply).decode()}")
        elif step.verb == "move/back" and reply:
            self.met.add(BACK)
        elif step.verb == "timeline/claim":
            self._claimed(step, ClaimReply._make(reply))
        return whole

    def _claimed(self, step: Step, reply: ClaimReply) -> None:
        assert step.prepared is not None
        nonce = cast("bytes", step.prepared.args[2])
        if reply.parked or reply.orphans or reply.deaths:
            raise Violation(f"a timer has lost something: {reply}")
        if self.paused and reply.timers:
            raise Violation("a claim hands something out though the topic is paused")
        for name, stored in zip(reply.timers[::3], reply.timers[2::3], strict=True):
            self.truths[name.decode()].claimed(version(stored), nonce)

    def _go(self, actor: Actor, reply: Any, *, in_doubt: bool = False) -> None:
        self._current, actor.in_doubt = actor, in_doubt
        actor.go(reply)
        self._next(actor)

    def _next(self, actor: Actor) -> None:
        self._current = actor
        while actor.step is None and actor.next():
            pass

    def _complete(self, actor: Actor) -> None:
        """Let somebody do all that he has to, and nobody else anything."""
        self._next(actor)
        while actor.step is not None:
            self._act(actor, "done")

    # ------------------------------------------------------------------ how it ends

    def _finish(self) -> None:
        self.trace.append("all go on until they end")
        while busy := self._busy():
            for actor in busy:
                self._act(actor, "done")
        while self.late:
            self._arrive()
        self.left["moves"] = 0
        last = self._process()
        last.layouts.learn(TOPIC, record(self.nodes).text)
        self._complete(Actor("last", last, self._mover(last)))


def _word(answer: object) -> str:
    if isinstance(answer, Enum):
        return str(answer.value)
    return str(answer) if isinstance(answer, bool) else type(answer).__name__


async def _moved(_size: int) -> None:
    pass


def play(
    nodes: Nodes, seams: Sequence[Seam], choose: Choose, plan: Plan, kinds: Kinds = AS_THEY_ARE
) -> World:
    """One run. Raises `Violation`."""
    world = World(nodes, seams, choose, plan, kinds)
    with ExitStack() as stack:
        for module in (carrying, timers_module, topics_module):
            stack.enter_context(patch.object(module, "for_each", in_turn))
        stack.enter_context(patch.object(moves_module, "MAX_PER_CALL", world.batch))
        world.run()
    return world
