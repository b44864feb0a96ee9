"""Whoever wants timers: people and applications through a relay, the peer's publisher and its worker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from relay.core.timers import (
    KEEP_EXISTING,
    NO_CONDITION,
    REPLACE,
    Change,
    Condition,
    Debounce,
    NewTimer,
    OnConflict,
    Scheduled,
)
from relay.store.codec import envelope
from tests.properties.ledger import Ledger
from tests.properties.replay import Replay
from tests.worlds.scripts.asking import LEASE, NOW
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.states import score

T = TypeVar("T")


class Scene(RuleBasedStateMachine):
    """One topic, and those who ask for timers: through a relay, or as the peer does."""

    bench: ClassVar[Bench]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.bench.raw.delete(*self.bench.keys)
        self.bench.now = NOW
        self.ledger = Ledger()
        self.replay = Replay()
        self.suspects: list[str] = []  # what sweeps have found
        self.sound = False

    def _do(self, call: Coroutine[Any, Any, T]) -> T:
        self.sound = False
        return self.runner.run(call)

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
        assert result == Scheduled(due, change, timer_id in self.ledger.holders)
        self.ledger.scheduled(timer_id, intent)

    def change(self, timer_id: str, offset: int, create: bool, condition: str, max_waiting: int) -> None:
        """Through a relay, and perhaps not: twice in one call, so that the second meets the first."""
        told, asked = self._condition(timer_id, condition)
        intents = [self.ledger.intend(self.bench.now + offset), self.ledger.intend(self.bench.now)]
        timers = [
            NewTimer(
                timer_id,
                intent.payload,
                intent.due,
                intent=KEEP_EXISTING if create else REPLACE,
                condition=asked,
            )
            for intent in intents
        ]
        results = self._do(self.bench.store.schedule(self.bench.topic, timers, max_waiting=max_waiting))
        for intent, result in zip(intents, results, strict=True):
            there, held = timer_id in self.ledger.timers, timer_id in self.ledger.holders
            refusal = Change.UNCHANGED if there and create else self._refusal(timer_id, asked, told)
            if refusal is None and not there and 0 < max_waiting <= len(self.ledger.timers):
                refusal = Change.FULL
            if refusal is None:
                assert result == Scheduled(intent.due, Change.REPLACED if there else Change.CREATED, held)
                self.ledger.scheduled(timer_id, intent)
                told = intent.due
            else:
                assert result == Scheduled(told if there else None, refusal, held), (
                    "what was refused is not stored"
                )

    def meet(self, timer_id: str, offset: int, keep: OnConflict) -> None:
        """Through a relay: the timer that is due earlier, or later, is to stand."""
        told, _ = self._condition(timer_id, "")
        intent, held = self.ledger.intend(self.bench.now + offset), timer_id in self.ledger.holders
        timer = NewTimer(timer_id, intent.payload, intent.due, intent=keep)
        (result,) = self._do(self.bench.store.schedule(self.bench.topic, [timer]))
        if told is None:
            assert result == Scheduled(intent.due, Change.CREATED)
        elif told == intent.due and self.ledger.timers[timer_id].foreign:
            assert result.due == told, "a worker's due time is told a little too early"
        elif (intent.due < told) is (keep is OnConflict.KEEP_EARLIEST) and intent.due != told:
            assert result == Scheduled(intent.due, Change.REPLACED, held)
        else:
            assert result == Scheduled(told, Change.UNCHANGED, held), "what was refused is not stored"
        if result.stored:
            self.ledger.scheduled(timer_id, intent)

    def debounce(self, timer_id: str, pause: int, at_most: int | None, calls: int) -> None:
        """Through a relay: the timer moves, up to its run's limit, several times in one call."""
        most = None if at_most is None else pause + at_most
        limit, there = self.ledger.limit(timer_id), timer_id in self.ledger.timers
        held = timer_id in self.ledger.holders
        limit = self.bench.now + most if limit is None and most is not None else limit
        due = self.bench.now + pause if limit is None else min(self.bench.now + pause, limit)
        intents = [self.ledger.intend(due) for _ in range(calls)]
        timers = [
            NewTimer(timer_id, intent.payload, delay=pause, intent=Debounce(most)) for intent in intents
        ]
        results = self._do(self.bench.store.schedule(self.bench.topic, timers))
        first = Scheduled(due, Change.REPLACED if there else Change.CREATED, held)
        assert results == [first, *[Scheduled(due, Change.REPLACED)] * (calls - 1)], "never beyond the limit"
        self.ledger.scheduled(timer_id, intents[-1])
        if limit is not None:
            self.ledger.runs[timer_id] = due, limit

    def cancel(self, timer_id: str, condition: str) -> None:
        """Through a relay."""
        told, asked = self._condition(timer_id, condition)
        ((change, under_way),) = self._do(self.bench.store.cancel(self.bench.topic, [timer_id], asked))
        assert under_way is (timer_id in self.ledger.holders)
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
        ((change, under_way),) = self._do(self.bench.store.run(self.bench.topic, [timer_id]))
        assert under_way is (timer_id in self.ledger.holders)
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
        self.replay.foreign.add(timer_id)
        self.ledger.published(timer_id, intent)

    # ------------------------------------------------------------------- the peer's worker

    def work(self, timer_id: str, skew: int, quarters: int) -> None:
        """It leases what is due by its own clock, until its own clock and its lease say."""
        clock = score(self.bench.now + skew)
        found = self.bench.raw.zscore(self.bench.timeline, timer_id)
        if found is not None and found <= clock:
            until = score(self.bench.now + skew + LEASE) + quarters * 2**-22
            self.bench.raw.zadd(self.bench.timeline, {timer_id: until})
            self.replay.foreign.add(timer_id)
            self.ledger.taken_by_a_worker(timer_id)

    def commit(self, timer_id: str) -> None:
        """Its ACK is not fenced, and may come late: whatever lives under the id goes."""
        self.bench.raw.zrem(self.bench.timeline, timer_id)
        self.bench.raw.hdel(self.bench.payloads, timer_id)
        self.replay.foreign.add(timer_id)
        self.ledger.removed_by_a_worker(timer_id)

    def litter(self, timer_id: str) -> None:
        """A publisher that died between its two writes."""
        if timer_id not in self.ledger.timers:
            self.bench.put_payload(timer_id)
            self.ledger.litter.add(timer_id)
