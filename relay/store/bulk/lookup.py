"""Looks timers up by name, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relay.core.ports import MAX_PER_CALL
from relay.store.server.blocking import BlockingServer


def present_now(server: BlockingServer, topic: str, timer_ids: Sequence[str]) -> Iterator[tuple[bool, bool]]:
    """Look up over connections that block. A timer's two answers are of one moment."""
    timeline, _, leases, *_ = server.keys.of(topic)
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        scores, records = server.atomic(("ZMSCORE", timeline, *part), ("HMGET", leases, *part))
        for score, record in zip(scores, records, strict=True):
            yield score is not None, record is not None
