"""Looks timers up by name, wherever they are, so that an audit can compare them with a journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relay.core.partitions import Layout
from relay.store.journal.standing import Standing, standing
from relay.store.server.server import Server


async def present(server: Server, layout: Layout, timer_ids: Sequence[str]) -> dict[str, Standing]:
    """Return what `standing` tells of each. Raises `StoreError`."""
    asking = standing(server.keys, layout, timer_ids)
    replies: Any = None
    while True:
        try:
            commands = asking.send(replies)
        except StopIteration as told:
            found: dict[str, Standing] = told.value
            return found
        replies = await server.pipeline(*commands, atomic=True)
