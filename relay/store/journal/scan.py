"""A topic's journal in parts, for Spark: where it ends, where it is split, what lies between two marks.

Every change has a number, so the end of a part of a given size is found by a search of the stream's ids,
which reads one entry for each step: nobody has to read the journal to divide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from relay.core.errors import StoreRefused
from relay.core.journal import JournalBatch
from relay.core.partitions import MAX_PARTITIONS
from relay.store.journal.entries import decode
from relay.store.server.blocking import BlockingServer

PAGE = 100
"""The entries that one call to Redis reads; each has at most 1,000 records."""


TRIMMED_AT_ONCE = 1000
"""The most entries that one call removes: a claim beside it waits that long."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a journal: behind the entry of this id, whose last change has the number `last`.

    An empty id is before all entries; then `last` is the number before the first change that there is.
    """

    entry: str = ""
    last: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """By which marks of one stream are ordered."""
        return place(self.entry)


@dataclass(frozen=True, slots=True)
class EntryGap:
    """Changes that are missing before the entry. The number is negative if the journal went back by that
    many.

    `time` is that of the batch behind it, 0 where there is none.
    """

    entry: str
    missing: int
    time: int = 0


def place(entry: str) -> tuple[int, int]:
    """An entry's id as numbers: milliseconds and sequence. What is empty is before all."""
    head, _, tail = entry.partition("-")
    return (int(head), int(tail or 0)) if head else (-1, 0)


class JournalStream(NamedTuple):
    """A topic's journal, or that of one of its partitions: None for a topic without a layout."""

    topic: str
    partition: int | None = None

    @property
    def name(self) -> str:
        """What it is called in keys and offsets: a topic's first partition has the topic's name."""
        return f"{self.topic}#{self.partition}" if self.partition else self.topic


class JournalScan:
    """Reads the journals of topics by connections that block. Where a `topic` is asked for, the name of a
    `JournalStream` is meant."""

    def __init__(self, server: BlockingServer) -> None:
        self._server = server

    def topics(self) -> list[str]:
        """Those that have a journal, of the topics that relays have served; sorted."""
        names = sorted(name.decode() for name in self._server.ask("SMEMBERS", self._server.keys.topics))
        return [name for name in names if self._server.ask("EXISTS", self._key(name))]

    def streams(self, topic: str) -> list[JournalStream]:
        """The journals of a topic, one for each partition that it has or had. Raises `StoreError`."""
        layout = self._server.layout_now(topic)
        if not layout.epoch:
            return [JournalStream(topic)]
        count = len(layout.partitions)
        while count < MAX_PARTITIONS and self._was_used(f"{topic}#{count}"):
            count *= 2  # by which the number of partitions changes, and each that was emptied has a layout
        return [JournalStream(topic, number) for number in range(count)]

    def stream(self, name: str) -> JournalStream:
        """The one of this name."""
        topic, _, number = name.partition("#")
        if number.isdecimal():
            return JournalStream(topic, int(number))
        return JournalStream(name, 0 if self._was_used(name) else None)

    def _was_used(self, partition: str) -> bool:
        """Whether a partition has seen a layout."""
        return bool(self._server.ask("TYPE", self._server.keys.key("layout", partition)) == b"string")

    def begin(self, topic: str) -> Mark:
        """Before the oldest entry that is there."""
        found = self._page(topic, "-", "+", 1)
        return Mark("", found[0].first - 1 if found else 0)

    def end(self, topic: str) -> Mark:
        """Behind the newest entry."""
        return self._before(topic, "+")

    def ahead(self, topic: str, after: Mark, until: Mark, most: int) -> Mark:
        """Return the furthest mark with at most `count` changes behind `after`, and not behind `until`. At
        least one entry lies between, if there is one. A journal that went back is not split."""
        if not 0 < until.last - after.last > most:
            return until
        low, high, best = max(after.place[0], 0), until.place[0], after
        while low <= high:  # by milliseconds
            middle = (low + high) // 2
            found = self._before(topic, str(middle))
            if found.last - after.last <= most:
                best, low = max(best, found, key=lambda mark: mark.place), middle + 1
            else:
                high = middle - 1
        best = self._within(topic, after, best, low, most)
        if best.place > after.place:
            return best
        following = self._page(topic, _behind(after.entry), "+", 1)
        return Mark(following[0].entry, following[0].last) if following else until

    def _within(self, topic: str, after: Mark, best: Mark, millisecond: int, most: int) -> Mark:
        """The same among the entries of one millisecond, of which the last is too far."""
        last = self._before(topic, str(millisecond)).place
        low, high = 0, last[1] if last[0] == millisecond else -1
        while low <= high:
            middle = (low + high) // 2
            found = self._before(topic, f"{millisecond}-{middle}")
            if found.last - after.last <= most:
                best, low = max(best, found, key=lambda mark: mark.place), middle + 1
            else:
                high = middle - 1
        return best

    def cut(self, topic: str, after: Mark, until: Mark, size: int) -> list[tuple[Mark, Mark]]:
        """Return the stretch as parts of at most about `count` changes each, in order."""
        parts = []
        while after.place < until.place:
            end = min(self.ahead(topic, after, until, size), until, key=lambda mark: mark.place)
            parts.append((after, end))
            after = end
        return parts

    def read(self, topic: str, after: Mark, until: Mark) -> Iterator[JournalBatch | EntryGap]:
        """Yield what lies between two marks, and an `EntryGap` wherever changes are missing. Raises
        `StoreError`."""
        last, start = after.last, _behind(after.entry)
        while batches := self._page(topic, start, until.entry, PAGE):
            for batch in batches:
                if lost := batch.lost_since(last):
                    yield EntryGap(batch.entry, lost, batch.time)
                yield batch
                last = batch.last
            start = _behind(batches[-1].entry)
        if last < until.last:  # trimmed, after somebody had seen them
            yield EntryGap(until.entry, until.last - last)

    def trim(self, topic: str, until: str) -> int:
        """Remove entries before the one with this id, in short calls; return how many were removed.

        That one stays, and so does the newest: by its number the next one is numbered. A few more may stay,
        since Redis removes whole nodes.
        """
        gone = 0
        while removed := self._server.ask(
            "XTRIM", self._key(topic), "MINID", "~", until, "LIMIT", TRIMMED_AT_ONCE
        ):
            gone += int(removed)
        return gone

    def _before(self, topic: str, bound: str) -> Mark:
        """Behind the last entry up to `bound`."""
        found = self._answered(topic, self._server.ask("XREVRANGE", self._key(topic), bound, "-", "COUNT", 1))
        return Mark(found[0].entry, found[0].last) if found else Mark()

    def _page(self, topic: str, start: str, end: str, count: int) -> list[JournalBatch]:
        return self._answered(topic, self._server.ask("XRANGE", self._key(topic), start, end, "COUNT", count))

    def _answered(self, topic: str, found: Any) -> list[JournalBatch]:
        try:
            return [decode(name.decode(), dict(_pairs(fields)).get(b"b", b"")) for name, fields in found]
        except StoreRefused as refused:
            raise StoreRefused(f"topic {topic!r}: {refused}") from None

    def _key(self, topic: str) -> str:
        return self._server.keys.key("journal", topic)


def _pairs(fields: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(fields[::2], fields[1::2], strict=True)


def _behind(entry: str) -> str:
    return f"({entry}" if entry else "-"
