"""Two relays, people and the peer's publisher and worker do anything in any order, on one topic."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

from hypothesis.stateful import invariant, rule

from relay.core.instants import from_score
from relay.core.outcomes import Extension, Limits, Reason, Settled, Verb, Verdict, nonces
from relay.core.partitions import Layout
from relay.core.timers import Change, NewTimer
from relay.store.journal.entries import JournalReader
from tests.properties.actions import ACTIONS, HOUR
from tests.properties.intents import Token
from tests.properties.scene import Scene
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import EMPTY, score

# Asks the fence itself which tokens are valid, and writes nothing.
PROBE = """
local valid = {}
for i = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  local raw = redis.call('HGET', KEYS[3], ARGV[i])
  valid[#valid + 1] = score and holds(tonumber(score), raw, ARGV[i + 1]) and 1 or 0
end
return valid
"""


class World(Scene):
    """One topic and everybody who writes to it. `subclass` gives it a server."""

    prelude: ClassVar[str]
    steps: ClassVar[int]
    relays = (nonces(), nonces())
    entry = ""  # of the journal, up to which it was read

    @classmethod
    def subclass(cls, bench: Bench, runner: asyncio.Runner) -> type[World]:
        """The machine on a topic of `bench`, and with its scripts' prelude in the probe."""
        prelude = bench.texts["timeline/get"].partition("-- timeline/get.lua")[0]
        return type("BoundWorld", (cls,), {"bench": bench, "runner": runner, "prelude": prelude, "steps": 0})

    @rule(action=ACTIONS)
    def act(self, action: tuple[str, dict[str, Any]]) -> None:
        """Somebody does something."""
        name, arguments = action
        getattr(self, name)(**arguments)

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
            end_of(
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
                if not flag:
                    intent.payload = self.ledger.timers[token.timer_id].payload
                self.ledger.settled(token, said.ending, answer, self.bench.now, limits, intent)
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
        """For a while, or until resume; for no time at all is refused, and changes nothing."""
        until = self._do(self.bench.topics.pause(self.bench.topic, duration=duration))
        assert duration is None or until == (self.bench.now + duration if duration else None)
        if until is not None:
            self.ledger.paused = until

    def resume(self) -> None:
        self._do(self.bench.topics.resume(self.bench.topic))
        self.ledger.paused = 0

    def look_for_orphans(self) -> None:
        """What the janitor finds, it repairs later, when it may be whole again."""
        payloads, done = self._do(self.bench.topics.orphans(self.bench.topic, limit=100))
        leases, all_seen = self._do(self.bench.topics.orphans(self.bench.topic, limit=100))
        assert (done, all_seen) == (False, True)
        assert set(payloads) == self.ledger.litter, "every orphan is found"
        assert set(leases) <= self.ledger.strays - set(self.ledger.timers), "no timer is called an orphan"
        self.suspects += payloads + leases

    def repair(self, rescued: bool) -> None:
        """Only what is an orphan still goes; perhaps something was made whole within the grace period."""
        if not self.suspects:
            self.look_for_orphans()
        if rescued and self.suspects:
            self.schedule(self.suspects[0], offset=0, delayed=False, expires_after=None)
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
        page = self._do(self.bench.store.list(Layout(self.bench.topic), state=None, limit=10, cursor=""))
        self.ledger.check_listing(page.timers)
        self.check_journal()
        self.sound = True

    def check_journal(self) -> None:
        """What it says of the timers is what Redis holds."""
        if self.bench.keep:
            reader = JournalReader(self.bench.redis)
            self.replay.add(self._do(reader.read(self.bench.topic, self.entry, count=1000)))
            for batch in self._do(reader.newest(self.bench.topic)):
                self.entry = batch.entry
            self.replay.check(self.bench.state())

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
        self.look_for_orphans()
        self.repair(rescued=False)
        assert self.bench.state() == EMPTY, "what lies around is repaired"
        self.check_journal()

    def _finish(self) -> None:
        self.claim(relay=0, limit=500, wait=0, limits=Limits(keep=True))
        held = list(self.ledger.holders.values())
        assert len(held) == len(self.ledger.timers), "nothing lost"
        if held:
            self._settle(held, Verb.ACK, 0, (False, False), Limits())
