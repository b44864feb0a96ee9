"""Two relays tick, other occurrences end, and the topic moves back and forth meanwhile: each instant comes
once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import anyio
import pytest

from relay.core.errors import OtherLayout
from relay.core.instants import SECOND
from relay.core.partitions import LEAVING, Layout, own_name
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import (
    CatchUp,
    Overlap,
    Recurrence,
    Standing,
    StoredRecurrence,
    Turn,
    Turned,
)
from relay.core.recurring.rule import Rule, occurrence_name
from relay.core.recurring.turns import turn
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.server import Server
from relay.store.verbs import move
from tests.store.moving import Relay

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

NAMES = [f"r{n}" for n in range(40)]
FIRST = 1_767_225_600 * SECOND
MOST = 30


class Ticks:
    """What relays have written: which occurrences, and how many instants of each recurrence."""

    def __init__(self) -> None:
        self.came, self.accounted = Counter[str](), Counter[str]()

    async def run(self, relay: Relay) -> None:
        """Tick until all instants are accounted for, in whatever layout the topic has."""
        while sum(self.accounted.values()) < len(NAMES) * MOST:
            for partition in relay.layout.partitions:
                try:
                    await self._look(relay, partition)
                except OtherLayout:
                    await relay.layouts.ask(relay.topic)
                    break

    async def _look(self, relay: Relay, partition: str) -> None:
        store = RedisRecurrences(relay.server, relay.carrier)
        due = await store.due(partition, 20)
        by_partition = dict[str, list[Turn]]()
        for kept in due.kept:
            made = turn(kept, nominals(kept), kept.standing.next or 0, "")
            by_partition.setdefault(relay.at(kept.recurrence.recurrence_id), []).append(made)
        for place, some in by_partition.items():
            words = await store.turn(place, some, due.now)
            done = [each for each, word in zip(some, words, strict=True) if word is Turned.DONE]
            for each in done:
                self._count(each)
            for each in done:
                if each.occurrences:  # its handler ends
                    await relay.cancel(each.occurrences[0].timer_id)

    def _count(self, made: Turn) -> None:
        self.came.update(each.timer_id for each in made.occurrences)
        name = made.kept.recurrence.recurrence_id
        self.accounted[name] += len(made.occurrences) + sum(made.left_out.values())


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP, Overlap.CANCEL])
async def test_recurrences_tick_while_they_move(
    valkey: RunningServer, keyspace: Keyspace, overlap: Overlap
) -> None:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    ticks = Ticks()
    async with Server(valkey.url, connections=4, timeout=60.0) as server:
        left, right, mover = (Relay(server, topic, partitions=2) for _ in range(3))
        for relay in (left, right, mover):
            await relay.layouts.ask(topic)
        store = RedisRecurrences(server, mover.carrier)
        policies = {"overlap": overlap, "catch_up": CatchUp.ALL, "window": 10**15}
        for name in NAMES:
            recurrence = Recurrence(name, Rule(every=SECOND), b"x", **policies)  # type: ignore[arg-type]
            standing = Standing(1, FIRST, FIRST - 1)
            assert await store.keep(mover.at(name), None, recurrence, standing, FIRST, reason="put")

        async def move() -> None:
            for partitions in (4, 2, 1, 2, 4, 8):
                await mover.moves.run(await mover.moves.begin(topic, partitions), nothing)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ticks.run, left)
            tasks.start_soon(ticks.run, right)
            tasks.start_soon(move)
        for name in NAMES:
            _, kept = await store.get(mover.at(name), name)
            assert kept is not None
            standing = kept.standing
            assert standing.next is None
            assert standing.runs + sum(standing.left_out.values()) == MOST == ticks.accounted[name]
    assert set(ticks.came.values()) == {1}


async def test_occurrences_are_found_wherever_they_are(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Where they leave, on their way, where they belong, and back from there."""
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    async with Server(valkey.url, connections=1, timeout=60.0) as server:
        relay = Relay(server, topic, partitions=2)
        await relay.layouts.ask(topic)
        odd = ["a*", "a*b", "ab", "a?", "a[b]", "a\\*", "a^", "ä@b"]  # what means something in a glob
        every = [*NAMES, *odd]
        names = {each: [occurrence_name(each, FIRST + n * SECOND) for n in range(12)] for each in every}
        for some in names.values():
            await relay.put(*some, f"{some[0]}~2", f"{some[0]}!")
        layout = await relay.moves.begin(topic, 4)
        leaving = next(name for name in NAMES if layout.partition(name).endswith(LEAVING))
        await relay.carrier.take(layout, layout.partition(leaving), "t", names[leaving][:3])
        await server.call(move.leave(own_name(layout.partition(leaving)), "t", names[leaving][3:6]))
        store = RedisRecurrences(server, relay.carrier)
        for name in every:
            wanted = sorted([*names[name], f"{names[name][0]}~2"])
            assert await store.occurrences(layout, name) == wanted
        here = layout.partition(leaving)
        batch = await server.call(move.leave(own_name(here), "t", names[leaving][6:9]))
        await server.call(move.void(layout.filled(here), batch[0]))  # as if there were no room
        assert await store.occurrences(layout, leaving) == sorted([*names[leaving], f"{names[leaving][0]}~2"])


async def test_records_that_lack_a_part_move_too(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Somebody has removed a standing, or a look. The move ends; what can't be read is told where it is, and
    a put sets it right."""
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    wanted = {name: Recurrence(name, Rule(every=SECOND), b"x") for name in NAMES}
    async with Server(valkey.url, connections=1, timeout=60.0) as server:
        relay = Relay(server, topic, partitions=2)
        await relay.layouts.ask(topic)
        store = RedisRecurrences(server, relay.carrier)
        for name, each in wanted.items():
            assert await store.keep(relay.at(name), None, each, Standing(1, FIRST), FIRST, reason="put")
        layout = await relay.moves.begin(topic, 4)
        leaving = {name: own_name(layout.partition(name)) for name in NAMES if is_leaving(layout, name)}
        lacking = list(leaving)[::3]
        with valkey.client() as raw:
            for name in lacking:
                raw.hdel(server.keys.key("standings", leaving[name]), name)
            for name in list(leaving)[1::3]:
                raw.zrem(server.keys.key("ticks", leaving[name]), name)
        with anyio.fail_after(60):
            await relay.moves.run(layout, nothing)
        found = [await store.due(partition, 99) for partition in relay.layout.partitions]
        assert sorted(name for due in found for name in due.unread) == sorted(lacking)
        read = sorted(each.recurrence.recurrence_id for due in found for each in due.kept)
        assert read == sorted(set(NAMES) - set(lacking))
        name = lacking[0]
        assert (await store.get(relay.at(name), name))[1] is None
        assert await store.keep(relay.at(name), None, wanted[name], Standing(1, FIRST), FIRST, reason="put")


def is_leaving(layout: Layout, name: str) -> bool:
    return layout.partition(name).endswith(LEAVING)


def nominals(kept: StoredRecurrence) -> list[Nominal]:
    """The next instant, and the one behind it; after `MOST` none."""
    since = kept.standing.next
    if since is None:
        return []
    ahead = [Nominal(since, 0), Nominal(since + SECOND, 0)]
    return ahead if since < FIRST + (MOST - 1) * SECOND else ahead[:1]


async def nothing(_: int) -> None:
    """Of what has moved."""
