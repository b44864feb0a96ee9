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

NO_CLUSTER = "the server is not a node of a Cluster: name it in redis.url with redis:// in the place of redis+cluster://"

FLOOR = 0.1
"""Seconds between the starts of two looks, at least."""


class Topology:
    """Which node has which slot, as far as is known.

    A node is a **place**: its `host:port` as the Cluster calls it. `addresses` says where to reach one that
    is reached elsewhere; `ask_at` opens a client for a question to any node, a replica too. `changed` is
    called each time that a slot is found in another place than before.

    One look is under way at a time. It asks the nodes that are known, beginning with those that gave no
    trouble and were not asked lately, then the `seeds`, until one answers that knows who has slots. A node
    may be behind, and what it says is mended by the next MOVED, or by the next look, which asks another one:
    a node that is cut off from the others does not know that it is behind.
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
        """All nodes with slots, in the order in which they are asked: one that gave trouble or answered goes
        to the end."""
        self.anywhere = ""
        """Where what belongs to no slot goes: to the node that answered last, or to another one if that gave
        trouble since."""
        self.is_sharded = False
        """Whether messages of pub/sub are heard at the node with the channel's slot only."""
        self._look: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        """Set, and replaced, when a look has ended."""
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
        self._put_last(trouble)
        if trouble == self.anywhere:
            self.anywhere = next(iter(self.places), "")
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
        while self._wanted and not self._is_closed:
            await asyncio.sleep(max(self._began + FLOOR - monotonic(), 0.0))
            self._wanted = False
            self._began = monotonic()
            try:
                await self._look_once()
            finally:
                looked, self._looked = self._looked, asyncio.Event()
                looked.set()

    async def _look_once(self) -> None:
        known = [(place, self.reachable(place)) for place in self.places]
        reasons, is_single = [], False
        for place, address in (*known, *((join(*seed), seed) for seed in self._seeds)):
            if self._is_closed:
                return
            try:
                async with self._ask_at(address) as node:
                    told = await node.execute_command("CLUSTER", "SLOTS")
                    about = await node.info("server")
            except (RedisError, OSError) as failure:
                is_single |= isinstance(failure, ResponseError) and "cluster support disabled" in str(failure)
                reasons.append(f"{place}: {words(failure)}")
            else:
                if self._take(told, place, about):
                    return
                reasons.append(f"{place}: it knows no node that has slots")
            self._put_last(place)
        trouble = f"no node tells how the Cluster stands ({'; '.join(reasons)})"
        self._trouble = UnfitServer(NO_CLUSTER) if is_single else RedisConnectionError(trouble)

    def _take(self, told: Sequence[Any], place: str, about: Mapping[str, Any]) -> bool:
        """Believe an answer, unless it is that of a node which has left the Cluster, or met nobody yet."""
        slots = slots_told(told, host=split(place)[0])
        found = set(slots) - {""}
        if not found:
            return False
        self.places = [each for each in dict.fromkeys((*self.places, *slots)) if each in found]
        self.anywhere = place if place in found else self.places[0]
        self._put_last(place)
        is_sharded = int(str(about["redis_version"]).partition(".")[0]) >= FIRST_SHARDED
        if slots != self._slots or is_sharded != self.is_sharded:
            self._slots, self.is_sharded = slots, is_sharded
            self._changed()
        return True

    def _put_last(self, place: str) -> None:
        """Ask all others before this one, if it is among them."""
        if place in self.places:
            self.places.remove(place)
            self.places.append(place)


def slots_told(told: Iterable[Any], *, host: str) -> list[str]:
    """The place of each slot by a reply to CLUSTER SLOTS: first slot, last slot, the master's host and port
    and more, its replicas. A master without a host has that of the node which was asked, `host`."""
    slots = [""] * SLOTS
    for first, last, (name, port, *_), *_replicas in told:
        place = join(name.decode() if name not in (None, b"", b"?") else host, port)
        slots[first : last + 1] = [place] * (last + 1 - first)
    return slots
