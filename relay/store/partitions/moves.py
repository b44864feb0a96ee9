"""Changes how many partitions a topic has, and moves its timers accordingly."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from relay.core.errors import InvalidField
from relay.core.partitions import Layout, own_name, place_of
from relay.core.ports import MAX_PER_CALL
from relay.store.codec.lease_record import text_of
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.server.server import Server
from relay.store.verbs import layout as layout_verbs
from relay.store.verbs import move

PAGE = 1000
"""The number of ids that one command returns, roughly."""

LETTERS = 100
"""Dead letters that one command reads, with their content."""

Moved = Callable[[int], Awaitable[None]]
"""Told how many timers or dead letters have been moved, after each batch; it may wait, to bound the rate."""


class RedisMoves:  # see 0084
    """The `Moves` of the topics on a server. Any number of relays may work on one move at the same time."""

    def __init__(self, server: Server, layouts: RedisLayouts, carrier: Carrier) -> None:
        self._server = server
        self._layouts = layouts
        self._carrier = carrier

    async def begin(self, topic: str, partitions: int, *, rate: int = 0) -> Layout:
        """See `Moves.begin`. A script call each to read the layout and to change it, and a command for each
        key of the partitions to come. Raises `InvalidField`, also while a sweep of the cold store is under
        way."""
        now = await self._layouts.ask(topic)
        if now.towards or now.count == partitions:
            return now
        towards = now.count * 2 if partitions > now.count else now.count // 2
        becomes = Layout(topic, max(now.epoch, 1) + 1, now.count, towards)
        for partition in becomes.partitions[now.count :]:
            await self._check_free(partition)
        return await self._change(now, becomes, rate)

    async def _check_free(self, partition: str) -> None:
        """Check that the keys of a partition to come are not those of a topic. Raises `InvalidField`."""
        # The layout last: whoever has begun this move meanwhile leaves one there when filling the partition.
        names = ("timeline", "payloads", "dead", "layout")
        *others, seen = [await self._type_of(name, partition) for name in names]
        if seen != "string" and any(kind != "none" for kind in (seen, *others)):
            raise InvalidField(
                "partitions",
                f"can't be changed: a topic {place_of(partition)!r} is there, from before a # named "
                "partitions; let its timers end, or move them to another topic",
            )

    async def _type_of(self, name: str, partition: str) -> str:
        kind: bytes = await self._server.ask("TYPE", self._server.keys.key(name, partition))
        return kind.decode()

    async def _change(self, known: Layout, becomes: Layout, rate: int = 0) -> Layout:
        call = layout_verbs.change(known.topic, known.text, becomes.text, rate)
        self._layouts.learn(known.topic, (await self._carrier.lasting(call)).decode())
        return self._layouts.known(known.topic) or becomes

    async def rate(self, layout: Layout) -> int:
        """See `Moves.rate`. One HGET."""
        key = self._server.keys.key("move", layout.topic)
        return int(await self._server.ask("HGET", key, "rate") or 0)

    async def last(self, layout: Layout) -> str:
        """See `Moves.last`. A script call for each partition that the move empties."""
        return " ".join([(await self._carrier.mark(partition))[0] for partition in layout.emptied])

    async def run(self, layout: Layout, moved: Moved) -> None:
        """See `Moves.run`. A batch has no more than a second's rate: others see progress by batches."""
        if not layout.towards:
            return
        size = min(await self.rate(layout) or MAX_PER_CALL, MAX_PER_CALL)
        # A recurrence comes behind its occurrences, and timers that die meanwhile leave letters.
        kinds: Sequence[move.Kind] = ("t", "c", "d")
        for kind in kinds:
            for partition in layout.emptied:
                while not await self._empty(layout, partition, kind, size, moved):
                    pass
        await self._change(layout, Layout(layout.topic, layout.epoch + 1, layout.towards))

    async def _empty(self, layout: Layout, partition: str, kind: move.Kind, size: int, moved: Moved) -> bool:
        """Go through a partition once and move what leaves it, in batches of `size` at most. Return whether
        nothing was found, which stays so: nothing is taken in of what leaves, nobody has brought anything
        back meanwhile, and one server has told all."""
        last, batch = await self._carrier.mark(partition)
        if batch:
            await self._carrier.carry(layout, partition)
            return False
        found, servers = False, set[bytes]()
        search = {"t": self._timers, "c": self._recurrences, "d": self._letters}[kind]
        async for server, names in search(layout, partition):
            servers.add(server)
            for start in range(0, len(names), size):
                some = names[start : start + size]
                while (carried := await self._carrier.take(layout, partition, kind, some)) is not None:
                    found = True
                    await moved(len(carried.names))
                    if len(carried.names) >= len(some):
                        break
        name, batch = await self._carrier.mark(partition)
        return not found and not batch and name == last and len(servers) == 1

    async def _timers(self, layout: Layout, partition: str) -> AsyncIterator[tuple[bytes, list[bytes]]]:
        """The ids of timers that leave a partition, which may come twice, behind the server that has told
        them: a search that goes on at another one passes timers over."""
        here, cursor = own_name(partition), b""
        while cursor != b"0":
            server, cursor, *names = await self._server.call(move.scan(here, cursor or "0", PAGE))
            yield server, [name for name in names if layout.partition(text_of(name)[0]) == partition]

    async def _recurrences(self, layout: Layout, partition: str) -> AsyncIterator[tuple[bytes, list[bytes]]]:
        """The ids of recurrences that leave a partition; every server has them in this order."""
        key = self._server.keys.key("names", own_name(partition))
        start, names = b"-", [b""] * PAGE
        while len(names) == PAGE:
            names = await self._server.ask("ZRANGE", key, start, "+", "BYLEX", "LIMIT", 0, PAGE)
            yield b"", [name for name in names if layout.partition(text_of(name)[0]) == partition]
            start = b"(" + names[-1] if names else start

    async def _letters(self, layout: Layout, partition: str) -> AsyncIterator[tuple[bytes, list[bytes]]]:
        """The entries of dead letters whose timers leave a partition; every server has them in this order."""
        key = self._server.keys.key("dead", own_name(partition))
        start, entries = b"-", [()] * LETTERS
        while len(entries) == LETTERS:
            entries = await self._server.ask("XRANGE", key, start, "+", "COUNT", LETTERS)
            yield (
                b"",
                [
                    entry
                    for entry, fields in entries
                    if layout.partition(text_of(fields.get(b"timer_id", b""))[0]) == partition
                ],
            )
            start = b"(" + entries[-1][0] if entries else start
