"""Looks timers up by name, wherever they are, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Sequence

from relay.core.partitions import LEAVING, Layout, own_name
from relay.core.ports import MAX_PER_CALL
from relay.store.server.server import Server

Standing = tuple[bool, bool]
"""Whether a timer is there, and whether there is a lease record."""

NOWHERE: Standing = (False, False)


async def present(server: Server, layout: Layout, timer_ids: Sequence[str]) -> dict[str, Standing]:
    """Return for each whether its partition's timeline has it, and whether there is a lease record. One that
    a move takes away is looked for where it leaves, on its way, and where it arrives, in this order, so that
    it is not missed while it goes. Raises `StoreError`.

    Each part of `MAX_PER_CALL` is of one moment, all together are not.
    """
    found: dict[str, Standing] = {}
    for partition, some in _divided(layout, timer_ids).items():
        found |= await _standing(server, own_name(partition), some)
        if partition.endswith(LEAVING):
            absent = [timer_id for timer_id in some if found[timer_id] == NOWHERE]
            found |= await _on_their_way(server, own_name(partition), absent)
            absent = [timer_id for timer_id in absent if found[timer_id] == NOWHERE]
            found |= await _standing(server, layout.filled(partition), absent)
    return found


def _divided(layout: Layout, timer_ids: Sequence[str]) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    for timer_id in timer_ids:
        parts.setdefault(layout.partition(timer_id), []).append(timer_id)
    return parts


async def _standing(server: Server, partition: str, timer_ids: Sequence[str]) -> dict[str, Standing]:
    timeline, _, leases, *_ = server.keys.of(partition)
    found: dict[str, Standing] = {}
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        scores, records = await server.pipeline(
            ("ZMSCORE", timeline, *part), ("HMGET", leases, *part), atomic=True
        )
        there = (
            (score is not None, record is not None) for score, record in zip(scores, records, strict=True)
        )
        found |= zip(part, there, strict=True)
    return found


async def _on_their_way(server: Server, partition: str, timer_ids: Sequence[str]) -> dict[str, Standing]:
    key = server.keys.key("move", partition)
    found: dict[str, Standing] = {}
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        noted = await server.ask("HMGET", key, *(f"t{timer_id}" for timer_id in part))
        found |= {timer_id: (note is not None, False) for timer_id, note in zip(part, noted, strict=True)}
    return found
