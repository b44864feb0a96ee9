"""Timers in bulk, for Spark's workers: written in batches that Redis hardly notices.

A batch that replaces takes the place of existing timers with its ids, as `timeline/schedule` does, without a
check. So it is for new timers. Timers that may have been delivered or cancelled since they were written down
need a run's ledger (`relay.store.bulk.inserting`) or a sweep's guarded load (`relay.store.bulk.sweeping`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from relay.store.bulk.columns_call import PackedRows, UnderWay
from relay.store.server.blocking import BlockingServer
from relay.store.server.scripts import Call
from relay.store.verbs import bulk

R = TypeVar("R")

BATCH = 500
"""The most timers that one call writes: a claim beside it waits that long."""

BATCH_BYTES = 1 << 20
"""The approximate limit of envelope bytes that one call writes."""


class BulkStore:
    """Writes and reads many timers over connections of its own. Not to be shared between threads."""

    def __init__(self, server: BlockingServer) -> None:
        self.server = server
        self._topics: set[str] = set()
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
        self.close()

    def now(self, topic: str = "") -> int:
        """See `BlockingServer.now`."""
        return self.server.now(topic)

    def count(self, topic: str) -> int:
        """Return how many timers the topic has. Raises `StoreError`."""
        found: int = self.server.ask("ZCARD", self.server.keys.of(topic)[0])
        return found

    def topics(self) -> list[str]:
        """Return all topics that relays or loads have registered, sorted. Raises `StoreError`."""
        pages = self.server.scan("SSCAN", self.server.keys.topics, 1000)
        found: set[bytes] = {name for names in pages for name in names}
        return sorted(name.decode(errors="surrogateescape") for name in found)

    # ------------------------------------------------------------------- writing

    def replace(self, topic: str, rows: PackedRows) -> None:
        """Write a batch that has each timer once, in the place of existing ones.

        Names, sizes and due times have been checked. Returns while it is under way: `flush` tells that it is
        written. Raises `StoreError`; then any number of batches may be written, each of them whole.
        """
        self.send(bulk.replace(topic, rows.expires), rows)

    def send(self, call: Call[Any], rows: PackedRows, count: Callable[[Any], None] = lambda _: None) -> None:
        """Send a script's call with a batch of its topic; at most `AHEAD` are under way. `count` is called
        with its result. Raises `StoreError`, which may be about a call before."""
        self.register(call.topic)
        self._under_way.send(call, rows, count)

    def register(self, topic: str) -> None:
        """Have it known as a topic: once, before its first batch. Raises `StoreError`."""
        if topic not in self._topics:
            self.flush()
            self.server.ask("SADD", self.server.keys.topics, topic)
            self._topics.add(topic)

    def flush(self) -> None:
        """Wait until all is written. Raises `StoreError`."""
        self._under_way.flush()

    # ------------------------------------------------------------------ scripts

    def call(self, call: Call[R]) -> R:
        """Run a script, behind all that is under way. Raises `StoreError`."""
        self.flush()
        return self.server.call(call)
