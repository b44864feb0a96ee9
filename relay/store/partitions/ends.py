"""How occurrences have ended: by the dead letters of their partition, and by the topic's journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from relay.core.errors import StoreRefused
from relay.core.journal import JournalBatch
from relay.core.partitions import Layout, involved, partition_number
from relay.core.ports import MAX_PER_CALL
from relay.core.recurring.ends import (
    NO_JOURNAL,
    NOT_RECORDED,
    TOO_FAR,
    TRIMMED,
    Became,
    OccurrenceOutcome,
    Trail,
)
from relay.store.journal.entries import decode
from relay.store.partitions.for_each import for_each
from relay.store.partitions.journals import PAGE, TopicJournal
from relay.store.server.server import Server
from relay.store.timeline.topics import RedisTopics

MOST_PAGES = 4
"""Pages of 500 dead letters, or of 4 MiB, that one call looks through."""

MOST_BYTES = 4 << 20
"""Bytes of entries that are read of a partition's journal to find the end of one occurrence."""

MOST_ENTRIES = 20_000
"""How many entries that are."""

MOST_SECONDS = 2.0
"""How long one call reads journals."""

MOST_MOVES = 24
"""From how many partitions to others an occurrence is followed."""

BEGINS_WITHIN = 5_000
"""Milliseconds within which the first record of an occurrence is found: it is made at once."""

STEPS_BACK = 100
"""Milliseconds that the clock of Redis may have been set back between a tick and what it wrote."""

APART = 1_000
"""Milliseconds that the clocks of two nodes may differ."""

UNDECIDED = (OccurrenceOutcome.UNKNOWN, OccurrenceOutcome.WAITING)
"""The outcomes of which a dead letter may tell more."""

EXPIRED = "expired"
"""The reason of the dead letters of what has expired."""


async def ended(  # see 0094
    server: Server, layout: Layout, recurrence_id: str, made: Mapping[str, int], *, journaled: bool
) -> Mapping[str, Became]:
    """See `RecurrenceStore.ended`."""
    found: dict[str, Became] = {}
    if journaled and made:
        search = _Search(TopicJournal(server, layout.topic), RedisTopics(server), recurrence_id, made)
        with anyio.move_on_after(MOST_SECONDS):
            await search.run()
        found = search.results()
    else:
        found = dict.fromkeys(made, Became.unknown(NO_JOURNAL))
    left = {name: made[name] for name, became in found.items() if became.outcome in UNDECIDED}
    return {**found, **await _letters(server, layout.partition(recurrence_id), left)}


async def _letters(server: Server, partition: str, made: Mapping[str, int]) -> dict[str, Became]:
    """The deaths of which letters are kept. A group of a stream has letters of its own, which tell nothing of
    the other groups."""
    topics = RedisTopics(server)
    found: dict[str, Became] = {}
    for name in involved(partition) if made else ():
        cursor = f"{max(min(made.values()) // 1_000 - STEPS_BACK, 0)}-0"
        for _ in range(MOST_PAGES):
            page = await topics.dead_page(name, limit=MAX_PER_CALL, cursor=cursor)
            for letter in page.letters:
                if letter.timer_id in made and not letter.group:
                    died = OccurrenceOutcome.DEAD, letter.reason
                    if letter.reason == EXPIRED:
                        died = OccurrenceOutcome.EXPIRED, ""
                    found[letter.timer_id] = Became(*died, letter.attempts, letter.died)
            cursor = page.cursor
            if not cursor:
                break
    return found


@dataclass(slots=True)
class _Hunt:
    """One occurrence that is looked for in one partition's journal, from a millisecond on."""

    timer_id: str
    since: int
    trail: Trail = field(default_factory=Trail)
    size: int = 0
    """Bytes that were read for it."""
    entries: int = 0
    begins_late: bool = False
    """Whether records of it may be gone from the beginning."""
    has_gap: bool = False
    """Whether records are gone that came behind those that were read."""

    @property
    def doubt(self) -> str:
        """Why more may have happened than was read; empty if not."""
        if self.is_far and not self.trail.is_over:
            return TOO_FAR
        return TRIMMED if self.has_gap or (self.begins_late and not self.trail.seen) else ""

    @property
    def is_far(self) -> bool:
        """Whether as much was read for it as one call reads."""
        return self.size > MOST_BYTES or self.entries > MOST_ENTRIES

    def goes_on(self, millisecond: int) -> bool:
        """Whether anything is to be found behind an entry."""
        trail = self.trail
        may_come = trail.seen or trail.awaits or self.begins_late or millisecond <= self.since + BEGINS_WITHIN
        return bool(may_come and not trail.is_over and not trail.left and not self.is_far)


class _Search:
    """Looks for the ends of a recurrence's occurrences in the journals of the partitions that have, or had,
    the recurrence. All occurrences of a recurrence are in one partition at a time.

    It begins in the partition of today, and looks in others only for what has not begun there. What has left
    a partition is looked for where the hand-over says.
    """

    def __init__(
        self, journal: TopicJournal, letters: RedisTopics, recurrence_id: str, made: Mapping[str, int]
    ) -> None:
        """`letters` are those of single partitions."""
        self._journal = journal
        self._letters = letters
        self._recurrence_id = recurrence_id
        self._mark = f"{recurrence_id}@".encode()
        """What stands in each entry that tells of an occurrence."""
        self._made = made
        self._found: dict[str, _Hunt] = {}
        """The hunts that have led furthest."""
        self._doubts: dict[str, str] = {}
        """Why nothing was found in other places."""
        self._is_complete = False

    async def run(self) -> None:
        """Search. It may be cancelled: what was found by then is in the results."""
        await self._journal.look()
        home, *others = self._places()
        await self._begin(self._made, (home,))
        begun = {name for name, hunt in self._found.items() if hunt.trail.has_begun_here}
        await self._begin(self._made.keys() - begun, others)
        lost: set[str] = set()
        for _ in range(MOST_MOVES):
            gone = {name for name, hunt in self._found.items() if hunt.trail.left} - lost
            if not gone:
                self._is_complete = True
                return
            lost |= gone - await self._follow(gone)

    def _places(self) -> list[int]:
        """The partitions that have had the recurrence, whatever number of them the topic had; that of today
        is the first."""
        layout = self._journal.layout
        sizes = [2**n for n in range(self._journal.count.bit_length())]
        now = partition_number(self._recurrence_id, layout.count)
        return list(dict.fromkeys((now, *(partition_number(self._recurrence_id, n) for n in sizes))))

    async def _begin(self, timer_ids: Iterable[str], numbers: Sequence[int]) -> None:
        """Look for occurrences from the instant on at which they were made."""
        since = {each: max(self._made[each] // 1_000 - STEPS_BACK, 0) for each in timer_ids}
        hunts = {n: [_Hunt(name, start) for name, start in since.items()] for n in numbers}
        await self._hunt_all(hunts)

    async def _follow(self, gone: Collection[str]) -> set[str]:
        """Look where occurrences have gone to. Return those that were found there."""
        hunts: dict[int, list[_Hunt]] = {}
        for name in gone:
            trail = self._found[name].trail
            for number in trail.goes_to:
                hunt = _Hunt(name, max(trail.left_at // 1_000 - APART, 0), Trail(trail))
                hunts.setdefault(number, []).append(hunt)
        await self._hunt_all(hunts)
        return {hunt.timer_id for some in hunts.values() for hunt in some if hunt.trail.seen}

    async def _hunt_all(self, hunts: Mapping[int, Sequence[_Hunt]]) -> None:
        """Hunt in several partitions at once, and keep what leads further than what was known."""
        try:
            await for_each(lambda n: self._hunt(n, hunts[n]), hunts)
        finally:  # also of what was cut short
            for hunt in (hunt for some in hunts.values() for hunt in some):
                known = self._found.get(hunt.timer_id)
                if hunt.trail.seen and (known is None or known.trail.left or hunt.trail.has_begun_here):
                    self._found[hunt.timer_id] = hunt
                elif hunt.doubt:
                    self._doubts[hunt.timer_id] = hunt.doubt

    async def _hunt(self, number: int, hunts: Sequence[_Hunt]) -> None:
        """Read a partition's journal forwards for as long as one of these is looked for, and leap over what
        lies between two."""
        await self._look_at_the_beginning(number, hunts)
        waiting, active = sorted(hunts, key=lambda hunt: hunt.since, reverse=True), list[_Hunt]()
        start, last = "", 0
        while active or waiting:
            if not active:
                active.append(waiting.pop())
                start, last = max(start, f"{active[0].since}", key=_millisecond), 0
            page = await self._journal.page(number, start)
            last = _note_gap(page, last, active)
            for entry, batch in page.items():
                millisecond = _millisecond(entry)
                while waiting and waiting[-1].since <= millisecond:
                    active.append(waiting.pop())
                if self._mark in batch:
                    _take(entry, batch, active)
                for hunt in active:
                    hunt.size, hunt.entries = hunt.size + len(batch), hunt.entries + 1
                active = [hunt for hunt in active if hunt.goes_on(millisecond)]
            await self._ask_for_letters(number, hunts)
            active = [hunt for hunt in active if not hunt.trail.is_over]
            if len(page) < PAGE:
                break
            start = f"({next(reversed(page))}"
        await self._look_at_the_beginning(number, hunts)  # it may have been trimmed meanwhile

    async def _ask_for_letters(self, number: int, hunts: Iterable[_Hunt]) -> None:
        """Whoever has died is dead as long as the letter is kept: it need not be looked for a redrive."""
        for trail in [hunt.trail for hunt in hunts if hunt.trail.letter]:
            letter = await self._letters.dead_letter(self._journal.name(number), trail.letter)
            trail.letter, trail.is_over = "", letter is not None

    async def _look_at_the_beginning(self, number: int, hunts: Sequence[_Hunt]) -> None:
        page = await self._journal.page(number, "-", 1)
        if (batch := _readable(page.items())) is not None and batch.first > 1:
            for hunt in hunts:
                hunt.begins_late |= hunt.since < _millisecond(batch.entry)

    def results(self) -> dict[str, Became]:
        """What became of each, as far as it was found."""
        return {timer_id: self._result(timer_id) for timer_id in self._made}

    def _result(self, timer_id: str) -> Became:
        hunt = self._found.get(timer_id)
        if hunt is not None and hunt.trail.is_over and hunt.trail.became is not None:
            return hunt.trail.became
        if not self._is_complete:
            return Became.unknown(TOO_FAR)
        if hunt is None:
            return Became.unknown(self._doubts.get(timer_id, NOT_RECORDED))
        doubt = hunt.doubt or (self._doubts.get(timer_id, "") if hunt.trail.left else "")
        if doubt:
            return Became.unknown(doubt)
        return hunt.trail.became or Became(OccurrenceOutcome.WAITING, attempts=hunt.trail.attempts or 0)


def _note_gap(page: dict[str, bytes], last: int, hunts: Sequence[_Hunt]) -> int:
    """Note where records are missing between a page and the one before, which ended with number `last`, 0 if
    there was none. Return the number with which this one ends."""
    first, end = _readable(page.items()), _readable(reversed(page.items()))
    if first is None or end is None:
        return last
    if last and first.lost_since(last):
        for hunt in hunts:
            hunt.has_gap = True
    return end.last


def _readable(entries: Iterable[tuple[str, bytes]]) -> JournalBatch | None:
    """The first entry that this version can read; others are foreign, or a newer version's."""
    for entry, raw in entries:
        with suppress(StoreRefused):
            return decode(entry, raw)
    return None


def _take(entry: str, raw: bytes, hunts: Sequence[_Hunt]) -> None:
    trails = {hunt.timer_id: hunt.trail for hunt in hunts}
    if (batch := _readable([(entry, raw)])) is None:
        for hunt in hunts:
            hunt.has_gap = True  # it may have had an end
        return
    for record in batch.records:
        if (trail := trails.get(record.timer_id)) is not None:
            trail.take(record, batch.time)


def _millisecond(entry: str) -> int:
    """The first part of an entry's id, also of one behind which a page begins."""
    return int(entry.lstrip("(").partition("-")[0] or 0)
