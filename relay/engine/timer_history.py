"""One timer's life: how it stands, and what the topic's journal has of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from relay.core.errors import InvalidField, StoreRefused
from relay.core.history.events import HistoryPage, entry_before
from relay.core.policy import Policies
from relay.core.ports import MAX_PER_CALL, Histories, TimerStore, TopicStore
from relay.core.timers import DeadLetter, StoredTimer, TimerState, TopicStats
from relay.engine.partitioning import Partitioning

MOST_LETTERS = 10
"""The dead letters of one timer that are told, the newest ones."""

MOST_PAGES = 4
"""Pages of dead letters that are looked through for those of a timer of which no journal tells."""


BESIDE = 20
"""Dead letters that are read to find one of them: each partition may have one in the same millisecond."""


class TimerStanding(Enum):
    """How a timer stands. A DUE one waits for a relay to claim it; an ABSENT one is not in Redis."""

    WAITING = "waiting"
    DUE = "due"
    LEASED = "leased"
    DEAD = "dead"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class TimerNow:
    """How a timer stands by the clock of Redis, whose topic stands as `stats` say. `letters` are its dead
    letters, the newest first, without contents; `is_complete` is false if there may be more of them."""

    stats: TopicStats
    timer: StoredTimer | None
    letters: Sequence[DeadLetter]
    is_complete: bool = True

    @property
    def standing(self) -> TimerStanding:
        """The same in a word."""
        if self.timer is None:
            return TimerStanding.DEAD if self.letters else TimerStanding.ABSENT
        if self.timer.state is TimerState.LEASED and self.timer.next_claim > self.stats.now:
            return TimerStanding.LEASED
        return TimerStanding.DUE if self.timer.next_claim <= self.stats.now else TimerStanding.WAITING


class TimerHistories:  # see 0121
    """Asks for a timer in the timeline, the dead letters and the journal."""

    def __init__(
        self,
        timers: TimerStore,
        topics: TopicStore,
        histories: Histories | None,
        partitioning: Partitioning,
        policies: Policies,
    ) -> None:
        self._timers = timers
        self._topics = topics
        self._histories = histories
        self._partitioning = partitioning
        self._policies = policies

    def is_recorded(self, topic: str) -> bool:
        """Whether the topic has a journal."""
        return self._policies(topic).journal_keeps > 0

    async def begin(self, topic: str, timer_id: str, limit: int) -> tuple[TimerNow, HistoryPage]:
        """Tell how the timer stands, and its newest events.

        This has a race: the timer ends between the two reads, and is there although the journal tells its
        end, or the other way round. Then both are read once more. What foreign writers do is in no journal,
        so the two may differ for good.
        """
        timer, page = await self._read(topic, timer_id, limit)
        if page.lives is not None and page.lives != (timer is not None):
            timer, page = await self._read(topic, timer_id, limit)
        letters, is_complete = await self._letters(topic, timer_id, page, lives=timer is not None)
        return TimerNow(await self._topics.stats(topic), timer, letters, is_complete), page

    async def page(self, topic: str, timer_id: str, limit: int, cursor: str) -> HistoryPage:
        """Read a page of the timer's events, the newest first; none where the topic has no journal. Raises
        `InvalidField("page_token", …)`, and `StoreRefused` where the store reads no journals."""
        if not self.is_recorded(topic):
            return HistoryPage(())
        if self._histories is None:
            raise StoreRefused("this store reads no journals")
        return await self._histories.read(topic, timer_id, limit=limit, cursor=cursor)

    async def _read(self, topic: str, timer_id: str, limit: int) -> tuple[StoredTimer | None, HistoryPage]:
        page = await self.page(topic, timer_id, limit, "")
        timer = await self._partitioning.begin(
            topic,
            lambda layout: self._timers.get(layout.partition(timer_id), timer_id, with_content=False),
        )
        return timer, page

    async def _letters(
        self, topic: str, timer_id: str, page: HistoryPage, *, lives: bool
    ) -> tuple[list[DeadLetter], bool]:
        """The dead letters that the journal names and that are kept still; if it knows of no life of the
        timer, those among the oldest ones."""
        if page.lives is not None or lives:
            found = [await self._letter(topic, name) for name in page.letters[:MOST_LETTERS]]
            return [letter for each in found for letter in each], True
        letters: list[DeadLetter] = []
        cursor = ""
        for _ in range(MOST_PAGES):
            read = await self._topics.dead_page(topic, limit=MAX_PER_CALL, cursor=cursor)
            letters += [letter for letter in read.letters if letter.timer_id == timer_id]
            cursor = read.cursor
            if not cursor:
                break
        return letters[: -MOST_LETTERS - 1 : -1], not cursor

    async def _letter(self, topic: str, dead_id: str) -> list[DeadLetter]:
        """One dead letter if it is kept, without its content, which need not open here. It is not where its
        partition is gone: a move has taken along all letters that were kept, under other names."""
        entry, _, partition = dead_id.partition("#")
        cursor = "#".join(filter(None, (entry_before(entry), partition)))
        try:
            read = await self._topics.dead_page(topic, limit=BESIDE, cursor=cursor)
        except InvalidField:
            return []
        return [letter for letter in read.letters if letter.dead_id == dead_id]
