"""The journals of a topic's partitions, read as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from relay.core.partitions import MAX_PARTITIONS, Layout
from relay.store.journal.files import Raw
from relay.store.partitions.entry_ids import EntryId
from relay.store.partitions.for_each import for_each
from relay.store.partitions.layouts import look_up
from relay.store.partitions.merging import in_order
from relay.store.server.server import Server

PAGE = 100
"""Entries that one call to Redis reads; each has at most 1,000 records."""


class TopicJournal:
    """Reads a topic's journal, and keeps how far it has come in each partition.

    Entries come in the order of their ids over all partitions, as far as they are there when they are looked
    for. Their ids are those of `relay.store.partitions.entry_ids`.
    """

    def __init__(self, server: Server, topic: str, after: Mapping[int, str] | None = None) -> None:
        """`after` is the entry of each partition behind which reading begins; empty or missing: the first."""
        self._server = server
        self._topic = topic
        self.layout = Layout(topic)
        self._names: Sequence[str] = ()
        self._after = {n: entry for n, entry in (after or {}).items() if entry}

    async def look(self) -> None:
        """Look which journals there are: to be called before all else, and again later, since a topic's
        partitions change. Those of partitions that it has no more are read, too. Raises `StoreError`."""
        self.layout = await look_up(self._server, self._topic)
        number = len(self.layout.partitions)
        while self.layout.epoch and number < MAX_PARTITIONS and await self._was_used(number):
            number *= 2  # by which the number of partitions changes, and each that was emptied has a layout
        text = self.layout.text
        self._names = [f"{self._topic}#{n} {text}" for n in range(number)] if text else [self._topic]

    async def _was_used(self, number: int) -> bool:
        key = self._server.keys.key("layout", f"{self._topic}#{number} {self.layout.text}")
        kind: bytes = await self._server.ask("TYPE", key)
        return kind == b"string"

    @property
    def count(self) -> int:
        """How many journals there are."""
        return len(self._names)

    def name(self, number: int) -> str:
        """The name of a partition that has, or had, a journal."""
        return self._names[number]

    def begin_behind(self, after: Mapping[int, str]) -> None:
        """Go on behind these entries of each partition."""
        self._after = {n: entry for n, entry in after.items() if entry}

    async def behind(self) -> AsyncIterator[Raw]:
        """Yield the entries that exist now and were not read yet. Raises `StoreError`."""
        while page := await self._page():
            for where, raw in page:
                self._after[where.partition] = where.entry
                yield raw

    async def newest(self, count: int) -> list[Raw]:
        """Return the last `count` entries, the oldest first; reading goes on behind them. Raises
        `StoreError`."""
        pages = await for_each(lambda n: self._read("XREVRANGE", n, "+", "-", count), self._numbers)
        for n, page in enumerate(pages):
            if page:
                self._after[n] = next(iter(page))
        order = in_order([list(page)[::-1] for page in pages], [False] * len(pages))[-count:]
        return [self._named(where, pages[where.partition][where.entry]) for where in order]

    async def unread(self) -> set[str]:
        """Return the ids of the partitions' last entries that exist now and were not read yet. Raises
        `StoreError`."""
        pages = await for_each(lambda n: self._read("XREVRANGE", n, "+", "-", 1), self._numbers)
        return {
            self._named(EntryId.of(entry, n), b"").id
            for n, page in enumerate(pages)
            for entry in page
            if entry != self._after.get(n)
        }

    async def page(self, number: int, start: str, count: int = PAGE) -> dict[str, bytes]:
        """What the first entries of a partition's journal hold from `start` on, as XRANGE takes it, by their
        ids. Raises `StoreError`."""
        return await self._read("XRANGE", number, start, "+", count)

    async def page_before(self, number: int, start: str, count: int = PAGE) -> dict[str, bytes]:
        """The same of the last entries up to `start`, as XREVRANGE takes it, the newest first. Raises
        `StoreError`."""
        return await self._read("XREVRANGE", number, start, "-", count)

    @property
    def _numbers(self) -> range:
        return range(len(self._names))

    async def _page(self) -> list[tuple[EntryId, Raw]]:
        def start(number: int) -> str:
            return f"({self._after[number]}" if number in self._after else "-"

        pages = await for_each(lambda n: self._read("XRANGE", n, start(n), "+", PAGE), self._numbers)
        order = in_order([list(page) for page in pages], [len(page) == PAGE for page in pages])
        return [(where, self._named(where, pages[where.partition][where.entry])) for where in order]

    async def _read(self, command: str, number: int, start: str, end: str, count: int) -> dict[str, bytes]:
        """What the entries of a partition hold, by their ids."""
        key = self._server.keys.key("journal", self._names[number])
        found = await self._server.ask(command, key, start, end, "COUNT", count)
        return {name.decode(): fields.get(b"b", b"") for name, fields in found}

    def _named(self, where: EntryId, batch: bytes) -> Raw:
        return Raw(str(where) if self.layout.epoch else where.entry, batch)
