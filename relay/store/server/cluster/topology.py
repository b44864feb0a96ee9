"""How the nodes of a Cluster are asked for their slots, beside the calls of a relay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import random
from time import monotonic

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from relay.core.endpoints.redis_url import Address
from relay.store.server.cluster.slot_map import SlotMap
from relay.store.server.probing.commands import SHARDED_PUBLISH, is_missing

REFRESH = 60.0
"""Seconds between two looks that nobody has asked for, up to a tenth more at random."""

FLOOR = 0.1
"""Seconds between the starts of two looks, at least."""


class Topology(SlotMap):
    """A `SlotMap` that looks by itself: soon after each reason to doubt, and now and then.

    `ask_at` opens a client for a question to any node, a replica too. One look is under way at a time.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        addresses: Mapping[Address, Address],
        ask_at: Callable[[Address], Redis],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(seeds, addresses, changed)
        self._ask_at = ask_at
        self._look: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        """Set, and replaced, when a look has ended."""
        self._is_closed = False
        self._began = -FLOOR

    def doubt(self, trouble: str = "") -> None:
        """Look soon, without a wait; `trouble` is the place that gave a reason to."""
        super().doubt(trouble)
        if (self._look is None or self._look.done()) and not self._is_closed:
            self._look = asyncio.create_task(self._look_until_known())

    async def known(self) -> None:
        """Wait for the first answer. Raises what kept it away: redis-py's `ConnectionError`, or
        `UnfitServer`."""
        if not self.places:
            await self.look()
        if not self.places:
            raise self.trouble.with_traceback(None)  # it may be raised often

    async def look(self) -> None:
        """Look, or share the look that is under way, and wait until it has ended, whatever comes of it.

        This has a race: while no node answers calls go on to come, and each of them wants one more look. So
        nobody waits for the last of them.
        """
        self.doubt()
        await self._looked.wait()

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH * (1 + random() / 10))
            self.doubt()

    async def aclose(self) -> None:
        """Wait for the question that is under way, a second or two at most; no further one is asked.

        It is not cancelled: redis-py loses a connection that is being made then, and it stays open.
        """
        self._is_closed = True
        if self._look is not None:
            await asyncio.wait([self._look])
        self._looked.set()  # for good: nobody waits for a look that does not come

    async def _look_until_known(self) -> None:
        while self.wanted and not self._is_closed:
            await asyncio.sleep(max(self._began + FLOOR - monotonic(), 0.0))
            self.wanted = False
            self._began = monotonic()
            try:
                await self._look_once()
            finally:
                looked, self._looked = self._looked, asyncio.Event()
                looked.set()

    async def _look_once(self) -> None:
        for place, address in self.asked_in_turn():
            if self._is_closed:
                return
            try:
                async with self._ask_at(address) as node:
                    told = await node.execute_command("CLUSTER", "SLOTS")
                    is_sharded = await _has_spublish(node)
            except (RedisError, OSError) as failure:
                self.failed(place, failure)
            else:
                if self.take(place, told, is_sharded=is_sharded):
                    return


async def _has_spublish(node: Redis) -> bool:
    try:
        await node.execute_command(*SHARDED_PUBLISH)
    except ResponseError as refusal:
        return not is_missing(str(refusal))
    return True
