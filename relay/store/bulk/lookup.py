"""Looks timers up by name, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.core.partitions import Layout
from relay.store.journal.standing import Standing, standing
from relay.store.server.blocking import BlockingServer


def present_now(server: BlockingServer, layout: Layout, timer_ids: Sequence[str]) -> list[Standing]:
    """Return what `standing` tells of each, in their order. Raises `StoreError`."""
    asking = standing(server.keys, layout, timer_ids)
    replies: Any = None
    while True:
        try:
            commands = asking.send(replies)
        except StopIteration as told:
            return [told.value[timer_id] for timer_id in timer_ids]
        replies = server.atomic(*commands)
