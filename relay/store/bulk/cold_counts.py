"""What sweeps leave in Redis for forecasts: how many timers rest in a cold store, by when they are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relay.core.recurring.cold_counts import ColdCounts
from relay.store.codec.cold_counts import COUNTS, ToldCounts, counts_text, read_counts
from relay.store.server.blocking import BlockingServer
from relay.store.verbs import bulk


class TellsColdCounts:  # see 0127
    """Says it of one cold store. Whatever it says replaces what was said before, so it may be killed anywhere
    and run again. Raises `StoreError`."""

    def __init__(self, server: BlockingServer, store: str) -> None:
        self._server = server
        self._store = store

    def read(self, topics: Sequence[str]) -> dict[str, ToldCounts]:
        """What was said last of topics, where anything was."""
        keys = [self._server.keys.key("cold", topic) for topic in topics]
        field = COUNTS + self._store.encode()
        texts = self._server.ask_each([("HMGET", key, field) for key in keys])
        found = {topic: read_counts(text) for topic, (text,) in zip(topics, texts, strict=True) if text}
        return {topic: told for topic, told in found.items() if told is not None}

    def tell(self, plan: int, writes: str, counts: Mapping[str, ColdCounts]) -> None:
        """Say what rests of topics, counted behind a plan that is done."""
        self._server.each(
            [
                bulk.tell_cold(topic, "counts", self._store, plan, counts_text(writes, each))
                for topic, each in counts.items()
            ]
        )

    def take(self, plan: int, topics: Sequence[str], until: int) -> None:
        """Say that a plan takes of topics what is due before an instant: call it before the first batch."""
        self._server.each([bulk.tell_cold(topic, "takes", self._store, plan, str(until)) for topic in topics])
