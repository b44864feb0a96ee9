"""What a relay asks of one topic, whichever store it lies in."""

from __future__ import annotations

from typing import Any

from relay.core.instants import SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Limits, Settled, Verb, Verdict
from relay.core.ports import LeaseSource, TimerStore
from relay.core.timers import Claim, NewTimer
from tests.settlements import end_of

NOW = 1_767_225_600_000_000  # 2026-01-01, microseconds
LEASE = 30 * SECOND
N1, N2, N3 = b"1" * 16, b"2" * 16, b"3" * 16


class Leasing:
    """Claims, and what ends or renews them."""

    store: LeaseSource

    def __init__(self, store: LeaseSource, topic: str) -> None:
        self.store = store
        self.topic = topic

    async def claim(
        self,
        nonce: bytes = N1,
        *,
        limit: int = 100,
        lease: int = LEASE,
        max_bytes: int = 1 << 20,
        limits: Limits = NO_LIMITS,
        behind: int = 0,
    ) -> Claim:
        return await self.store.claim(
            self.topic, ClaimRequest(limit, lease, nonce, max_bytes, limits, behind)
        )

    async def claimed(self, nonce: bytes = N1, **options: Any) -> list[str]:
        """The ids that a claim takes."""
        return [timer.timer_id for timer in (await self.claim(nonce, **options)).timers]

    async def settle(
        self,
        timer_id: str,
        nonce: bytes,
        verb: Verb = Verb.ACK,
        *,
        limits: Limits = NO_LIMITS,
        **options: Any,
    ) -> Settled:
        """`options` are fields of `Settlement`."""
        settlement = end_of(timer_id, nonce, verb, **options)
        (settled,) = await self.store.settle(self.topic, [settlement], limits=limits)
        return settled

    async def extend(
        self, timer_id: str, nonce: bytes, *, received: bool = False, lease: int = LEASE
    ) -> Verdict:
        extension = Extension(timer_id, nonce, received)
        (verdict,) = await self.store.extend(self.topic, [extension], lease=lease)
        return verdict


class Scheduling(Leasing):
    """A topic into which timers can be put, too."""

    store: TimerStore

    def __init__(self, store: TimerStore, topic: str) -> None:
        super().__init__(store, topic)

    async def schedule(self, timer_id: str, due: int = NOW, payload: bytes = b"x", **options: Any) -> None:
        """Store one timer; `options` are fields of `NewTimer`."""
        await self.store.schedule(self.topic, [NewTimer(timer_id, payload, due, **options)])
