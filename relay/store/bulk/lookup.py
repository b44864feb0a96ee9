"""Which timers are there, asked for by name: what an audit holds against a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redis.asyncio import Redis

from relay.core.ports import MAX_PER_CALL
from relay.store.keys import KeyNames
from relay.store.server.blocking import Line, checked
from relay.store.server.errors import translated_errors


async def present(
    redis: Redis, keys: KeyNames, topic: str, timer_ids: Sequence[str]
) -> list[tuple[bool, bool]]:
    """Of each: whether the timeline has it, and whether there is a lease record. Raises `StoreError`.

    Each part of `MAX_PER_CALL` is of one moment, all together are not.
    """
    timeline, _, leases, *_ = keys.of(topic)
    found: list[tuple[bool, bool]] = []
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        with translated_errors():
            async with redis.pipeline(transaction=True) as calls:
                calls.execute_command("ZMSCORE", timeline, *part)
                calls.execute_command("HMGET", leases, *part)
                scores, records = await calls.execute()
        found += [
            (score is not None, record is not None) for score, record in zip(scores, records, strict=True)
        ]
    return found


def present_now(
    line: Line, keys: KeyNames, topic: str, timer_ids: Sequence[str]
) -> Iterator[tuple[bool, bool]]:
    """The same by a connection that blocks. A timer's two answers are of one moment."""
    timeline, _, leases, *_ = keys.of(topic)
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        line.send(("MULTI",), ("ZMSCORE", timeline, *part), ("HMGET", leases, *part), ("EXEC",))
        *_, answer = line.receive(4)
        scores, records = checked(answer)
        for score, record in zip(checked(scores), checked(records), strict=True):
            yield score is not None, record is not None
