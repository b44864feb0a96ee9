"""What must hold, as a ledger: who asked for what, who holds which token, and what follows from it.

It is a model of the promises and not of the scripts: it knows no scores, records or fences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from relay.core.instants import to_score
from relay.core.outcomes import Verb, Verdict
from relay.core.timers import ClaimedTimer
from relay.store import envelope
from tests.lua.bench import State


@dataclass(slots=True, eq=False)
class Intent:
    """A timer as somebody last asked for it."""

    due: int
    payload: bytes
    not_before: int
    attempts: int = 0
    occurrence: str = ""
    seen: bool = False  # a relay stored or delivered it
    foreign: bool = False  # a worker that keeps no records has taken part
    hidden: bool = False  # relays can't tell it from the intent before


@dataclass(slots=True, eq=False)
class Token:
    """What one claim handed out for one timer."""

    timer_id: str
    nonce: bytes
    deadline: int
    received: bool = False


@dataclass(slots=True)
class Ledger:
    """`timers` are alive, `holders` hold them; `tokens` are all that were ever given.

    `recorded` are ids of which a relay may have a record, `strays` those whose record may have been
    left behind by a writer that knows no records.
    """

    timers: dict[str, Intent] = field(default_factory=dict)
    holders: dict[str, Token] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    occurrences: dict[tuple[str, str], Intent] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)
    serial: count[int] = field(default_factory=count)

    # ------------------------------------------------------------------------- what happens

    def intend(self, due: int) -> Intent:
        """A new intent with a payload that no other has."""
        return Intent(due, str(next(self.serial)).encode(), not_before=due)

    def scheduled(self, timer_id: str, intent: Intent) -> None:
        """Through a relay, which forgets whatever lived under the id."""
        self.published(timer_id, intent)
        self.recorded.discard(timer_id)
        intent.seen = True

    def published(self, timer_id: str, intent: Intent) -> None:
        """It replaces whatever lived under the id, and voids the lease on it."""
        self.timers[timer_id] = intent
        self.holders.pop(timer_id, None)

    def removed(self, timer_id: str) -> None:
        """Through a relay."""
        self.timers.pop(timer_id, None)
        self.holders.pop(timer_id, None)
        self.recorded.discard(timer_id)

    def removed_by_a_worker(self, timer_id: str) -> None:
        """Whatever it is by now; a record stays behind."""
        self.timers.pop(timer_id, None)
        self.holders.pop(timer_id, None)
        self.strays.add(timer_id)

    def taken_by_a_worker(self, timer_id: str) -> None:
        """It overwrites our lease or back-off, and counts for itself.

        If a publisher wrote the timer just before, no relay has seen that: the worker's score looks
        like a lease on the intent before. Two keys can't tell more, so nothing is asked of it then
        but that it is not lost.
        """
        intent = self.timers[timer_id]
        intent.foreign, intent.not_before = True, intent.due
        self.holders.pop(timer_id, None)
        if not intent.seen and timer_id in self.recorded:
            intent.hidden, intent.due, intent.not_before = True, 0, 0

    def delivered(self, timer: ClaimedTimer, now: int, nonce: bytes, deadline: int) -> None:
        """A relay was given this timer: may it be, and is it what was asked for?"""
        intent = self.timers[timer.timer_id]
        assert now >= intent.due, "never early"
        assert now >= intent.not_before, "a back-off is served out"
        assert timer.payload == intent.payload, "the newest intent wins"
        holder = self.holders.get(timer.timer_id)
        if holder is not None:
            assert now > holder.deadline, "one live lease"
            intent.attempts += holder.received
        if intent.foreign:
            assert timer.due >= intent.due
        else:
            assert (timer.due, timer.approximate) == (intent.due, False), "the due time survives"
            assert timer.attempt == intent.attempts + 1, "honest attempts"
            assert intent.occurrence in ("", timer.occurrence_id), "one occurrence on all redeliveries"
        intent.occurrence, intent.seen = timer.occurrence_id, True
        owner = self.occurrences.setdefault((timer.timer_id, timer.occurrence_id), intent)
        assert owner is intent or intent.hidden, "another occurrence for each reschedule"
        token = Token(timer.timer_id, nonce, deadline)
        self.holders[timer.timer_id] = token
        self.recorded.add(timer.timer_id)
        self.tokens.append(token)

    def answered(self, token: Token, verdict: Verdict) -> bool:
        """Whether the token held. The verdict has to say so."""
        if self.holders.get(token.timer_id) is token:
            assert verdict is Verdict.OK, "a token holds until something ends it"
            return True
        expected = Verdict.STALE if token.timer_id in self.timers else Verdict.GONE
        assert verdict is expected, "a stale token changes nothing"
        return False

    def settled(self, token: Token, verb: Verb, now: int, retry_after: int | None, told: bool) -> None:
        """A valid token was settled."""
        if verb in (Verb.ACK, Verb.REJECT):
            return self.removed(token.timer_id)
        intent = self.timers[token.timer_id]
        del self.holders[token.timer_id]
        if verb is Verb.NACK:
            intent.attempts += 1
            intent.not_before = token.deadline if retry_after is None else now + retry_after
        else:
            intent.attempts += token.received or told
            intent.not_before = now
        intent.not_before = max(intent.not_before, intent.due)
        return None

    # --------------------------------------------------------------------- what must follow

    def check(self, state: State, valid: list[Token]) -> None:
        """`state` is what the server holds, `valid` the tokens that it would accept now."""
        assert set(state.timeline) == set(self.timers), "nothing lost, nothing left"
        assert set(state.payloads) == set(self.timers), "no orphans"
        assert set(state.leases) - set(self.timers) <= self.strays, "no orphans"
        for timer_id, intent in self.timers.items():
            assert envelope.decode(state.payloads[timer_id]).payload == intent.payload, "newest intent wins"
            assert state.timeline[timer_id] >= to_score(intent.due), "never early, for foreign workers too"
        assert len({token.timer_id for token in valid}) == len(valid), "one valid token for a timer"
        assert set(valid) == set(self.holders.values()), "a token holds until something ends it"
