"""A server that evicts keys with a time to live: which keys have one, and what the loss of each costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from relay.core.dispatch import Dispatch
from relay.core.errors import StoreFull
from relay.core.outcomes import Verb, Verdict
from relay.core.partitions import Layout
from relay.core.timers import NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserting
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Fenced, Loading, Marks
from relay.store.codec import envelope
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.keyspace import Keyspace, keys_of
from tests.servers import RunningServer
from tests.settlements import end_of
from tests.store.test_acl import JOURNALS, dispatched, people, verbs
from tests.worlds.scripts.bench import Bench
from tests.worlds.scripts.desk import BILLING, Desk

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "redis.md"
ROOT = Path(__file__).parents[2]
SECOND = 1_000_000
MINUTE = 60 * SECOND
LATER = 4_000_000_000_000_000
N1 = b"relay-1-nonce-01"

LATEST = "timers_group:{group}:{consumer}"
TIMED = {
    "timers_pause",
    "timers_topics:janitor",
    "timers_topics:pace",
    "timers_retiring",
    "timers_ledger",
    LATEST,
}
"""The kinds of keys that may be given a time to live. None of them holds a timer. What keeps one from coming
back has none either, but for the ledger of a load, whose owner may repeat it or not."""

SETTING = re.compile(r"""['"](?:P?EXPIRE(?:AT)?|P?SETEX|GETEX|PX|EX|PXAT|EXAT)['"]""")
"""How a command says that a key is to have a time to live."""

pytestmark = pytest.mark.checkout


class Watch:
    """What happens to keys, as the server tells it: an event, and the key's kind."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.psubscribe("__keyevent@0__:*", "the end")
        assert self._pubsub.get_message(timeout=60.0) is None

    def seen(self) -> set[tuple[str, str]]:
        """All until now."""
        self._client.publish("the end", "")
        found: set[tuple[str, str]] = set()
        while True:
            message = self._pubsub.get_message(timeout=60.0)
            if message is None:
                continue
            if message["channel"] == b"the end":
                return found
            key = message["data"].decode()
            found.add((message["channel"].decode().partition(":")[2], kind_of(key)))


def kind_of(key: str) -> str:
    """The key without its topic; of locks, which have none, the whole. A group's consumer has a kind of its
    own."""
    prefix, _, rest = key.partition(":")
    if prefix == KeyNames().latest and rest.count(":") == 2:
        return LATEST
    return key if prefix == KeyNames().topics and rest else prefix


@contextmanager
def watched(server: RunningServer) -> Iterator[Watch]:
    with server.client() as client:
        client.config_set("notify-keyspace-events", "KEA")
        try:
            yield Watch(client)
        finally:
            client.config_set("notify-keyspace-events", "")


async def everything(url: str) -> None:
    """All that relays, loads and sweeps do in Redis."""
    async with Server(url, connections=2, timeout=60.0, journals=JOURNALS) as server:
        store = RedisStore(server)
        await verbs(store)
        await people(store, RedisTopics(server))
    for dispatch in (Dispatch.LIST, Dispatch.STREAM):
        assert await dispatched(url, dispatch) == []
    with BulkStore(BlockingServer(url, journals=JOURNALS)) as bulk:
        Pace(bulk, 1e6).turn(1)
        loading = Loading(bulk.server)
        epoch = loading.open("t", "1", "d", lock=SECOND, ttl=60, epoch="e", store="s")
        loading.load(Marks(Layout("t"), str(epoch), "1"), rows("a", "b"))
        loading.flush()
        loading.may_retire(Layout("t"), 2, "w")
        assert loading.retire("t", 2, "w", ["a", "b"]) == 2
        loading.has_retired(Layout("t"), 2)
        assert loading.close(Layout("t"), "1", "d")
        inserting = Inserting(bulk, "run")
        inserting.insert("t", rows("c"))
        inserting.flush()


def rows(*timer_ids: str, batch: int = 0) -> PackedRows:
    size = len(timer_ids)
    stored = envelope.encode(b"x", {}, "")
    return PackedRows.of(LoadRows(batch, timer_ids, [LATER] * size, [stored] * size, [1]))


async def test_no_key_that_holds_timers_has_a_time_to_live(
    redis_server: RunningServer, keyspace: Keyspace
) -> None:
    """While everything is done that Relay does, the server tells of each key that is written, and of each
    that is given a time to live, however short."""
    keyspace.adopt("t")
    keyspace.allow("timers_topics:*")
    with watched(redis_server) as watch:
        await everything(redis_server.url)
        seen = watch.seen()
    names = KeyNames()
    kinds = {getattr(names, each.name) for each in fields(names) if each.name not in ("wake", "hash_tags")}
    assert {kind for _, kind in seen if ":" not in kind} == kinds, "a kind of key that nothing here writes"
    assert {kind for event, kind in seen if event == "expire"} == TIMED


def test_the_page_lists_them() -> None:
    table = re.search(
        r"These keys have a time to live.*?\n\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert table
    listed = set(re.findall(r"^\| `(.*?)(?::\{run\})?(?::\{topic\}|:…)?` \|", table[1], re.MULTILINE))
    assert listed == TIMED | {"timers_topics:doctor"}


def test_nothing_else_sets_one() -> None:
    """Whoever writes such a command finds this test: the key belongs into `everything`, and on the page."""
    files = [*(ROOT / "lua").rglob("*.lua"), *(ROOT / "relay").rglob("*.py")]
    setting = {file.name for file in files if SETTING.search(file.read_text(encoding="utf-8"))}
    assert setting == {
        "apply.lua",
        "claim.lua",
        "cold.lua",  # each sweep writes its counts again
        "insert.lua",
        "inserting.py",
        "pause.lua",
        "pace.lua",
        "probe.lua",  # of a key that it removes itself
        "sweeping.py",
        "tell_pause.lua",
        "topics.py",
    }


@pytest.mark.every_server
async def test_an_eviction_spares_every_timer(redis_server: RunningServer, keyspace: Keyspace) -> None:
    """A full server with the policy `volatile-lru` drops what has a time to live, and refuses what is new as
    any full server does. Nothing of a timer is touched, and timers drain."""
    bench = Bench(redis_server, keyspace.topic())
    try:
        bench.put("a", 1.0)
        bench.put("b", 1.0)
        await bench.claim(N1, limit=1)
        await bench.topics.pause(bench.topic, duration=3600 * SECOND)
        bench.raw.expire(bench.pause, 3600)  # as the script does by the server's own clock
        bench.loading.may_retire(Layout(bench.topic), 20, "w")
        bench.turn(SECOND)
        marks = bench.open()
        before = bench.state()._replace(pause=None)
        bench.raw.config_set("maxmemory-policy", "volatile-lru")
        with bench.full():
            with pytest.raises(StoreFull):
                await bench.store.schedule(bench.topic, [NewTimer("c", b"x", due=LATER)])
            left = {kind_of(key) for key in keys_of(redis_server) if bench.raw.ttl(key) != -1}
            assert left == set()
            assert bench.state() == before
            assert await bench.claimed(b"relay-1-nonce-02") == ["b"], "the pause is over"
            end = end_of("a", N1, Verb.ACK)
            assert await bench.store.settle(bench.topic, [end]) == [Verdict.OK]
        assert bench.load(marks, "a", "c").loaded == 1, "the marks are there, and say that one is over"
    finally:
        bench.raw.config_set("maxmemory-policy", "noeviction")
        await bench.close()


async def lose_latest(desk: Desk) -> None:
    one = desk.reader()
    await one.claim()
    desk.raw.xadd(desk.stream, {"timer_id": "e"})
    assert await one.names() == list((await one.find()).timers.timer_ids) == ["e"]
    desk.raw.delete(one.latest())
    assert list((await one.find()).timers) == []
    one.idle(30.0)
    assert await one.names() == ["e"]
    await desk.close()


async def test_what_the_loss_of_each_costs(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Each is deleted at the moment at which somebody relies on it."""
    bench = Bench(valkey, keyspace.topic())
    keyspace.allow("timers_topics:*")
    names = KeyNames()
    try:
        # A pause, before the claim that it holds up.
        bench.put("a", 1.0)
        await bench.topics.pause(bench.topic)
        assert await bench.claimed(N1) == []
        bench.raw.delete(bench.pause)
        assert await bench.claimed(N1) == ["a"]
        # A lock, while its owner is at work.
        assert await bench.topics.lock("janitor", ttl=60 * SECOND)
        assert not await bench.topics.lock("janitor", ttl=60 * SECOND)
        bench.raw.delete(f"{names.topics}:janitor")
        assert await bench.topics.lock("janitor", ttl=60 * SECOND)
        # A load's ledger, before the load is repeated.
        inserting = Inserting(bench.bulk, "run")
        for inserted in (1, 1, 2):
            inserting.insert(bench.topic, rows("d"))
            inserting.flush()
            assert inserting.done.inserted == inserted
            if inserting.done.known:
                bench.raw.delete(names.key("ledger", bench.topic, run="run"))
        await bench.store.cancel(bench.topic, ["d"])
        # The time that loads have given away; the server's own clock ends it, on a busy machine too soon.
        assert [bench.turn(MINUTE), bench.turn(MINUTE)] == [0, MINUTE]
        bench.raw.delete(bench.pace)
        assert bench.turn(MINUTE) == 0
        # What a group's consumer has claimed, before the relay asks for it: it waits for its lease's end.
        await lose_latest(Desk(valkey, bench.topic, BILLING))
        # A permit, between two batches of who has it: nothing is removed until it has asked anew.
        bench.loading.may_retire(Layout(bench.topic), 20, "w")
        bench.raw.delete(names.key("retiring", bench.topic))
        with pytest.raises(Fenced):
            bench.loading.retire(bench.topic, 20, "w", ["a"])
        assert set(bench.state().timeline) == {"a"}
        assert bench.retire("a") == 1
    finally:
        await bench.close()
