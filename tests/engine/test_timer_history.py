"""How a timer stands, and what its journal tells, are read in turn, and don't contradict each other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from relay.core.history.events import HistoryPage, TimerEvent
from relay.core.journal import JournalRecord, RecordKind
from relay.core.partitions import Layout
from relay.core.policy import Policies, TopicPolicy
from relay.core.timers import DeadPage, StoredTimer, TimerState, TopicStats
from relay.engine.timer_history import TimerHistories, TimerStanding
from relay.store.partitions.entry_ids import EntryId

pytestmark = pytest.mark.anyio

NOW = 1_000_000


def timer(state: TimerState = TimerState.LEASED, next_claim: int = NOW + 1) -> StoredTimer:
    return StoredTimer("a", state, 0, next_claim, 0)


class Life:
    """A timer that goes on with each read of it: `stands` and `told` have what the reads find in turn."""

    def __init__(self, stands: list[StoredTimer | None], told: list[list[RecordKind]]) -> None:
        self.stands, self.told = stands, told

    async def get(self, partition: str, timer_id: str, *, with_content: bool) -> StoredTimer | None:
        assert not with_content
        return self.stands.pop(0)

    async def read(self, topic: str, timer_id: str, *, limit: int, cursor: str) -> HistoryPage:
        kinds = self.told.pop(0)
        return HistoryPage([TimerEvent(0, "1-0", 0, JournalRecord(kind, timer_id)) for kind in kinds])

    async def stats(self, topic: str) -> TopicStats:
        return TopicStats(topic, NOW, 1, 0, None, 0, None, None)

    async def dead_page(self, topic: str, *, limit: int, cursor: str) -> DeadPage:
        return DeadPage([], "")

    async def begin(self, topic: str, ask: Any) -> Any:
        return await ask(Layout(topic))

    def history(self) -> TimerHistories:
        mine = cast("Any", self)
        return TimerHistories(mine, mine, mine, mine, Policies(TopicPolicy(journal=True)))


async def test_a_timer_that_ends_between_the_reads() -> None:
    """The journal was read before its end, and the timeline behind it: what is told is the end, and no timer
    that lives and is nowhere."""
    claimed, acked = [RecordKind.CLAIMED], [RecordKind.ACKED, RecordKind.CLAIMED]
    life = Life([None, None], [claimed, acked])
    now, page = await life.history().begin("t", "a", 100)
    assert (now.standing, page.events[0].kind) == (TimerStanding.ABSENT, RecordKind.ACKED)
    assert (life.stands, life.told) == ([], [])


async def test_a_timer_that_comes_between_the_reads() -> None:
    """The other way round: it was done, and is scheduled again."""
    acked, again = [RecordKind.ACKED], [RecordKind.SCHEDULED, RecordKind.ACKED]
    waiting = timer(TimerState.PENDING)
    life = Life([waiting, waiting], [acked, again])
    now, page = await life.history().begin("t", "a", 100)
    assert (now.standing, page.events[0].kind) == (TimerStanding.WAITING, RecordKind.SCHEDULED)


async def test_what_agrees_is_read_once() -> None:
    """And where foreign writers have made a timer that no journal knows, that is told."""
    life = Life([timer()], [[RecordKind.CLAIMED]])
    now, _ = await life.history().begin("t", "a", 100)
    assert (now.standing, life.told) == (TimerStanding.LEASED, [])
    life = Life([timer(TimerState.PENDING, NOW)], [[]])
    now, page = await life.history().begin("t", "a", 100)
    assert (now.standing, page.lives) == (TimerStanding.DUE, None)


async def test_a_lease_that_has_run_out() -> None:
    """Any relay may claim it."""
    life = Life([timer(next_claim=NOW)], [[RecordKind.CLAIMED]])
    now, _ = await life.history().begin("t", "a", 100)
    assert now.standing is TimerStanding.DUE


async def test_a_letter_that_went_before_its_partition_did() -> None:
    """It was trimmed, which no record says of each, and then the topic came to have fewer partitions."""

    class Fewer(Life):
        async def read(self, topic: str, timer_id: str, *, limit: int, cursor: str) -> HistoryPage:
            died = JournalRecord(RecordKind.DEAD, timer_id, dead_id="5-0#3")
            return HistoryPage([TimerEvent(0, "1-0", 3, died)])

        async def dead_page(self, topic: str, *, limit: int, cursor: str) -> DeadPage:
            EntryId.parse("page_token", cursor, 2)
            return DeadPage([], "")

    now, _ = await Fewer([None], []).history().begin("t", "a", 100)
    assert (now.standing, now.letters) == (TimerStanding.ABSENT, [])
