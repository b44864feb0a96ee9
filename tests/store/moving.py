"""A relay of which only the stores are there, for tests of topics that get another number of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from relay.core.durability import STORED, Durability
from relay.core.instants import SECOND
from relay.core.outcomes import NO_LIMITS, ClaimRequest, Limits, Settlement, Verb
from relay.core.partitions import Layout
from relay.core.timers import Change, NewTimer
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.moves import RedisMoves
from relay.store.partitions.timers import PartitionedTimers
from relay.store.partitions.topics import PartitionedTopics
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.servers import RunningServer
from tests.settlements import end_of
from tests.worlds.scripts.asking import N1

LEASE = 600 * SECOND
LATER = 4_000_000_000 * SECOND
IDS = [f"t{n}" for n in range(300)]


class Relay:
    """What one relay does to a topic."""

    def __init__(
        self, server: Server, topic: str, partitions: int = 1, durability: Durability = STORED
    ) -> None:
        self.server, self.topic = server, topic
        self.layouts = RedisLayouts(server, lambda _: partitions)
        self.carrier, parts = Carrier(server, lambda _: durability), RedisTopics(server)
        plain = RedisStore(server, arrive=self.carrier.arrive)
        self.timers = PartitionedTimers(plain, parts, self.layouts, server, self.carrier)
        self.topics = PartitionedTopics(parts, self.layouts, self.carrier)
        self.moves = RedisMoves(server, self.layouts, self.carrier)

    @property
    def layout(self) -> Layout:
        known = self.layouts.known(self.topic)
        assert known is not None
        return known

    async def put(self, *timer_ids: str, due: int = LATER) -> None:
        for timer_id in timer_ids:
            (told,) = await self.timers.schedule(self.at(timer_id), [NewTimer(timer_id, b"x", due)])
            assert told.change is Change.CREATED, timer_id

    def at(self, timer_id: str) -> str:
        return self.layout.partition(timer_id)

    async def get(self, timer_id: str) -> bool:
        return await self.timers.get(self.at(timer_id), timer_id) is not None

    async def cancel(self, timer_id: str) -> Change:
        (told,) = await self.timers.cancel(self.at(timer_id), [timer_id])
        return told.change

    async def listed(self, limit: int = 37) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            page = await self.timers.list(self.layout, state=None, limit=limit, cursor=cursor)
            found += [timer.timer_id for timer in page.timers]
            if not (cursor := page.cursor):
                return found

    async def claim(self, nonce: bytes = N1) -> dict[str, str]:
        """All that is due, with the partition where it was claimed."""
        request = ClaimRequest(500, LEASE, nonce, 1 << 20, NO_LIMITS)
        return {
            timer.timer_id: partition
            for partition in self.layout.partitions
            for timer in (await self.timers.claim(partition, request)).timers
        }

    async def end(self, claimed: dict[str, str], verb: Verb, nonce: bytes = N1) -> list[object]:
        """End leases, each partition's in one call; the results are in the order of the ids."""
        results: dict[str, object] = {}
        for partition in dict.fromkeys(claimed.values()):
            names = [name for name, where in claimed.items() if where == partition]
            ends = Settlement(nonce, end_of("", nonce, verb).ending, names)
            told = await self.timers.settle(partition, [ends], limits=Limits(keep=True))
            results.update(zip(names, told, strict=True))
        return [results[name] for name in claimed]

    async def move(self, partitions: int) -> Layout:
        layout = await self.moves.begin(self.topic, partitions)
        await self.moves.run(layout, nothing)
        return self.layout


async def nothing(_: int) -> None: ...


def homes(relay: Relay, *nodes: RunningServer) -> dict[str, list[str]]:
    """The timers that lie under each timeline's key, wherever they belong."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        with node.client() as raw:
            for key in raw.keys(f"timers_timeline:*{relay.topic}*"):
                found[key.decode()] = sorted(name.decode() for name in raw.zrange(key, 0, -1))
    return found


def assert_at_home(relay: Relay, nodes: Sequence[RunningServer], timer_ids: Sequence[str]) -> None:
    """Each timer lies in its partition, and nowhere else; nothing is on its way."""
    expected: dict[str, list[str]] = {}
    for timer_id in sorted(timer_ids):
        key = relay.server.keys.key("timeline", relay.at(timer_id))
        expected.setdefault(key, []).append(timer_id)
    assert homes(relay, *nodes) == expected
    for node in nodes:
        with node.client() as raw:
            assert not [key for key in raw.keys(f"*{relay.topic}*#move") if raw.hexists(key, "note")]
