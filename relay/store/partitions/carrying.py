"""Carries what a move has taken out of one partition to the one where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

from relay.core.durability import STORED, Durability, needing
from relay.core.errors import DurabilityMissed, StoreFull, StoreUnavailable
from relay.core.partitions import Layout, own_name, topic_of
from relay.store.partitions.for_each import for_each
from relay.store.server.scripts import Argument, Call
from relay.store.server.server import Server
from relay.store.verbs import move

R = TypeVar("R")


class Carried(NamedTuple):
    """A batch that has been carried: what it has, each 't', 'c' or 'd' and its name (see `Kind`); whether
    they are where they belong; and the ids of its letters' entries there, if this call has put them there."""

    names: Sequence[bytes]
    arrived: bool
    entries: Sequence[str]


@contextmanager
def asking(partition: str) -> Iterator[None]:
    """Have an error within the block say which partition could not be reached."""
    try:
        yield
    except StoreUnavailable as failure:
        failure.partition = failure.partition or partition
        raise


class Carrier:  # see 0084
    """Anybody may carry anything, at any time and more than once: each step compares the batch's name, and a
    step that comes second changes nothing.

    A step that the next one relies on has the topic's durability before that: what has left is not to be
    back, and what has arrived is not to be gone, once the other place has gone on.
    """

    def __init__(self, server: Server, durability: Callable[[str], Durability] = lambda _: STORED) -> None:
        """`durability` tells that of a topic."""
        self._server = server
        self._durability = durability

    async def carry(self, layout: Layout, partition: str) -> Carried | None:
        """Carry the batch that is on its way from a partition, if one is. Raises `StoreError`."""
        _, batch = await self.mark(partition)
        return await self._carry(layout, partition, batch) if batch else None

    async def arrive(self, layout: Layout) -> None:
        """Carry all that is on its way now. Raises `StoreError`."""
        await for_each(partial(self.carry, layout), layout.emptied)

    async def mark(self, partition: str) -> tuple[str, Sequence[bytes]]:
        """Return the name of the last batch that was taken out of a partition, empty if there was none, and
        the batch that is on its way. Raises `StoreError`."""
        last, *batch = await self._server.call(move.mark(own_name(partition)))
        return last.decode(), batch

    async def lasting(self, call: Call[R]) -> R:  # see 0092
        """Make a call about a topic or partition, and wait until it is as durable as the topic has to be.
        Raises `StoreError`."""
        try:
            with needing(self._durability(topic_of(call.topic))):
                return await self._server.call(call)
        except DurabilityMissed as missed:  # whoever calls has not changed anything yet
            raise StoreUnavailable(str(missed)) from missed

    async def take(
        self, layout: Layout, partition: str, kind: move.Kind, names: Sequence[Argument]
    ) -> Carried | None:
        """Take timers or letters out of a partition and carry them, or those that are on their way already;
        None if none of them is there. Raises `StoreError`; `StoreFull` if there is no room where they belong,
        and they are back."""
        batch = await self.lasting(move.leave(own_name(partition), kind, names))
        if not batch:
            return None
        carried = await self._carry(layout, partition, batch)
        if not carried.arrived:
            raise StoreFull
        return carried

    async def _carry(self, layout: Layout, partition: str, batch: Sequence[bytes]) -> Carried:
        here, there, name = own_name(partition), layout.filled(partition), batch[0]
        entries: Sequence[bytes] = ()
        with asking(there):
            try:
                became, *entries = await self.lasting(move.put(there, batch))
            except StoreFull:
                became = await self.lasting(move.void(there, name))
        if became == b"PUT":
            await self._server.call(move.left(here, name))
        else:
            # A batch that is over is not on its way any more, unless the partition has lost data and shows an
            # older state. What that state has goes back, to be moved again.
            await self._server.call(move.back(here, batch))
        return Carried(batch[1::2], became != b"VOID", [entry.decode() for entry in entries])
