"""Two relays, people and the peer's publisher and worker do anything in any order, on one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relay.core.instants import SECOND, from_score
from relay.core.nonce import nonces
from relay.core.outcomes import Extension, Limits, Reason, Settled, Settlement, Verb, Verdict
from relay.core.timers import NO_CONDITION, Change, Condition, NewTimer, Scheduled
from relay.store import envelope
from tests.lua.bench import EMPTY, LEASE, NOW, Bench, score
from tests.properties.ledger import Ledger, Token

HOUR = 3600 * SECOND
OFFSETS = st.sampled_from([0, 1, -10 * SECOND, SECOND, LEASE - 1, LEASE, LEASE + 1, HOUR])
WAITS = st.sampled_from([1, SECOND, LEASE + 1, 2 * HOUR, 0])
BACK = st.sampled_from([0, 0, HOUR, 1, SECOND, LEASE])
VERBS = [Verb.RELEASE, Verb.NACK, Verb.ACK, Verb.RELEASE, Verb.NACK, Verb.REJECT, Verb.RESCHEDULE]
QUARTERS = st.sampled_from([1, 3, 0])  # of a microsecond: what a clock with nanoseconds adds
RETRIES = st.sampled_from([0, None, SECOND, HOUR])
EXPIRIES = st.sampled_from([None, None, None, 1, SECOND, LEASE, HOUR])
IDS = st.sampled_from(["a", "é"])
PICKS = st.lists(st.integers(0, 1000), min_size=1, max_size=3)
BOOLEANS = st.booleans()
# What a condition asks: nothing; pending; the due time that a relay tells; another one; both of the good ones.
CONDITIONS = st.sampled_from(["", "", "", "pending", "due", "other", "both"])
LIMITS = st.sampled_from(
    [
        Limits(),
        Limits(keep=True),
        Limits(keep=True, keep_expired=True),
        Limits(max_attempts=2, keep=True),
        Limits(max_attempts=1),
        Limits(max_claims=2, keep=True),
        Limits(max_age=LEASE, keep=True),
        Limits(max_attempts=3, max_claims=3, max_age=HOUR, keep=True),
    ]
)


def action(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


# One rule draws them all, by weight: rules of their own would be switched off at random, and few
# runs would come to a second delivery.
WEIGHTS = {
    action("schedule", timer_id=IDS, offset=OFFSETS, delayed=BOOLEANS, expires_after=EXPIRIES): 3,
    action(
        "change",
        timer_id=IDS,
        offset=OFFSETS,
        create=BOOLEANS,
        condition=CONDITIONS,
        max_waiting=st.integers(0, 2),
    ): 2,
    action("cancel", timer_id=IDS, condition=CONDITIONS): 2,
    action("run", timer_id=IDS): 2,
    action("publish", timer_id=IDS, offset=OFFSETS, at_deadline=BOOLEANS): 2,
    action("work", timer_id=IDS, skew=st.sampled_from([0, -HOUR, HOUR]), quarters=QUARTERS): 3,
    action("commit", timer_id=IDS): 1,
    action("litter", timer_id=IDS): 1,
    action("claim", relay=st.integers(0, 1), limit=st.sampled_from([10, 1]), wait=WAITS, limits=LIMITS): 10,
    action(
        "settle",
        picks=PICKS,
        verb=st.sampled_from(VERBS),
        retry_after=RETRIES,
        flags=st.tuples(BOOLEANS, BOOLEANS),
        back=BACK,
        limits=LIMITS,
    ): 10,
    action("renew", picks=PICKS, received=BOOLEANS): 4,
    action("late", picks=PICKS, verb=st.sampled_from([*Verb, None]), received=BOOLEANS): 4,
    action("redrive", picks=PICKS): 2,
    action("purge", picks=PICKS): 1,
    action("trim", most=st.integers(1, 3)): 1,
    action("pause", duration=st.sampled_from([SECOND, HOUR, None, 0])): 1,
    action("resume"): 1,
    action("sweep"): 1,
    action("repair"): 1,
    action("step_back", back=BACK): 2,
}
ACTIONS = st.sampled_from([each for each, weight in WEIGHTS.items() for _ in range(weight)]).flatmap(
    lambda a: a
)

T = TypeVar("T")

# Asks the fence itself which tokens are valid, and writes nothing.
PROBE = """
local valid = {}
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  local raw = redis.call('HGET', KEYS[3], ARGV[i])
  valid[#valid + 1] = score and holds(understand(tonumber(score), raw), ARGV[i + 1]) and 1 or 0
end
return valid
"""


class World(RuleBasedStateMachine):
    """One topic and everybody who writes to it. `subclass` gives it a server."""

    bench: ClassVar[Bench]
    runner: ClassVar[asyncio.Runner]
    prelude: ClassVar[str]
    steps: ClassVar[int]
    relays = (nonces(), nonces())

    @classmethod
    def subclass(cls, bench: Bench, runner: asyncio.Runner) -> type[World]:
        """The machine on a topic of `bench`, and with its scripts' prelude in the probe."""
        prelude = bench.texts["get"].partition("-- get.lua")[0]
        return type("BoundWorld", (cls,), {"bench": bench, "runner": runner, "prelude": prelude, "steps": 0})

    def __init__(self) -> None:
        super().__init__()
        self.bench.raw.delete(*self.bench.keys)
        self.bench.now = NOW
        self.ledger = Ledger()
        self.suspects: list[str] = []  # what sweeps have found
        self.sound = False

    @rule(action=ACTIONS)
    def act(self, action: tuple[str, dict[str, Any]]) -> None:
        """Somebody does something."""
        name, arguments = action
        getattr(self, name)(**arguments)

    # ------------------------------------------------------------------- anybody's intents

    def schedule(self, timer_id: str, offset: int, delayed: bool, expires_after: int | None) -> None:
        """Through a relay, for an instant or after a delay; perhaps not for ever."""
        offset = max(offset, 0) if delayed else offset
        due = self.bench.now + offset
        intent = self.ledger.intend(due, None if expires_after is None else due + expires_after)
        at, delay = (None, offset) if delayed else (due, None)
        timer = NewTimer(timer_id, intent.payload, at, delay, expires_after=expires_after)
        (result,) = self._do(self.bench.store.schedule(self.bench.topic, [timer]))
        change = Change.REPLACED if timer_id in self.ledger.timers else Change.CREATED
        assert result == Scheduled(due, change)
        self.ledger.scheduled(timer_id, intent)

    def change(self, timer_id: str, offset: int, create: bool, condition: str, max_waiting: int) -> None:
        """Through a relay, and perhaps not: twice in one call, so that the second meets the first."""
        told, asked = self._condition(timer_id, condition)
        intents = [self.ledger.intend(self.bench.now + offset), self.ledger.intend(self.bench.now)]
        timers = [
            NewTimer(timer_id, intent.payload, intent.due, create=create, condition=asked)
            for intent in intents
        ]
        results = self._do(self.bench.store.schedule(self.bench.topic, timers, max_waiting=max_waiting))
        for intent, result in zip(intents, results, strict=True):
            there = timer_id in self.ledger.timers
            refusal = Change.UNCHANGED if there and create else self._refusal(timer_id, asked, told)
            if refusal is None and not there and 0 < max_waiting <= len(self.ledger.timers):
                refusal = Change.FULL
            if refusal is None:
                assert result == Scheduled(intent.due, Change.REPLACED if there else Change.CREATED)
                self.ledger.scheduled(timer_id, intent)
                told = intent.due
            else:
                assert result == Scheduled(told if there else None, refusal), "what was refused is not stored"

    def cancel(self, timer_id: str, condition: str) -> None:
        """Through a relay."""
        told, asked = self._condition(timer_id, condition)
        (change,) = self._do(self.bench.store.cancel(self.bench.topic, [timer_id], asked))
        refusal = self._refusal(timer_id, asked, told)
        if timer_id not in self.ledger.timers:
            refusal = None
            assert change is Change.GONE
        else:
            assert change is (refusal or Change.CANCELLED)
        if refusal is None:
            self.ledger.removed(timer_id)

    def _condition(self, timer_id: str, name: str) -> tuple[int | None, Condition]:
        """The due time that a relay tells, and the condition of that name."""
        stored = self._do(self.bench.store.get(self.bench.topic, timer_id))
        assert (stored is not None) is (timer_id in self.ledger.timers)
        if stored is None:
            return None, NO_CONDITION if not name else Condition(
                name == "pending", None if name == "pending" else 0
            )
        if not self.ledger.timers[timer_id].foreign:
            assert stored.due == self.ledger.timers[timer_id].due, "the due time survives"
        due = {"due": stored.due, "both": stored.due, "other": stored.due + 1}.get(name)
        return stored.due, Condition(name in ("pending", "both"), due)

    def _refusal(self, timer_id: str, asked: Condition, told: int | None) -> Change | None:
        if asked == NO_CONDITION:
            return None
        if timer_id not in self.ledger.timers:
            return Change.GONE
        if asked.only_pending and timer_id in self.ledger.holders:
            return Change.IN_FLIGHT
        return Change.UNCHANGED if asked.due not in (None, told) else None

    def run(self, timer_id: str) -> None:
        """Somebody does not want to wait."""
        (change,) = self._do(self.bench.store.run(self.bench.topic, [timer_id]))
        if timer_id not in self.ledger.timers:
            assert change is Change.GONE
        elif timer_id in self.ledger.holders:
            assert change is Change.IN_FLIGHT, "a lease is nobody else's"
        else:
            assert change is Change.RUN
            self.ledger.ran(timer_id, self.bench.now)

    def publish(self, timer_id: str, offset: int, at_deadline: bool) -> None:
        """By the peer's publisher; perhaps for the very microsecond at which our lease ends."""
        holder = self.ledger.holders.get(timer_id)
        due = holder.deadline if holder and at_deadline else self.bench.now + offset
        intent = self.ledger.intend(due)
        self.bench.put(timer_id, score(due), stored=envelope.encode(intent.payload, {}, ""))
        self.ledger.published(timer_id, intent)

    # ------------------------------------------------------------------- the peer's worker

    def work(self, timer_id: str, skew: int, quarters: int) -> None:
        """It leases what is due by its own clock, until its own clock and its lease say."""
        clock = score(self.bench.now + skew)
        found = self.bench.raw.zscore(self.bench.timeline, timer_id)
        if found is not None and found <= clock:
            until = score(self.bench.now + skew + LEASE) + quarters * 2**-22
            self.bench.raw.zadd(self.bench.timeline, {timer_id: until})
            self.ledger.taken_by_a_worker(timer_id)

    def commit(self, timer_id: str) -> None:
        """Its ACK is not fenced, and may come late: whatever lives under the id goes."""
        self.bench.raw.zrem(self.bench.timeline, timer_id)
        self.bench.raw.hdel(self.bench.payloads, timer_id)
        self.ledger.removed_by_a_worker(timer_id)

    def litter(self, timer_id: str) -> None:
        """A publisher that died between its two writes."""
        if timer_id not in self.ledger.timers:
            self.bench.put_payload(timer_id)
            self.ledger.litter.add(timer_id)

    # -------------------------------------------------------------------------- the relays

    def claim(self, relay: int, limit: int, wait: int, limits: Limits) -> None:
        """What it takes is settled later, or never, as if the reply had got lost."""
        self.bench.now += wait
        nonce = self.relays[relay]()
        due = self._due()
        claim = self._do(self.bench.claim(nonce, limit=limit, limits=limits))
        assert claim.now == self.bench.now
        if due and claim.now < self.ledger.paused:
            assert claim.paused_until == self.ledger.paused
            due = []
        else:
            assert claim.paused_until is None
        taken = [timer.timer_id for timer in claim.timers] + [timer_id for timer_id, _ in claim.deaths]
        assert sorted(taken) == sorted(due[:limit]), "the first that are due, unless the topic is paused"
        for timer in claim.timers:
            self.ledger.delivered(timer, claim.now, nonce, claim.deadline, limits)
        for timer_id, reason in claim.deaths:
            self.ledger.died(timer_id, Reason(reason), claim.now, limits)
        first = min(self.bench.state().timeline.values(), default=None)
        assert claim.next == (None if first is None else from_score(first))

    def _due(self) -> list[str]:
        """Whose score is not after now, in the timeline's order."""
        timeline = self.bench.state().timeline
        return [timer_id for timer_id, at in timeline.items() if at <= score(self.bench.now)]

    def settle(
        self,
        picks: list[int],
        verb: Verb,
        retry_after: int | None,
        flags: tuple[bool, bool],
        back: int,
        limits: Limits,
    ) -> None:
        """With tokens that hold; perhaps just after the clock was set back."""
        self.bench.now -= back
        if tokens := self._choose(picks, list(self.ledger.holders.values())):
            self._settle(tokens, verb, retry_after, flags, limits)

    def renew(self, picks: list[int], received: bool) -> None:
        """Renewals and receipts, with tokens that hold."""
        if tokens := self._choose(picks, list(self.ledger.holders.values())):
            self._extend(tokens, received)

    def late(self, picks: list[int], verb: Verb | None, received: bool) -> None:
        """With any token that there ever was: late, twice, after a takeover."""
        if not (tokens := self._choose(picks, self.ledger.tokens)):
            return
        before = self.bench.state()
        answers: list[Settled] = [*self._extend(tokens, received)] if verb is None else []
        if verb is not None:
            answers = self._settle(tokens, verb, 0, (received, received), Limits(keep=True))
        for token, answer in zip(tokens, answers, strict=True):
            if answer is Verdict.STALE:
                after = self.bench.state().of(token.timer_id)
                assert before.of(token.timer_id) == after, "a stale token changes nothing"

    def _settle(
        self,
        tokens: list[Token],
        verb: Verb,
        retry_after: int | None,
        flags: tuple[bool, bool],
        limits: Limits,
    ) -> list[Settled]:
        received, flag = (False, flags[1]) if verb is not Verb.RELEASE else flags
        intents = [self.ledger.intend(self.bench.now + (retry_after or 0)) for _ in tokens]
        settlements = [
            Settlement(
                token.timer_id,
                token.nonce,
                verb,
                None if verb is Verb.RELEASE and not flag else retry_after,
                received,
                unsent=verb is Verb.RELEASE and flag and not received,
                error="it;failed" if verb in (Verb.NACK, Verb.REJECT) else "",
                again=NewTimer(token.timer_id, intent.payload, delay=retry_after or 0),
                new_content=flag,
            )
            for token, intent in zip(tokens, intents, strict=True)
        ]
        answers = self._do(self.bench.store.settle(self.bench.topic, settlements, limits=limits))
        for token, said, intent, answer in zip(tokens, settlements, intents, answers, strict=True):
            if self.ledger.answered(token, answer):
                if not said.new_content:
                    intent.payload = self.ledger.timers[token.timer_id].payload
                self.ledger.settled(token, said, answer, self.bench.now, limits, intent)
        return answers

    def _extend(self, tokens: list[Token], received: bool) -> list[Verdict]:
        extensions = [Extension(token.timer_id, token.nonce, received) for token in tokens]
        verdicts = self._do(self.bench.store.extend(self.bench.topic, extensions, lease=LEASE))
        for token, verdict in zip(tokens, verdicts, strict=True):
            if self.ledger.answered(token, verdict):
                token.received |= received
                token.deadline = max(token.deadline, self.bench.now + LEASE)
        return verdicts

    @staticmethod
    def _choose(picks: list[int], pool: list[Token]) -> list[Token]:
        """Tokens of different timers, since a call takes each timer once."""
        chosen = [pool[pick % len(pool)] for pick in picks] if pool else []
        return list({token.timer_id: token for token in chosen}.values())

    # ------------------------------------------------------------------------------ people

    def redrive(self, picks: list[int]) -> None:
        """Of the dead, whose ids may live again by now."""
        names = self.bench.dead_ids()
        chosen = list(dict.fromkeys(pick % len(names) for pick in picks)) if names else []
        if not chosen:
            return
        graves = [self.ledger.graves[n] for n in chosen]
        changes = self._do(self.bench.topics.redrive(self.bench.topic, [names[n] for n in chosen]))
        for grave, change in zip(graves, changes, strict=True):
            if grave.timer_id in self.ledger.timers:
                assert change is Change.UNCHANGED, "the newest intent wins"
            else:
                assert change is Change.RUN
                self.ledger.redriven(grave, self.bench.now)

    def purge(self, picks: list[int]) -> None:
        """Dead letters that nobody wants any more."""
        names = self.bench.dead_ids()
        chosen = {pick % len(names) for pick in picks} if names else set()
        if chosen:
            removed = self._do(self.bench.topics.purge(self.bench.topic, [names[n] for n in chosen]))
            assert removed == len(chosen)
            self.ledger.graves = [grave for n, grave in enumerate(self.ledger.graves) if n not in chosen]

    def trim(self, most: int) -> None:
        """The policy keeps only so many, and what goes is counted."""
        removed = self._do(self.bench.topics.trim(self.bench.topic, max_count=most, max_age=0))
        assert removed == max(len(self.ledger.graves) - most, 0), "nothing is trimmed silently"
        self.ledger.graves = self.ledger.graves[removed:]

    def pause(self, duration: int | None) -> None:
        """For a while, or until resume; for no time at all means resume."""
        until = self._do(self.bench.topics.pause(self.bench.topic, duration=duration))
        assert duration is None or until == (self.bench.now + duration if duration else None)
        self.ledger.paused = until or 0

    def resume(self) -> None:
        self._do(self.bench.topics.resume(self.bench.topic))
        self.ledger.paused = 0

    def sweep(self) -> None:
        """What the janitor finds, it repairs later, when it may be whole again."""
        for which in range(2):
            names, done = self._do(self.bench.topics.orphans(self.bench.topic, limit=100))
            self.suspects += names
            assert done is (which == 1)
        orphans = (self.ledger.litter | self.ledger.strays) - set(self.ledger.timers)
        assert self.ledger.litter <= set(self.suspects), "every orphan is found"
        assert set(names) <= orphans

    def repair(self) -> None:
        """Only what is an orphan still goes."""
        if self.suspects:
            self._do(self.bench.topics.repair(self.bench.topic, self.suspects))
            repaired = set(self.suspects) - set(self.ledger.timers)
            self.ledger.litter -= repaired
            self.ledger.strays -= repaired
            self.suspects = []

    def step_back(self, back: int) -> None:
        """The server's clock is set back."""
        self.bench.now -= back

    # ------------------------------------------------------------------------ the promises

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        self.sound = False
        return self.runner.run(call)

    @invariant()
    def promises(self) -> None:
        """They hold after every step."""
        type(self).steps += 1
        asked = self.ledger.tokens
        args = [part for token in asked for part in (token.timer_id, token.nonce)]
        valid = cast("list[int]", self.bench.raw.eval(self.prelude + PROBE, 3, *self.bench.keys[:3], *args))
        self.ledger.check(
            self.bench.state(), [token for token, held in zip(asked, valid, strict=True) if held]
        )
        self.sound = True

    def teardown(self) -> None:
        """However it went: in the end every timer that is left is delivered or expired, the dead can be
        brought back, and all can be acknowledged."""
        if not self.sound:
            return
        self.resume()
        self.bench.now = NOW + 10_000 * HOUR
        self._finish()
        for _ in range(len(self.ledger.graves)):
            self.redrive([0])
            self.bench.now += 1
            self._finish()
        left = self.bench.state()
        assert left._replace(leases={}, payloads={}) == EMPTY, "nothing lost"
        assert not self.ledger.timers, "nothing lost"
        assert set(left.leases) <= self.ledger.strays
        assert set(left.payloads) == self.ledger.litter
        self.sweep()
        self.repair()
        assert self.bench.state() == EMPTY, "what lies around is repaired"

    def _finish(self) -> None:
        self.claim(relay=0, limit=500, wait=0, limits=Limits(keep=True))
        held = list(self.ledger.holders.values())
        assert len(held) == len(self.ledger.timers), "nothing lost"
        if held:
            self._settle(held, Verb.ACK, 0, (False, False), Limits())
