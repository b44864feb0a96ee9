"""A store under test with a clock in the test's hand, whichever store it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from relay.core.journal import JournalBatch, JournalRecord
from relay.core.partitions import Layout
from relay.core.ports import TimerStore
from relay.core.timers import StoredTimer, TimerState
from tests.worlds.scripts.asking import NOW, Scheduling


class Ledger(Protocol):
    """The topic's journal: `keep` is how many records it keeps, 0: none; `trimmed` how many were dropped."""

    keep: int
    trimmed: int

    async def batches(self) -> list[JournalBatch]:
        """All that it holds."""
        ...


class Subject(Scheduling):
    """A store, a topic of its own, and the store's clock."""

    def __init__(
        self, store: TimerStore, topic: str, set_clock: Callable[[int], None], ledger: Ledger
    ) -> None:
        super().__init__(store, topic)
        self.set_clock, self.ledger, self.seen = set_clock, ledger, 0
        self._now = NOW

    @property
    def now(self) -> int:
        """The store's clock (microseconds), which moves forward or back."""
        return self._now

    @now.setter
    def now(self, instant: int) -> None:
        self._now = instant
        self.set_clock(instant)

    async def get(self, timer_id: str) -> StoredTimer:
        timer = await self.store.get(self.topic, timer_id)
        assert timer is not None, f"{timer_id} is not there"
        return timer

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
        page = await self.store.list(Layout(self.topic), state=None, limit=500, cursor="")
        return [await self.get(timer.timer_id) for timer in page.timers]

    async def pages(
        self, limit: int, state: TimerState | None = None, *, between: Sequence[Callable[[], Any]] = ()
    ) -> list[list[str]]:
        """The ids on each page; `between` are steps taken after the first, second … page."""
        steps = iter(between)
        found: list[list[str]] = []
        cursor = ""
        while True:
            page = await self.store.list(Layout(self.topic), state=state, limit=limit, cursor=cursor)
            found.append([timer.timer_id for timer in page.timers])
            if not page.cursor:
                return found
            assert page.cursor != cursor, "the same page for ever"
            cursor = page.cursor
            if (step := next(steps, None)) is not None:
                await step()
