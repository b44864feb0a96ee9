"""Looks timers up by name, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relay.core.partitions import LEAVING, Layout, own_name
from relay.core.ports import MAX_PER_CALL
from relay.store.server.blocking import BlockingServer

Standing = tuple[bool, bool]
"""Whether a timer is there, and whether there is a lease record."""

NOWHERE: Standing = (False, False)


def present_now(server: BlockingServer, layout: Layout, timer_ids: Sequence[str]) -> list[Standing]:
    """Look up over connections that block, wherever a timer is: as `relay.store.partitions.present`."""
    parts: dict[str, list[str]] = {}
    for timer_id in timer_ids:
        parts.setdefault(layout.partition(timer_id), []).append(timer_id)
    found: dict[str, Standing] = {}
    for partition, some in parts.items():
        found.update(_standing(server, own_name(partition), some))
        if partition.endswith(LEAVING):
            absent = [timer_id for timer_id in some if found[timer_id] == NOWHERE]
            found.update(_on_their_way(server, own_name(partition), absent))
            absent = [timer_id for timer_id in absent if found[timer_id] == NOWHERE]
            found.update(_standing(server, layout.filled(partition), absent))
    return [found[timer_id] for timer_id in timer_ids]


def _standing(
    server: BlockingServer, partition: str, timer_ids: Sequence[str]
) -> Iterator[tuple[str, Standing]]:
    """Each with its answers, which are of one moment."""
    timeline, _, leases, *_ = server.keys.of(partition)
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        scores, records = server.atomic(("ZMSCORE", timeline, *part), ("HMGET", leases, *part))
        for timer_id, score, record in zip(part, scores, records, strict=True):
            yield timer_id, (score is not None, record is not None)


def _on_their_way(
    server: BlockingServer, partition: str, timer_ids: Sequence[str]
) -> Iterator[tuple[str, Standing]]:
    key = server.keys.key("move", partition)
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        noted = server.ask("HMGET", key, *(f"t{timer_id}" for timer_id in part))
        for timer_id, note in zip(part, noted, strict=True):
            yield timer_id, (note is not None, False)
