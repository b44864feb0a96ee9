"""Looks timers up by name, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relay.core.ports import MAX_PER_CALL
from relay.store.server.blocking import BlockingServer
from relay.store.server.server import Server


async def present(server: Server, topic: str, timer_ids: Sequence[str]) -> list[tuple[bool, bool]]:
    """Return for each whether the timeline has it, and whether there is a lease record. Raises `StoreError`.

    Each part of `MAX_PER_CALL` is of one moment, all together are not.
    """
    timeline, _, leases, *_ = server.keys.of(topic)
    found: list[tuple[bool, bool]] = []
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        scores, records = await server.pipeline(
            ("ZMSCORE", timeline, *part), ("HMGET", leases, *part), atomic=True
        )
        found += [
            (score is not None, record is not None) for score, record in zip(scores, records, strict=True)
        ]
    return found


def present_now(server: BlockingServer, topic: str, timer_ids: Sequence[str]) -> Iterator[tuple[bool, bool]]:
    """Look up over connections that block. A timer's two answers are of one moment."""
    timeline, _, leases, *_ = server.keys.of(topic)
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        scores, records = server.atomic(("ZMSCORE", timeline, *part), ("HMGET", leases, *part))
        for score, record in zip(scores, records, strict=True):
            yield score is not None, record is not None
