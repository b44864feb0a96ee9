"""What relays know of topics' partitions: who decides, who learns, and under which keys each part lies."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from relay.core.errors import OtherLayout, StoreRefused, WrongKeyType
from relay.core.journal import Journals
from relay.core.partitions import Layout
from relay.core.timers import NewTimer
from relay.store.keys import KeyNames
from relay.store.partitions.layouts import RedisLayouts
from relay.store.server.scripts import Call
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

LATER = 4_000_000_000_000_000


class GatedServer(Server):
    """Holds each script call back until the gate is open."""

    def __init__(self, url: str) -> None:
        super().__init__(url, connections=2, timeout=60.0)
        self.gate, self.came = anyio.Event(), anyio.Event()

    async def call(self, call: Call[Any]) -> Any:
        self.came.set()
        await self.gate.wait()
        return await super().call(call)


@pytest.fixture
async def two(redis_server: RunningServer) -> AsyncIterator[tuple[GatedServer, GatedServer]]:
    """The ways of two relays to one server."""
    async with GatedServer(redis_server.url) as one, GatedServer(redis_server.url) as other:
        yield one, other


async def in_order(
    servers: tuple[GatedServer, GatedServer], works: tuple[Callable[[], Awaitable[Any]], ...], first: int
) -> None:
    """Let both decide what to ask of Redis before either has asked, and one ask before the other."""
    ended = anyio.Event()

    async def do(number: int) -> None:
        await works[number]()
        if number == first:
            ended.set()

    async with anyio.create_task_group() as tasks:
        for number, server in enumerate(servers):
            tasks.start_soon(do, number)
            await server.came.wait()
        servers[first].gate.set()
        await ended.wait()
        servers[1 - first].gate.set()


# -------------------------------------------------------------------------------------- races


@pytest.mark.parametrize("first", [0, 1])
async def test_two_relays_with_different_settings(
    two: tuple[GatedServer, GatedServer], keyspace: Keyspace, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The first that comes decides for both, and the other one says in its log that its setting differs."""
    topic = keyspace.topic()
    counts = (4, 8)
    layouts = RedisLayouts(two[0], lambda _: counts[0]), RedisLayouts(two[1], lambda _: counts[1])
    assert [each.known(topic) for each in layouts] == [None, None]
    with caplog.at_level(logging.WARNING):
        await in_order(two, (lambda: layouts[0].ask(topic), lambda: layouts[1].ask(topic)), first)
        await layouts[1 - first].ask(topic)
    assert {each.known(topic) for each in layouts} == {Layout(topic, 1, counts[first])}
    (record,) = caplog.records
    told = vars(record)
    assert (told["topic"], told["partitions"], told["setting"]) == (topic, counts[first], counts[1 - first])


@pytest.mark.parametrize("first", [0, 1], ids=["a timer comes first", "the layout comes first"])
async def test_a_relay_that_presumes_one_partition(
    two: tuple[GatedServer, GatedServer], keyspace: Keyspace, first: int
) -> None:
    """Its first timer makes the topic one of one partition; behind the layout its timer is refused, and it
    knows the layout by then."""
    topic = keyspace.topic()
    presumes, begins = RedisLayouts(two[0]), RedisLayouts(two[1], lambda _: 4)
    heard: list[str] = []
    presumes.changed.append(heard.append)
    refusals: list[str] = []

    async def schedule() -> None:
        known = presumes.known(topic)
        assert known == Layout(topic)
        try:
            await RedisStore(two[0]).schedule(known.partition("a"), [NewTimer("a", b"x", LATER)])
        except OtherLayout as refusal:
            refusals.append(refusal.layout)

    await in_order(two, (schedule, lambda: begins.ask(topic)), first)
    if first == 0:
        assert (refusals, heard) == ([], [])
        assert begins.known(topic) == presumes.known(topic) == Layout(topic)
        return
    assert (refusals, heard) == (["1 4"], [topic])
    assert begins.known(topic) == presumes.known(topic) == Layout(topic, 1, 4)
    for name in Layout(topic, 1, 4).partitions:
        assert await RedisStore(two[1]).get(name, "a") is None


# ---------------------------------------------------------------------------------- what is known


async def test_what_has_changed_is_told_once(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Whoever has to know of a topic's partitions hears of new ones, and of nothing else."""
    topic, heard = keyspace.topic(), list[str]()
    async with Server(valkey.url, connections=2, timeout=60.0) as server:
        layouts = RedisLayouts(server, lambda _: 2)
        layouts.changed.append(heard.append)
        for _ in range(2):
            assert await layouts.ask(topic) == Layout(topic, 1, 2)
        layouts.learn(topic, "2 4")
        assert layouts.known(topic) == Layout(topic, 2, 4)
    assert heard == [topic, topic]


async def test_a_topic_that_is_in_use(
    valkey: RunningServer, keyspace: Keyspace, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on with one partition, whatever the setting says; the log says so."""
    topic = keyspace.topic()
    async with Server(valkey.url, connections=2, timeout=60.0) as server:
        await RedisStore(server).schedule(topic, [NewTimer("a", b"x", LATER)])
        layouts = RedisLayouts(server, lambda _: 4)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert await layouts.ask(topic) == Layout(topic)
    (record,) = caplog.records
    assert (vars(record)["partitions"], vars(record)["setting"]) == (1, 4)


async def test_redis_loses_a_layout(
    redis_server: RunningServer, keyspace: Keyspace, caplog: pytest.LogCaptureFixture
) -> None:
    """The race: the first partition's node loses what it held, and a relay goes on by the layout with the
    others. A relay that starts then finds all of them, once the other one has looked."""
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    async with Server(redis_server.url, connections=2, timeout=60.0) as server:
        old, new = RedisLayouts(server, lambda _: 4), RedisLayouts(server)
        layout = await old.ask(topic)
        with redis_server.client() as raw:
            raw.delete(f"timers_leases:{topic}")
        for name in layout.partitions[1:]:
            await RedisStore(server).schedule(name, [NewTimer("a", b"x", LATER)])
        with caplog.at_level(logging.WARNING):
            await old.look()
            await old.look()
        assert old.known(topic) == await new.ask(topic) == layout
        (record,) = caplog.records
        assert (vars(record)["topic"], vars(record)["partitions"]) == (topic, 4)


async def test_a_lost_layout_is_said_once(
    valkey: RunningServer, keyspace: Keyspace, caplog: pytest.LogCaptureFixture
) -> None:
    """It can't be brought back for now, since Redis is full for instance, or holds something else: each loss
    has one line."""
    topic = keyspace.topic()
    async with Server(valkey.url, connections=2, timeout=60.0) as server:
        layouts = RedisLayouts(server, lambda _: 4)
        layout = await layouts.ask(topic)
        for _ in range(2):
            with valkey.client() as raw, caplog.at_level(logging.WARNING):
                raw.set(f"timers_leases:{topic}", "no layout")
                for _ in range(3):
                    await layouts.look()
                raw.delete(f"timers_leases:{topic}")
                for _ in range(2):
                    await layouts.look()
        assert layouts.known(topic) == layout
    assert len(caplog.records) == 2


async def test_redis_has_another_layout(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Redis lost the first layout, and somebody began the topic anew, or it has one partition now: a look
    learns what there is."""
    topic = keyspace.topic()
    async with Server(valkey.url, connections=2, timeout=60.0) as server:
        layouts = RedisLayouts(server, lambda _: 4)
        await layouts.ask(topic)
        with valkey.client() as raw:
            raw.set(f"timers_leases:{topic}", "1 8")
            await layouts.look()
            assert layouts.known(topic) == Layout(topic, 1, 8)
            raw.delete(f"timers_leases:{topic}")
            raw.hset(f"timers_leases:{topic}", "a", "x")
        await layouts.look()
        assert layouts.known(topic) == Layout(topic)


@pytest.mark.parametrize("text", ["8", "1 3", "0 8", "1 8 2", "1 2048", "x y", "1 -8"])
async def test_a_text_that_is_no_layout(valkey: RunningServer, keyspace: Keyspace, text: str) -> None:
    """It is named with its key, and nothing is made of it."""
    topic = keyspace.topic()
    async with Server(valkey.url, connections=2, timeout=60.0) as server:
        layouts = RedisLayouts(server)
        with valkey.client() as raw:
            raw.set(f"timers_leases:{topic}", text)
        with pytest.raises(StoreRefused, match=f"timers_leases:{topic}: .*is not a layout"):
            await layouts.ask(topic)
        with pytest.raises((StoreRefused, WrongKeyType), match=f"timers_leases:{topic}"):
            await RedisStore(server).schedule(topic, [NewTimer("a", b"x", LATER)])
        assert layouts.known(topic) == Layout(topic)


async def test_partitions_share_the_length_of_a_journal(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Each keeps a part, so that all together keep no more. The count of what is dropped names the topic. A
    topic of one partition keeps all."""
    topic, single = keyspace.topic(), keyspace.topic()
    keyspace.allow(f"*{topic}*")
    dropped: list[tuple[str, int]] = []
    journals = Journals(lambda _: 8, lambda name, count: dropped.append((name, count)))
    async with Server(valkey.url, connections=2, timeout=60.0, journals=journals) as server:
        layout = await RedisLayouts(server, lambda name: 4 if name == topic else 1).ask(topic)
        for name in (layout.partitions[0], layout.partitions[3], single):
            for n in range(6):
                await RedisStore(server).schedule(name, [NewTimer(f"t{n}", b"x", LATER)])
    with valkey.client() as raw:
        lengths = [raw.xlen(f"timers_journal:{name}") for name in (topic, f"{topic}#3", single)]
    assert lengths == [2, 2, 6]
    assert (set(dropped), len(dropped)) == ({(topic, 1)}, 8)


# ------------------------------------------------------------------------------- names of keys


@pytest.mark.parametrize("tags", [False, True], ids=["plain", "tagged"])
def test_the_keys_of_partitions(tags: bool) -> None:
    """The first partition has the keys of a topic, but for its lease records, in whose place the layout lies;
    the others have names of their own. All keys of one are in one slot."""
    names = KeyNames(hash_tags=tags)
    zero, third, tenth = (Layout("orders", 2, 8, 16).partitions[n] for n in (0, 3, 10))
    tag, others = ("{orders}", "{orders#3}") if tags else ("orders", "orders#3")
    first, whole = names.of(zero), names.of("orders")
    assert (
        whole[2] == names.key("leases", "orders") == names.key("layout", "orders") == f"timers_leases:{tag}"
    )
    assert first[2] == names.key("leases", zero) == names.key("first", "orders") == f"timers_leases:{tag}#0"
    assert [*first[:2], *first[3:]] == [*whole[:2], *whole[3:]]
    assert names.channel(zero) == names.channel("orders")
    assert names.key("layout", zero) == names.key("layout", "orders")
    plain = [*names.of(third)[:2], *names.of(third)[3:], names.channel(third), names.key("layout", third)]
    assert all(key.endswith(f":{others}") for key in plain)
    assert names.of(third) == names.of(f"{third} leaving")
    assert names.of(third)[2] == f"timers_leases:{others}#3"
    assert names.key("move", third) == f"timers_leases:{others}#move"
    assert names.of(tenth)[2].endswith("{orders#10}#10" if tags else ":orders#10#10")
