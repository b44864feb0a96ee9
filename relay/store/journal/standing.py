"""Which commands tell whether timers exist, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from relay.core.partitions import LEAVING, Layout, own_name
from relay.core.ports import MAX_PER_CALL
from relay.store.keys import KeyNames
from relay.store.server.scripts import Argument

Standing: TypeAlias = tuple[bool, bool]
"""Whether a timer is there, and whether there is a lease record."""

NOWHERE: Standing = (False, False)

Asking: TypeAlias = Generator[Sequence[Sequence[Argument]], Sequence[Any], dict[str, Standing]]
"""Yields commands about one partition, between which nothing may come, and is sent their replies. Returns
what they tell."""


def standing(keys: KeyNames, layout: Layout, timer_ids: Sequence[str]) -> Asking:
    """Ask for each whether its partition's timeline has it, and whether there is a lease record. One that a
    move takes away is looked for where it leaves, on its way, and where it arrives, in this order, so that it
    is not missed while it goes.

    Each part of `MAX_PER_CALL` is of one moment, all together are not.
    """
    parts: dict[str, list[str]] = {}
    for timer_id in timer_ids:
        parts.setdefault(layout.partition(timer_id), []).append(timer_id)
    found: dict[str, Standing] = {}
    for partition, some in parts.items():
        found |= yield from _in_partition(keys, own_name(partition), some)
        if partition.endswith(LEAVING):
            absent = [timer_id for timer_id in some if found[timer_id] == NOWHERE]
            found |= yield from _on_their_way(keys, own_name(partition), absent)
            absent = [timer_id for timer_id in absent if found[timer_id] == NOWHERE]
            found |= yield from _in_partition(keys, layout.filled(partition), absent)
    return found


def _in_partition(keys: KeyNames, partition: str, timer_ids: Sequence[str]) -> Asking:
    timeline, _, leases, *_ = keys.of(partition)
    found: dict[str, Standing] = {}
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        scores, records = yield ("ZMSCORE", timeline, *part), ("HMGET", leases, *part)
        there = (
            (score is not None, record is not None) for score, record in zip(scores, records, strict=True)
        )
        found |= zip(part, there, strict=True)
    return found


def _on_their_way(keys: KeyNames, partition: str, timer_ids: Sequence[str]) -> Asking:
    key = keys.key("move", partition)
    found: dict[str, Standing] = {}
    for start in range(0, len(timer_ids), MAX_PER_CALL):
        part = timer_ids[start : start + MAX_PER_CALL]
        (noted,) = yield (("HMGET", key, *(f"t{timer_id}" for timer_id in part)),)
        found |= {timer_id: (note is not None, False) for timer_id, note in zip(part, noted, strict=True)}
    return found
