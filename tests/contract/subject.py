"""A store under test with a clock in the test's hand, whichever store it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from relay.core.instants import SECOND
from relay.core.journal import JournalBatch, JournalRecord
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Extension, Limits, Settled, Settlement, Verb, Verdict
from relay.core.ports import TimerStore
from relay.core.timers import Claim, NewTimer, StoredTimer, TimerState

NOW = 1_767_225_600_000_000  # 2026-01-01, microseconds
LEASE = 30 * SECOND
N1, N2, N3 = b"1" * 16, b"2" * 16, b"3" * 16


class Ledger(Protocol):
    """The topic's journal: `keep` is how many records it keeps, 0: none; `trimmed` how many were dropped."""

    keep: int
    trimmed: int

    async def batches(self) -> list[JournalBatch]:
        """All that it holds."""
        ...


@dataclass(slots=True)
class Subject:
    """A store, a topic of its own, and the store's clock."""

    store: TimerStore
    topic: str
    set_clock: Callable[[int], None]
    ledger: Ledger
    seen: int = 0

    def at(self, instant: int) -> None:
        """Move the store's clock, forward or back."""
        self.set_clock(instant)

    async def put(self, timer_id: str, due: int = NOW, payload: bytes = b"x") -> None:
        await self.store.schedule(self.topic, [NewTimer(timer_id, payload, due)])

    async def get(self, timer_id: str) -> StoredTimer:
        timer = await self.store.get(self.topic, timer_id)
        assert timer is not None, f"{timer_id} is not there"
        return timer

    async def claim(
        self,
        nonce: bytes = N1,
        *,
        limit: int = 100,
        lease: int = LEASE,
        max_bytes: int = 1 << 20,
        limits: Limits = NO_LIMITS,
    ) -> Claim:
        return await self.store.claim(
            self.topic,
            ClaimRequest(limit=limit, lease=lease, nonce=nonce, max_bytes=max_bytes, limits=limits),
        )

    async def claimed(self, nonce: bytes = N1, **options: Any) -> list[str]:
        return [timer.timer_id for timer in (await self.claim(nonce, **options)).timers]

    async def settle(
        self, timer_id: str, nonce: bytes, verb: Verb, *, limits: Limits = NO_LIMITS, **options: Any
    ) -> Settled:
        settlement = Settlement(timer_id, nonce, verb, **options)
        (settled,) = await self.store.settle(self.topic, [settlement], limits=limits)
        return settled

    async def extend(
        self, timer_id: str, nonce: bytes, *, received: bool = False, lease: int = LEASE
    ) -> Verdict:
        extension = Extension(timer_id, nonce, received)
        (verdict,) = await self.store.extend(self.topic, [extension], lease=lease)
        return verdict

    def keep(self, records: int) -> None:
        """Let the topic have a journal."""
        self.ledger.keep = records

    def trimmed(self) -> int:
        return self.ledger.trimmed

    async def journal(self) -> list[JournalBatch]:
        return await self.ledger.batches()

    async def journal_since(self) -> list[JournalRecord]:
        """The records since the last look."""
        batches = [batch for batch in await self.journal() if batch.first > self.seen]
        self.seen = max((batch.last for batch in batches), default=self.seen)
        return [record for batch in batches for record in batch.records]

    async def everything(self) -> list[StoredTimer]:
        """All that can be seen of the topic, with content."""
        page = await self.store.list(self.topic, state=None, limit=500, cursor="")
        return [await self.get(timer.timer_id) for timer in page.timers]

    async def pages(
        self, limit: int, state: TimerState | None = None, *, between: Sequence[Callable[[], Any]] = ()
    ) -> list[list[str]]:
        """The ids on each page; `between` are steps taken after the first, second … page."""
        steps = iter(between)
        found: list[list[str]] = []
        cursor = ""
        while True:
            page = await self.store.list(self.topic, state=state, limit=limit, cursor=cursor)
            found.append([timer.timer_id for timer in page.timers])
            if not page.cursor:
                return found
            assert page.cursor != cursor, "the same page for ever"
            cursor = page.cursor
            if (step := next(steps, None)) is not None:
                await step()
