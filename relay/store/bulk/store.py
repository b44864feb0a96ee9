"""Timers in bulk, for Spark's workers: written in batches that Redis hardly notices.

A batch that replaces takes the place of existing timers with its ids, as `timeline/schedule` does, without a
check. So it is for new timers. Timers that may have been delivered or cancelled since they were written down
need a run's ledger (`relay.store.bulk.inserting`) or a sweep's guarded load (`relay.store.bulk.sweeping`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from relay.core.partitions import Layout, layout_of
from relay.store.bulk.columns_call import Elsewhere, PackedRows, UnderWay
from relay.store.bulk.layouts import BulkLayouts, one
from relay.store.server.blocking import BlockingServer
from relay.store.server.scripts import Call
from relay.store.verbs import bulk

R = TypeVar("R")

BATCH = 500
"""The most timers that one call writes: a claim beside it waits that long."""

BATCH_BYTES = 1 << 20
"""The approximate limit of envelope bytes that one call writes."""


class BulkStore:
    """Writes and reads many timers over connections of its own. Not to be shared between threads.

    `wished` says how many partitions a new topic is to have. What is written names a partition, or a topic
    without a layout.
    """

    def __init__(self, server: BlockingServer, wished: Callable[[str], int] = one) -> None:
        self.server = server
        self.layouts = BulkLayouts(server, wished)
        self._ready: set[Layout] = set()
        self._under_way = UnderWay(server)

    def connect(self) -> None:
        """Check that Redis answers. Raises `StoreError`."""
        self.server.ask("PING")

    def close(self) -> None:
        """Close the connections. Timers that `flush` has not confirmed may have been written or not."""
        self._under_way = UnderWay(self.server)
        self.server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        """Leave. If nothing has failed, all that was written has the durability of its topics by then. Raises
        `StoreError`."""
        try:
            if failure is None and self.server.owes:
                self.flush()
                self.server.settle()
        finally:
            self.close()

    def now(self, topic: str = "") -> int:
        """See `BlockingServer.now`."""
        return self.server.now(topic)

    def count(self, topic: str) -> int:
        """Return how many timers the topic has, in all partitions. Raises `StoreError`."""
        names = self.layouts.look_up(topic).partitions
        found: list[int] = self.server.ask_each(
            [("ZCARD", self.server.keys.key("timeline", name)) for name in names]
        )
        return sum(found)

    def topics(self) -> list[str]:
        """Return all topics that relays or loads have registered, sorted. Raises `StoreError`."""
        pages = self.server.scan("SSCAN", self.server.keys.topics, 1000)
        found: set[bytes] = {name for names in pages for name in names}
        return sorted(name.decode(errors="surrogateescape") for name in found)

    def at_rest(self, topic: str) -> Layout:
        """See `BulkLayouts.at_rest`. What has to be asked for comes behind all that is under way."""
        known = self.layouts.known_at_rest(topic)
        if known is not None:
            return known
        self.flush()
        return self.layouts.at_rest(topic)

    def sealed(self, topics: Sequence[str]) -> list[bool]:
        """Return of each topic whether a relay has marked it as sealed. Raises `StoreError`."""
        self.flush()
        keys = [self.server.keys.key("sealed", topic) for topic in topics]
        return [bool(found) for found in self.server.ask_each([("EXISTS", key) for key in keys])]

    # ------------------------------------------------------------------- writing

    def replace(self, partition: str, rows: PackedRows, elsewhere: Elsewhere | None = None) -> None:
        """Write a batch that has each timer once, in the place of existing ones.

        Names, sizes and due times have been checked. Returns while it is under way: `flush` tells that it is
        written. `elsewhere` is that of `UnderWay.send`. Raises `StoreError`; then any number of batches may
        be written, each of them whole.
        """
        self.send(bulk.replace(partition, rows.expires), rows, elsewhere=elsewhere)

    def send(
        self,
        call: Call[Any],
        rows: PackedRows,
        count: Callable[[Any], None] = lambda _: None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """Send a script's call with a batch of its partition; at most `AHEAD` are under way. `count` is
        called with its result. Raises `StoreError`, which may be about a call before."""
        self.register(call.topic)
        self._under_way.send(call, rows, count, elsewhere)

    def register(self, partition: str) -> None:
        """Have its topic known, ask which of the partitions have a journal, and whether the server can give
        the topic's durability: once for each layout, before its first batch. Raises `StoreError`."""
        layout = layout_of(partition)
        if layout not in self._ready:
            self.flush()
            self.server.require(partition)
            self.server.ask("SADD", self.server.keys.topics, layout.topic)
            self.server.look_for_journals(layout.partitions)
            self._ready.add(layout)

    def flush(self) -> None:
        """Wait until all is written. Raises `StoreError`."""
        self._under_way.flush()

    # ------------------------------------------------------------------ scripts

    def call(self, call: Call[R]) -> R:
        """Run a script, behind all that is under way. Raises `StoreError`."""
        self.flush()
        return self.server.call(call)
