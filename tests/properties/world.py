"""Two relays and the peer's publisher and worker do anything in any order, on one topic."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relay.core.instants import SECOND, from_score
from relay.core.nonce import nonces
from relay.core.outcomes import Extension, Settlement, Verb, Verdict
from relay.core.timers import Change, NewTimer, Scheduled
from relay.store import envelope
from tests.lua.bench import EMPTY, LEASE, NOW, Bench, score
from tests.properties.ledger import Ledger, Token

HOUR = 3600 * SECOND
OFFSETS = st.sampled_from([0, 1, -10 * SECOND, SECOND, LEASE - 1, LEASE, LEASE + 1, HOUR])
WAITS = st.sampled_from([1, SECOND, LEASE + 1, 2 * HOUR, 0])
BACK = st.sampled_from([0, 0, HOUR, 1, SECOND, LEASE])
VERBS = st.sampled_from([Verb.RELEASE, Verb.NACK, Verb.ACK, Verb.RELEASE, Verb.NACK, Verb.REJECT])
QUARTERS = st.sampled_from([1, 3, 0])  # of a microsecond: what a clock with nanoseconds adds
RETRIES = st.sampled_from([0, None, SECOND, HOUR])
IDS = st.sampled_from(["a", "é"])
PICKS = st.lists(st.integers(0, 1000), min_size=1, max_size=3)
BOOLEANS = st.booleans()


def action(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


# One rule draws them all, by weight: rules of their own would be switched off at random, and few
# runs would come to a second delivery.
WEIGHTS = {
    action("schedule", timer_id=IDS, offset=OFFSETS, delayed=BOOLEANS): 3,
    action("cancel", timer_id=IDS): 1,
    action("publish", timer_id=IDS, offset=OFFSETS, at_deadline=BOOLEANS): 2,
    action("work", timer_id=IDS, skew=st.sampled_from([0, -HOUR, HOUR]), quarters=QUARTERS): 3,
    action("commit", timer_id=IDS): 1,
    action("claim", relay=st.integers(0, 1), limit=st.sampled_from([10, 1]), wait=WAITS): 8,
    action("settle", picks=PICKS, verb=VERBS, retry_after=RETRIES, told=BOOLEANS, back=BACK): 8,
    action("renew", picks=PICKS, received=BOOLEANS): 4,
    action("late", picks=PICKS, verb=st.sampled_from([*Verb, None]), received=BOOLEANS): 4,
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
        self.bench.raw.delete(self.bench.timeline, self.bench.payloads, self.bench.leases)
        self.bench.now = NOW
        self.ledger = Ledger()
        self.sound = False

    @rule(action=ACTIONS)
    def act(self, action: tuple[str, dict[str, Any]]) -> None:
        """Somebody does something."""
        name, arguments = action
        getattr(self, name)(**arguments)

    # ------------------------------------------------------------------- anybody's intents

    def schedule(self, timer_id: str, offset: int, delayed: bool) -> None:
        """Through a relay, for an instant or after a delay."""
        offset = max(offset, 0) if delayed else offset
        intent = self.ledger.intend(self.bench.now + offset)
        due, delay = (None, offset) if delayed else (intent.due, None)
        timer = NewTimer(timer_id, intent.payload, due, delay)
        (result,) = self._do(self.bench.store.schedule(self.bench.topic, [timer]))
        change = Change.REPLACED if timer_id in self.ledger.timers else Change.CREATED
        assert result == Scheduled(intent.due, change)
        self.ledger.scheduled(timer_id, intent)

    def cancel(self, timer_id: str) -> None:
        """Through a relay."""
        (change,) = self._do(self.bench.store.cancel(self.bench.topic, [timer_id]))
        assert (change is Change.CANCELLED) is (timer_id in self.ledger.timers)
        self.ledger.removed(timer_id)

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

    # -------------------------------------------------------------------------- the relays

    def claim(self, relay: int, limit: int, wait: int) -> None:
        """What it takes is settled later, or never, as if the reply had got lost."""
        self.bench.now += wait
        nonce = self.relays[relay]()
        claim = self._do(self.bench.claim(nonce, limit=limit))
        assert claim.now == self.bench.now
        assert len(claim.timers) <= limit
        for timer in claim.timers:
            self.ledger.delivered(timer, claim.now, nonce, claim.deadline)
        first = min(self.bench.state().timeline.values(), default=None)
        assert claim.next == (None if first is None else from_score(first))

    def settle(self, picks: list[int], verb: Verb, retry_after: int | None, told: bool, back: int) -> None:
        """With tokens that hold; perhaps just after the clock was set back."""
        self.bench.now -= back
        if tokens := self._choose(picks, list(self.ledger.holders.values())):
            self._settle(tokens, verb, retry_after, told)

    def renew(self, picks: list[int], received: bool) -> None:
        """Renewals and receipts, with tokens that hold."""
        if tokens := self._choose(picks, list(self.ledger.holders.values())):
            self._extend(tokens, received)

    def late(self, picks: list[int], verb: Verb | None, received: bool) -> None:
        """With any token that there ever was: late, twice, after a takeover."""
        if not (tokens := self._choose(picks, self.ledger.tokens)):
            return
        before = self.bench.state()
        verdicts = self._settle(tokens, verb, 0, received) if verb else self._extend(tokens, received)
        for token, verdict in zip(tokens, verdicts, strict=True):
            if verdict is Verdict.STALE:
                after = self.bench.state().of(token.timer_id)
                assert before.of(token.timer_id) == after, "a stale token changes nothing"

    def _settle(self, tokens: list[Token], verb: Verb, retry_after: int | None, told: bool) -> list[Verdict]:
        retry_after = retry_after if verb is Verb.NACK else None
        told = told and verb is Verb.RELEASE
        settlements = [Settlement(token.timer_id, token.nonce, verb, retry_after, told) for token in tokens]
        verdicts = self._do(self.bench.store.settle(self.bench.topic, settlements))
        for token, verdict in zip(tokens, verdicts, strict=True):
            if self.ledger.answered(token, verdict):
                self.ledger.settled(token, verb, self.bench.now, retry_after, told)
        return verdicts

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
        keys = (self.bench.timeline, self.bench.payloads, self.bench.leases)
        valid = cast("list[int]", self.bench.raw.eval(self.prelude + PROBE, 3, *keys, *args))
        self.ledger.check(
            self.bench.state(), [token for token, held in zip(asked, valid, strict=True) if held]
        )
        self.sound = True

    def teardown(self) -> None:
        """However it went: in the end every timer that is left is delivered, and can be acknowledged."""
        if not self.sound:
            return
        self.bench.now = NOW + 100_000 * HOUR
        self.claim(relay=0, limit=500, wait=0)
        held = list(self.ledger.holders.values())
        settlements = [Settlement(token.timer_id, token.nonce, Verb.ACK) for token in held]
        if held:
            verdicts = self._do(self.bench.store.settle(self.bench.topic, settlements))
            assert verdicts == [Verdict.OK] * len(held)
        left = self.bench.state()
        assert left._replace(leases={}) == EMPTY, "nothing lost"
        assert len(held) == len(self.ledger.timers), "nothing lost"
        assert set(left.leases) <= self.ledger.strays
