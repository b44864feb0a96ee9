"""Random histories: two relays, people and an application do anything, through a store alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol

from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest, Extension, Limits, Verb, nonces
from relay.core.ports import TimerStore, TopicStore
from relay.core.timers import NewTimer
from tests.settlements import end_of
from tests.worlds.scripts.asking import LEASE

IDS = ("a", "b", "c")
LIMITS = Limits(max_attempts=3, max_claims=6, keep=True)


class Clocked(Protocol):
    """Something with the store's clock."""

    now: int


class Driver:
    """One topic of a store. `topics` is the same store's, if it has dead letters that can be brought back."""

    def __init__(self, store: TimerStore, topic: str, clock: Clocked, topics: TopicStore | None) -> None:
        self._store, self._topic, self._clock, self._topics = store, topic, clock, topics
        self._relays = (nonces(), nonces())
        self._tokens: list[tuple[str, bytes]] = []
        self._received: set[tuple[str, bytes]] = set()

    async def drive(self, chance: Random, steps: int) -> None:
        """So many of them. The clock steps back now and then, as clocks do."""
        for _ in range(steps):
            await chance.choice(self._verbs())(chance)
            self._clock.now += chance.choice((0, 0, SECOND, 7 * SECOND, 31 * SECOND, -SECOND))

    def _verbs(self) -> list[Callable[[Random], Awaitable[None]]]:
        verbs: list[Callable[[Random], Awaitable[None]]] = [
            self._schedule,
            self._claim,
            self._claim,
            self._settle,
            self._settle,
            self._extend,
        ]
        verbs += [self._cancel, self._run]
        return verbs if self._topics is None else [*verbs, self._redrive]

    async def finish(self) -> None:
        """All that lives is claimed when its leases are over, and acked."""
        for _ in range(2 * len(IDS) + 2):
            self._clock.now += 10_000 * SECOND
            taken = await self._take(0, 100, LEASE)
            acks = [end_of(timer_id, nonce, Verb.ACK) for timer_id, nonce in taken]
            if acks:
                await self._store.settle(self._topic, acks, limits=LIMITS)

    async def _schedule(self, chance: Random) -> None:
        expires_after = chance.choice((None, None, None, 20 * SECOND))
        delay = chance.choice((0, SECOND, 20 * SECOND))
        timer = NewTimer(chance.choice(IDS), b"x", delay=delay, expires_after=expires_after)
        await self._store.schedule(self._topic, [timer])

    async def _cancel(self, chance: Random) -> None:
        await self._store.cancel(self._topic, [chance.choice(IDS)])

    async def _run(self, chance: Random) -> None:
        await self._store.run(self._topic, [chance.choice(IDS)])

    async def _claim(self, chance: Random) -> None:
        await self._take(chance.randrange(2), chance.choice((1, 10)), chance.choice((LEASE, 5 * SECOND)))

    async def _take(self, relay: int, limit: int, lease: int) -> list[tuple[str, bytes]]:
        nonce = self._relays[relay]()
        claim = await self._store.claim(
            self._topic, ClaimRequest(limit=limit, lease=lease, nonce=nonce, max_bytes=1 << 20, limits=LIMITS)
        )
        taken = [(timer.timer_id, nonce) for timer in claim.timers]
        self._tokens += taken
        return taken

    def _token(self, chance: Random) -> tuple[str, bytes]:
        """A late one, or any; where there is none, one that was never given."""
        recent = self._tokens[-3:] if chance.randrange(3) else self._tokens
        return chance.choice(recent) if recent else (chance.choice(IDS), bytes(15) + b"1")

    async def _settle(self, chance: Random) -> None:
        timer_id, nonce = self._token(chance)
        verb = chance.choice(list(Verb))
        received = verb is Verb.RELEASE and chance.random() < 0.3
        settlement = end_of(
            timer_id,
            nonce,
            verb,
            retry_after=chance.choice((0, SECOND)) if verb is Verb.NACK or received else None,
            received=received,
            unsent=verb is Verb.RELEASE and not received and (timer_id, nonce) not in self._received,
            again=NewTimer(timer_id, b"x", delay=chance.choice((0, 9 * SECOND))),
        )
        await self._store.settle(self._topic, [settlement], limits=LIMITS)

    async def _extend(self, chance: Random) -> None:
        token = self._token(chance)
        extension = Extension(*token, chance.random() < 0.6)
        if extension.received:
            self._received.add(token)
        await self._store.extend(self._topic, [extension], lease=chance.choice((LEASE, 5 * SECOND)))

    async def _redrive(self, chance: Random) -> None:
        assert self._topics is not None
        page = await self._topics.dead_page(self._topic, limit=10, cursor="")
        if page.letters:
            await self._topics.redrive(self._topic, [chance.choice(page.letters).dead_id])
