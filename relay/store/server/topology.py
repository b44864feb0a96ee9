"""Which node of a Cluster has which slot, and how nodes are asked for that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import random
from time import monotonic
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from relay.core.endpoints.addresses import join, split
from relay.core.endpoints.redis_url import Address
from relay.core.errors import UnfitServer
from relay.store.server.errors import words

SLOTS = 16_384

REFRESH = 60.0
"""Seconds between two looks that nobody has asked for, up to a tenth more at random."""

FIRST_SHARDED = 7
"""The version of Redis that has SPUBLISH."""

FLOOR = 0.1
"""Seconds between the starts of two looks, at least."""


class Topology:
    """Which node has which slot, as far as is known.

    A node is a **place**: its `host:port` as the Cluster calls it. `addresses` says where to reach one that
    is reached elsewhere; `ask_at` opens a client for a question to any node, a replica too. `changed` is
    called each time that a slot is found in another place than before.

    One look is under way at a time. It asks the nodes that are known, beginning with those that gave no
    trouble, then the `seeds`, until one answers. A node may be behind, and what it says is mended by the next
    MOVED.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        addresses: Mapping[Address, Address],
        ask_at: Callable[[Address], Redis],
        changed: Callable[[], None],
    ) -> None:
        self._seeds = seeds
        self._addresses = addresses
        self._ask_at = ask_at
        self._changed = changed
        self._slots = [""] * SLOTS
        self.places: list[str] = []
        """All nodes with slots. The one that answered the last question is the first; one that gave trouble
        since is the last."""
        self.is_sharded = False
        """Whether messages of pub/sub are heard at the node with the channel's slot only."""
        self._look: asyncio.Task[None] | None = None
        self._wanted = False
        self._is_closed = False
        self._began = -FLOOR
        self._trouble: Exception = RedisConnectionError("the Cluster was not asked yet")

    def of(self, slot: int) -> str:
        """The place that has the slot; empty if none is known."""
        return self._slots[slot]

    def reachable(self, place: str) -> Address:
        """Where a node is reached."""
        address = split(place)
        return self._addresses.get(address, address)

    def learn(self, slot: int, place: str) -> None:
        """Note where a node says that one slot is, and look soon for what else is new."""
        moved, self._slots[slot] = self._slots[slot] != place, place
        self.doubt()
        if moved:
            self._changed()

    def doubt(self, trouble: str = "") -> None:
        """Look soon, without a wait; `trouble` is the place that gave a reason to."""
        if trouble in self.places:
            self.places.remove(trouble)
            self.places.append(trouble)
        self._wanted = True
        if (self._look is None or self._look.done()) and not self._is_closed:
            self._look = asyncio.create_task(self._look_until_known())

    async def known(self) -> None:
        """Wait for the first answer. Raises what kept it away: redis-py's `ConnectionError`, or
        `UnfitServer`."""
        if not self.places:
            await self.look()
        if not self.places:
            raise self._trouble.with_traceback(None)  # it may be raised often

    async def look(self) -> None:
        """Look, and wait until that is done, whatever comes of it."""
        self.doubt()
        assert self._look is not None
        await asyncio.shield(self._look)  # whoever gives up leaves it to the others

    async def watch(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH * (1 + random() / 10))
            self.doubt()

    async def aclose(self) -> None:
        """End the look that is under way; no further one begins."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
            await asyncio.wait([self._look])

    async def _look_until_known(self) -> None:
        while self._wanted:
            await asyncio.sleep(max(self._began + FLOOR - monotonic(), 0.0))
            self._wanted = False
            self._began = monotonic()
            await self._look_once()

    async def _look_once(self) -> None:
        known = [(place, self.reachable(place)) for place in self.places]
        reasons = []
        for place, address in (*known, *((join(*seed), seed) for seed in self._seeds)):
            try:
                async with self._ask_at(address) as node:
                    told = await node.execute_command("CLUSTER", "SLOTS")
                    about = await node.info("server")
            except (RedisError, OSError) as failure:
                if isinstance(failure, ResponseError) and "cluster support disabled" in str(failure):
                    self._trouble = UnfitServer(
                        "the server is not a node of a Cluster: name it in redis.url with redis:// in the "
                        "place of redis+cluster://"
                    )
                    return
                reasons.append(f"{place}: {words(failure)}")
                continue
            self._take(told, place, about)
            return
        self._trouble = RedisConnectionError(f"no node tells how the Cluster stands ({'; '.join(reasons)})")

    def _take(self, told: Sequence[Any], place: str, about: Mapping[str, Any]) -> None:
        slots = slots_told(told, host=split(place)[0])
        there = dict.fromkeys((*([place] if place in slots else ()), *self.places, *slots))
        found = set(slots)
        self.places = [each for each in there if each in found and each]
        is_sharded = int(str(about["redis_version"]).partition(".")[0]) >= FIRST_SHARDED
        if slots != self._slots or is_sharded != self.is_sharded:
            self._slots, self.is_sharded = slots, is_sharded
            self._changed()


def slots_told(told: Iterable[Any], *, host: str) -> list[str]:
    """The place of each slot by a reply to CLUSTER SLOTS: first slot, last slot, the master's host and port
    and more, its replicas. A master without a host has that of the node which was asked, `host`."""
    slots = [""] * SLOTS
    for first, last, (name, port, *_), *_replicas in told:
        place = join(name.decode() if name not in (None, b"", b"?") else host, port)
        slots[first : last + 1] = [place] * (last + 1 - first)
    return slots
