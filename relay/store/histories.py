"""One timer's life by its topic's journals: the contract is that of `relay.core.ports.Histories`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from time import monotonic
from typing import Final

from relay.core.errors import InvalidField, StoreRefused
from relay.core.history.events import HistoryPage, TimerEvent, entry_before, events_of
from relay.core.history.ordering import newest_first
from relay.core.partitions import partition_number
from relay.store.journal.entries import decode
from relay.store.partitions.journals import PAGE, TopicJournal
from relay.store.server.server import Server

MOST_ENTRIES = 10_000
"""Entries that one call looks at, over all partitions."""

MOST_BYTES = 8 << 20
"""Bytes that these have together, up to a page more."""

MOST_SECONDS = 1.0
"""Seconds after which a call gives what it has found."""

APART = 1_000
"""Milliseconds that the clocks of two nodes may differ."""

NEWEST: Final = "+"
"""Where reading begins: at the end of a stream."""

_CURSOR = re.compile(r"(?:[0-9]{1,4}:[0-9]{1,19}-[0-9]{1,20})(?:,[0-9]{1,4}:[0-9]{1,19}-[0-9]{1,20})*")


@dataclass(slots=True)
class _Stream:
    """What was read of one partition's journal, backwards. `start` is the entry at which it goes on; empty:
    nothing is left. `first` is the number of the oldest record that was read, 0 if none was. `numbered`: dead
    letters are called after their partition, too. `begun` is where this call began."""

    number: int
    start: str
    numbered: bool
    begun: str = field(init=False)
    found: list[TimerEvent] = field(default_factory=list)
    first: int = 0
    has_gaps: bool = False

    def __post_init__(self) -> None:
        self.begun = self.start

    @property
    def untold(self) -> str:
        """Where the next page begins if this one tells nothing."""
        return self.found[0].entry if self.found else self.start

    @property
    def millisecond(self) -> float:
        """How far back all has been read."""
        if not self.start:
            return -math.inf
        return math.inf if self.start == NEWEST else float(self.start.partition("-")[0])

    def rank(self, begun: Collection[int]) -> tuple[bool, bool, float]:
        """By which the stream that is read next is the highest: one that was not read in this call."""
        return bool(self.start), self.number not in begun, self.millisecond


class RedisHistories:  # see 0121
    """The `Histories` of the topics on a server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def read(self, topic: str, timer_id: str, *, limit: int, cursor: str) -> HistoryPage:
        """See `Histories.read`. Each command reads `PAGE` entries of the partition of which the newest are
        unread."""
        journal = TopicJournal(self._server, topic)
        await journal.look()
        streams = _streams(journal, timer_id, cursor)
        mark = timer_id.encode(errors="surrogateescape")
        began, entries, size = monotonic(), 0, 0
        begun: set[int] = set()
        while (ahead := max(streams, key=lambda stream: stream.rank(begun))).start:
            # Each is read once at least. Otherwise a slow server could have a caller read one without end, of
            # which nothing can be told before the others are read as far.
            is_over = entries >= MOST_ENTRIES or size >= MOST_BYTES or monotonic() - began > MOST_SECONDS
            if ahead.number in begun:
                known = len(_known(streams))
                if known >= limit or (is_over and (known or _goes_on(streams))):
                    break
            begun.add(ahead.number)
            page = await journal.page_before(ahead.number, ahead.start)
            entries, size = entries + len(page), size + sum(map(len, page.values()))
            _take(ahead, page, timer_id, mark)
        return _page(streams, limit)


def _streams(journal: TopicJournal, timer_id: str, cursor: str) -> list[_Stream]:
    """The journals of the partitions that can have had the timer, whatever number of them the topic had, each
    with the entry at which the page begins. Raises `InvalidField("page_token", …)`."""
    sizes = [2**n for n in range(journal.count.bit_length())]
    numbers = {partition_number(timer_id, size) for size in sizes}
    numbered = journal.layout.epoch > 0
    if not cursor:
        return [_Stream(number, NEWEST, numbered) for number in sorted(numbers)]
    if not _CURSOR.fullmatch(cursor):
        raise InvalidField("page_token", "is not one that a history gave")
    starts = dict(part.split(":") for part in cursor.split(","))
    if any(int(half) >> 64 for start in starts.values() for half in start.split("-")):
        raise InvalidField("page_token", "is not one that a history gave")
    if not {int(number) for number in starts} <= numbers:
        raise InvalidField("page_token", "is not one that the history of this timer gave")
    return [_Stream(int(number), start, numbered) for number, start in starts.items()]


def _take(stream: _Stream, page: dict[str, bytes], timer_id: str, mark: bytes) -> None:
    """Take what a page has of the timer. Entries without its id are not decoded, but for the first and the
    last one, whose numbers tell whether records are missing."""
    names = list(page)
    for entry, raw in page.items():
        if mark not in raw and entry not in (names[0], names[-1]):
            continue
        batch = None
        with suppress(StoreRefused):
            batch = decode(f"{entry}#{stream.number}", raw)
        if batch is None:
            stream.has_gaps |= mark in raw  # it is foreign, or a newer version's
            continue
        if entry == names[0] and stream.first and batch.last + 1 != stream.first:
            stream.has_gaps = True
        stream.first = batch.first
        stream.found += [_named(event, stream) for event in events_of(batch, timer_id)]
    if len(page) < PAGE or stream.first == 1:
        # A page before has ended at an entry that is not the first one, and was trimmed meanwhile.
        stream.has_gaps |= stream.first > 1 or not (page or stream.first or stream.start == NEWEST)
        stream.start = ""
    else:
        stream.start = entry_before(names[-1])


def _named(event: TimerEvent, stream: _Stream) -> TimerEvent:
    """The event with its dead letter's name as listings have it."""
    if not (stream.numbered and event.record.dead_id):
        return event
    name = f"{event.record.dead_id}#{stream.number}"
    return replace(event, record=event.record._replace(dead_id=name))


def _known(streams: list[_Stream]) -> list[TimerEvent]:
    """What was found and can be told, the newest first: nothing on which another partition, whose clock may
    differ, can have something newer to say."""
    unread = max(stream.millisecond for stream in streams)
    known = unread + APART if len(streams) > 1 else unread
    order = newest_first({stream.number: stream.found for stream in streams})
    return list(takewhile(lambda event: event.millisecond >= known, order))


def _goes_on(streams: list[_Stream]) -> bool:
    """Whether a page that tells nothing leads on. It does not where all that a slow server gives in one call
    lies within `APART`: an event among it is read by the next call, too, and can't be told there either."""
    return any(stream.untold != stream.begun for stream in streams)


def _page(streams: list[_Stream], limit: int) -> HistoryPage:
    """Up to `limit` events, and all of the last one's entry. The others come on the next page."""
    chosen: list[TimerEvent] = []
    for event in _known(streams):
        if len(chosen) >= limit and not _is_beside(event, chosen[-1]):
            break
        chosen.append(event)
    told = {id(event) for event in chosen}
    for stream in streams:
        if rest := [event for event in stream.found if id(event) not in told]:
            stream.start = rest[0].entry
    starts = ",".join(f"{stream.number}:{stream.start}" for stream in streams if stream.start)
    return HistoryPage(chosen, starts, any(stream.has_gaps for stream in streams))


def _is_beside(event: TimerEvent, other: TimerEvent) -> bool:
    return (event.partition, event.entry) == (other.partition, other.entry)
