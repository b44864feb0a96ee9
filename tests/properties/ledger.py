"""What must hold, as a ledger: who asked for what, who holds which token, who died, and what follows from it.

It is a model of the promises and not of the scripts: it knows no scores, records or fences. A timer that
was accepted ends committed, cancelled, replaced, or dead of a reason that can be checked here: nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from relay.core.instants import from_score, to_score
from relay.core.outcomes import Ending, Limits, Reason, Settled, Verb, Verdict
from relay.core.timers import ClaimedTimer, StoredTimer, TimerState
from relay.store.codec import envelope
from tests.properties.intents import Grave, Intent, Token
from tests.worlds.scripts.states import State, limited


@dataclass(slots=True)
class Ledger:
    """`timers` are alive, `graves` keep the dead; `holders` hold timers, `tokens` are all that were given.

    `recorded` are ids of which a relay may have a record, `strays` those whose record, and `litter` those
    whose payload, may have been left behind by a writer that knows no records. `runs` have, by id, the last
    due time and the limit of runs of debounced timers of which a relay knows. `paused` until then.
    """

    timers: dict[str, Intent] = field(default_factory=dict)
    graves: list[Grave] = field(default_factory=list)
    holders: dict[str, Token] = field(default_factory=dict)
    tokens: list[Token] = field(default_factory=list)
    occurrences: dict[tuple[str, str], Intent] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)
    litter: set[str] = field(default_factory=set)
    runs: dict[str, tuple[int, int]] = field(default_factory=dict)
    paused: int = 0
    serial: count[int] = field(default_factory=count)

    # ------------------------------------------------------------------------- what happens

    def intend(self, due: int, expires: int | None = None) -> Intent:
        """A new intent with a payload that no other has."""
        return Intent(due, str(next(self.serial)).encode(), not_before=due, expires=expires)

    def scheduled(self, timer_id: str, intent: Intent) -> None:
        """Through a relay, which forgets whatever lived under the id."""
        self.published(timer_id, intent)
        intent.seen = True
        self.runs.pop(timer_id, None)
        if intent.expires is None:
            self.recorded.discard(timer_id)
        else:
            self.recorded.add(timer_id)

    def limit(self, timer_id: str) -> int | None:
        """The instant beyond which a debounced timer does not move this one. A publisher who asks for the
        very due time of a run's timer can't be told from that."""
        intent = self.timers.get(timer_id)
        due, limit = self.runs.get(timer_id, (None, None))
        return limit if intent is not None and not intent.foreign and intent.due == due else None

    def published(self, timer_id: str, intent: Intent) -> None:
        """It replaces whatever lived under the id, and voids the lease on it."""
        self.timers[timer_id] = intent
        self.holders.pop(timer_id, None)
        self.litter.discard(timer_id)

    def removed(self, timer_id: str) -> None:
        """Through a relay."""
        self.timers.pop(timer_id, None)
        self.holders.pop(timer_id, None)
        self.recorded.discard(timer_id)
        self.runs.pop(timer_id, None)
        self.litter.discard(timer_id)

    def removed_by_a_worker(self, timer_id: str) -> None:
        """Whatever it is by now; a record stays behind."""
        self.timers.pop(timer_id, None)
        self.holders.pop(timer_id, None)
        self.litter.discard(timer_id)
        self.strays.add(timer_id)

    def taken_by_a_worker(self, timer_id: str) -> None:
        """It overwrites our lease or back-off, and counts for itself.

        If a publisher wrote the timer just before, no relay has seen that: the worker's score looks
        like a lease on the intent before. Two keys can't tell more, so nothing is asked of it then
        but that it is not lost.
        """
        intent = self.timers[timer_id]
        intent.foreign, intent.not_before = True, intent.due
        if (holder := self.holders.pop(timer_id, None)) is not None:
            intent.attempts += holder.received
        if not intent.seen and timer_id in self.recorded:
            intent.hidden, intent.due, intent.not_before = True, 0, 0

    def ran(self, timer_id: str, now: int) -> None:
        """Somebody made it due now, through a relay."""
        intent = self.timers[timer_id]
        intent.due = min(intent.due, now)
        intent.not_before = now
        self._known(timer_id, intent)

    def _known(self, timer_id: str, intent: Intent) -> None:
        """A relay has a record of it from now on."""
        intent.seen = True
        self.runs.pop(timer_id, None)
        self.recorded.add(timer_id)

    def delivered(self, timer: ClaimedTimer, now: int, nonce: bytes, deadline: int, limits: Limits) -> None:
        """A relay was given this timer: may it be, and is it what was asked for?"""
        intent = self._due(timer.timer_id, now)
        assert timer.payload == intent.payload, "the newest intent wins"
        if intent.foreign:
            assert timer.due >= intent.due
            assert intent.hidden or timer.attempt <= intent.attempts + 1, "honest attempts"
        else:
            assert (timer.due, timer.approximate) == (intent.due, False), "the due time survives"
            assert timer.attempt == intent.attempts + 1, "honest attempts"
            assert intent.occurrence in ("", timer.occurrence_id), "one occurrence on all redeliveries"
            assert not intent.expired(now), "never after its expiry"
            assert intent.fate(now, limits) is None, "a policy's limits hold"
        intent.occurrence = timer.occurrence_id
        intent.claims += 1
        self._known(timer.timer_id, intent)
        owner = self.occurrences.setdefault((timer.timer_id, timer.occurrence_id), intent)
        assert owner is intent or intent.hidden, "another occurrence for each reschedule"
        token = Token(timer.timer_id, nonce, deadline)
        self.holders[timer.timer_id] = token
        self.tokens.append(token)

    def died(self, timer_id: str, reason: Reason, now: int, limits: Limits) -> None:
        """A claim found it dead instead of delivering it: is that true?"""
        intent = self._due(timer_id, now)
        expected = Reason.EXPIRED if intent.expired(now) else intent.fate(now, limits)
        self._dies(timer_id, reason, expected, now, now, limits)

    def _due(self, timer_id: str, now: int) -> Intent:
        """What a claim has come upon; a lease that ran out is counted."""
        intent = self.timers[timer_id]
        assert now >= intent.due, "never early"
        assert now >= intent.not_before, "a back-off is served out"
        if (holder := self.holders.pop(timer_id, None)) is not None:
            assert now > holder.deadline, "one live lease"
            intent.attempts += holder.received
        return intent

    def _dies(
        self,
        timer_id: str,
        reason: Reason,
        expected: Reason | None,
        at: int,
        now: int,
        limits: Limits,
        error: str = "",
    ) -> None:
        intent = self.timers[timer_id]
        if intent.foreign:
            assert intent.hidden or intent.may_die_of(reason, at, limits), "no death without its reason"
        else:
            assert reason is expected, "no death without its reason"
        self.buried(timer_id, reason, now, limits, error)

    def buried(self, timer_id: str, reason: Reason, now: int, limits: Limits, error: str) -> None:
        """It is dead, and kept if the policy says so."""
        if limits.keep and (reason is not Reason.EXPIRED or limits.keep_expired):
            self.graves.append(Grave(timer_id, self.timers[timer_id], reason, now, error))
        self.removed(timer_id)

    def redriven(self, grave: Grave, now: int) -> None:
        """It lives again, with the occurrence that it had and a new count of everything else."""
        self.graves.remove(grave)
        intent = Intent(now, grave.intent.payload, not_before=now)
        if grave.intent.foreign:  # which occurrence a relay has seen last can't be known
            intent.hidden = intent.foreign = True
        elif grave.intent.occurrence:
            intent.occurrence = grave.intent.occurrence
            self.occurrences[grave.timer_id, intent.occurrence] = intent
        self.published(grave.timer_id, intent)
        self._known(grave.timer_id, intent)

    # ------------------------------------------------------------------------------ tokens

    def answered(self, token: Token, answer: Settled) -> bool:
        """Whether the token held. A verdict has to say so."""
        if self.holders.get(token.timer_id) is token:
            assert answer not in (Verdict.STALE, Verdict.GONE), "a token holds until something ends it"
            return True
        expected = Verdict.STALE if token.timer_id in self.timers else Verdict.GONE
        assert answer is expected, "a stale token changes nothing"
        return False

    def settled(
        self, token: Token, said: Ending, answer: Settled, now: int, limits: Limits, again: Intent
    ) -> None:
        """A valid token was settled, and answered so; `again` is what RESCHEDULE asked for."""
        timer_id, intent = token.timer_id, self.timers[token.timer_id]
        if said.verb is Verb.ACK:
            assert answer is Verdict.OK
            return self.removed(timer_id)
        if said.verb is Verb.RESCHEDULE:
            assert answer is Verdict.OK
            return self.scheduled(timer_id, again)
        del self.holders[timer_id]
        counts = said.verb is not Verb.RELEASE or token.received or said.received
        intent.attempts += counts
        if said.verb is Verb.REJECT:
            assert answer is said.reason
            return self.buried(timer_id, said.reason, now, limits, said.error)
        if said.verb is Verb.NACK:
            intent.not_before = token.deadline if said.retry_after is None else now + said.retry_after
        else:
            intent.claims = max(intent.claims - said.unsent, 0)
            intent.not_before = now + (said.retry_after or 0 if counts or said.unsent else 0)
        intent.not_before = at = max(intent.not_before, intent.due)
        expected = intent.fate(at, limits) if counts else None
        if answer is Verdict.OK:
            assert intent.foreign or expected is None, "a policy's limits hold"
            return None
        assert isinstance(answer, Reason)
        error = said.error if said.verb is Verb.NACK else "the delivery ended without an outcome"
        return self._dies(timer_id, answer, expected, at, now, limits, error)

    # --------------------------------------------------------------------- what must follow

    def check(self, state: State, valid: list[Token]) -> None:
        """`state` is what the server holds, `valid` the tokens that it would accept now."""
        assert set(state.timeline) == set(self.timers), "nothing lost, nothing left"
        assert set(state.payloads) == set(self.timers) | self.litter, "no orphans"
        assert set(state.leases) - set(self.timers) <= self.strays, "no orphans"
        texts = {each: limited(to_score(due), to_score(limit)) for each, (due, limit) in self.runs.items()}
        assert state.limits.items() <= texts.items(), "a limit goes with its run"
        assert all(timer_id in state.limits for timer_id in self.timers if self.limit(timer_id)), "it holds"
        for timer_id, intent in self.timers.items():
            assert envelope.decode(state.payloads[timer_id]).payload == intent.payload, "newest intent wins"
            assert state.timeline[timer_id] >= to_score(intent.due), "never early, for foreign workers too"
            if not intent.foreign:
                holder = self.holders.get(timer_id)
                until = intent.not_before if holder is None else holder.deadline
                assert from_score(state.timeline[timer_id]) == until, (
                    "it waits for as long as it was asked to"
                )
        assert len({token.timer_id for token in valid}) == len(valid), "one valid token for a timer"
        assert set(valid) == set(self.holders.values()), "a token holds until something ends it"
        self._check_graves(state)

    def check_listing(self, listed: list[StoredTimer]) -> None:
        """A relay shows every timer as it is, as far as relays can know."""
        assert {timer.timer_id for timer in listed} == set(self.timers), "all are shown"
        for timer in listed:
            intent = self.timers[timer.timer_id]
            assert (timer.state is TimerState.LEASED) is (timer.timer_id in self.holders)
            if not intent.foreign:
                assert timer.due == intent.due, "the due time survives"
                assert timer.attempts == intent.attempts, "honest attempts"

    def _check_graves(self, state: State) -> None:
        assert len(state.dead) == len(self.graves), "every death is kept once"
        for letter, grave in zip(state.dead, self.graves, strict=True):
            intent = grave.intent
            assert (letter.timer_id, letter.reason) == (grave.timer_id, grave.reason.value)
            assert (letter.died, letter.error) == (grave.died, grave.error.encode())
            assert envelope.decode(letter.envelope).payload == intent.payload, "nothing of the dead is lost"
            if not intent.foreign:
                kept = (letter.attempts, letter.claims, letter.due)
                assert kept == (intent.attempts, intent.claims, to_score(intent.due)), "honest attempts"
                occurrence = letter.occurrence.hex() if intent.occurrence else ""
                assert intent.occurrence in ("", f"{letter.timer_id}/{occurrence}"), "one occurrence"
