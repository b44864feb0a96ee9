"""Timers in bulk: topics that are known and woken, journals, scripts that the server forgot, turns."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, cast

import pytest

from relay.core.errors import StoreUnavailable
from relay.core.instants import to_score
from relay.core.journal import Journals, RecordKind
from relay.core.timers import NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BATCH, BulkStore
from relay.store.codec import envelope
from relay.store.journal.entries import JournalReader
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from relay.store.server.scripts import source
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.verbs import timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

LATER = 4_000_000_000_000_000


@pytest.fixture
def bulk(redis_server: RunningServer) -> Iterator[BulkStore]:
    with BulkStore(BlockingServer(redis_server.url)) as store:
        yield store


def rows(*ids: str, due: int = LATER) -> PackedRows:
    stored = [envelope.encode(b"x", {}, "")] * len(ids)
    return PackedRows.of(LoadRows(0, ids, range(due, due + len(ids)), stored, []))


def replace(store: BulkStore, topic: str, *batches: PackedRows) -> None:
    for each in batches:
        store.replace(topic, each)
    store.flush()


def test_relays_are_woken(redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore) -> None:
    """Once for each new head, and by nothing that is later; the topic is one that people are told of."""
    topic = keyspace.topic()
    with redis_server.client() as client, client.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe(KeyNames().channel(topic))
        ear.get_message(timeout=60.0)
        replace(bulk, topic, rows("a", "b", due=LATER + 10))
        replace(bulk, topic, rows("c", due=LATER + 20), rows("d", due=LATER + 5))
        replace(bulk, topic, rows("e", due=LATER + 5))
        client.publish(KeyNames().channel(topic), "end")
        heard: list[bytes] = []
        while not heard or heard[-1] != b"end":
            message = ear.get_message(timeout=60.0)
            if message is not None:
                heard.append(message["data"])
        assert [float(score) for score in heard[:-1]] == [to_score(LATER + 10), to_score(LATER + 5)]
        assert topic.encode() in cast("set[bytes]", client.smembers(KeyNames().topics))


@pytest.mark.parametrize("known", [True, False], ids=["by its settings", "by its stream"])
async def test_a_topic_with_a_journal(valkey: RunningServer, keyspace: Keyspace, known: bool) -> None:
    """Every timer has its record, where settings tell of the journal and where only its stream is there."""
    topic = keyspace.topic()
    journals = Journals(lambda _: 1000)
    redis = Server(valkey.url, connections=1, timeout=60.0, journals=journals)
    try:
        if not known:
            await RedisStore(redis).schedule(topic, [NewTimer("first", b"", due=LATER)])
        with BulkStore(BlockingServer(valkey.url, journals=journals if known else Journals())) as store:
            replace(store, topic, rows("a", "b"), rows("a", due=LATER + 1))
        noted = [
            record for each in await JournalReader(redis).read(topic, count=10) for record in each.records
        ]
    finally:
        await redis.aclose()
    told = [(record.kind, record.timer_id, record.due) for record in noted]
    assert told[0 if known else 1 :] == [
        (RecordKind.SCHEDULED, "a", LATER),
        (RecordKind.SCHEDULED, "b", LATER + 1),
        (RecordKind.REPLACED, "a", LATER + 1),
    ]


def test_a_script_that_the_server_forgot(
    redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore
) -> None:
    """It is sent again with its text."""
    with redis_server.client() as client:
        for _ in range(2):
            client.script_flush()
            assert bulk.call(timeline.page(keyspace.topic(), 1, "", b"")) == [b""]


def test_another_load_tells_the_server_its_script(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Race: the server does not know the script when a load's first batch reaches it. Another load tells it.
    Then the second batch arrives: the timer that is in both has the row of the second one."""
    topic = keyspace.topic()
    with valkey.client() as other, BulkStore(BlockingServer(valkey.url)) as bulk:
        bulk.register(topic)
        bulk.server.keep(topic)
        other.script_flush()
        bulk.replace(topic, rows("a", due=LATER))
        assert bulk.server._servers.lines[0]._connection.can_read(timeout=60.0), (
            "the first batch was answered"
        )
        other.script_load(source("bulk/replace"))
        replace(bulk, topic, rows("a", due=LATER + 1))
        assert other.zscore(KeyNames().key("timeline", topic), "a") == to_score(LATER + 1)


def test_a_server_that_is_away(keyspace: Keyspace) -> None:
    """Is unavailable, in words without the password."""
    with BulkStore(BlockingServer("redis://:geheim@127.0.0.1:1/0")) as store:
        with pytest.raises(StoreUnavailable) as refusal:
            store.connect()
        assert "geheim" not in str(refusal.value) + repr(store) + repr(store.server)


def test_loads_take_turns(redis_server: RunningServer, keyspace: Keyspace) -> None:
    """Two loads share the time that was given away; nobody waits by a clock of old."""
    keyspace.allow(KeyNames().pace)
    waits: list[float] = []
    with (
        BulkStore(BlockingServer(redis_server.url)) as one,
        BulkStore(BlockingServer(redis_server.url)) as two,
    ):
        paces = [Pace(store, 100.0, sleep=waits.append) for store in (one, two)]
        assert [pace.batch for pace in paces] == [10, 10]
        began = monotonic()
        for pace in (*paces, *paces):
            pace.turn(1000)  # ten seconds each
        with redis_server.client() as client:
            ttl = cast("int", client.pttl(KeyNames().pace)) / 1000
        took = monotonic() - began + 0.01  # on a busy machine seconds, of what is waited for
        for told, whole in zip([*waits, ttl], (10, 20, 30, 40), strict=True):
            assert whole - took <= told <= whole
        with redis_server.client() as client:
            client.set(KeyNames().pace, LATER)
        paces[0].turn(1)
        assert len(waits) == 3
        assert Pace(one, 1e6).batch == BATCH
        assert Pace(one, 0.5).batch == 1
