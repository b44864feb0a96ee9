"""Timers in bulk: written as a relay would have, fenced, announced, journalled; refused whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from relay.core.errors import StoreFull, StoreUnavailable, WrongKeyType
from relay.core.instants import EXACT, SECOND, to_score
from relay.core.journal import Journals, RecordKind
from relay.core.outcomes import ClaimRequest, Verb, Verdict
from relay.core.timers import NewTimer
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BATCH, BATCH_BYTES, BulkStore, TimerBatch, _end, _scores
from relay.store.codec import envelope
from relay.store.journal.entries import JournalReader
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.verbs import timeline
from tests.settlements import end_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

LATER = 4_000_000_000_000_000
N1 = b"relay-1-nonce-01"


@pytest.fixture
def bulk(redis_server: RunningServer) -> Iterator[BulkStore]:
    with BulkStore(BlockingServer(redis_server.url)) as store:
        yield store


def batch(topic: str, ids: Sequence[str], due: int = LATER, payload: bytes = b"x") -> TimerBatch:
    stored = [envelope.encode(payload, {}, "")] * len(ids)
    return TimerBatch(topic, ids, [due + n for n in range(len(ids))], stored)


def state(server: RunningServer, topic: str) -> tuple[object, ...]:
    """Timeline, payloads and leases, whole."""
    timeline, payloads, leases, *_ = KeyNames().of(topic)
    with server.client() as client:
        return (
            client.zrange(timeline, 0, -1, withscores=True),
            client.hgetall(payloads),
            client.hgetall(leases),
        )


def write(store: BulkStore, *batches: TimerBatch) -> None:
    for each in batches:
        store.write(each)
    store.flush()


async def test_the_same_as_by_the_script(
    redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore
) -> None:
    """Scores, envelopes, records of what expires; ids that come twice, ids that live."""
    one, other = keyspace.topic(), keyspace.topic()
    rows = [
        ("a", LATER + 1, b"1", None),
        ("b", LATER + 7, b"2", LATER + SECOND),
        ("é", 1, b"", 0),
        ("b", LATER + 3, b"3", None),
        ("c", LATER, b"4", None),
        ("c", LATER + 1, b"5", LATER + 2),
        ("d", 253_402_300_799_000_000, b"6", 253_402_300_799_000_000),
    ]
    redis = Server(redis_server.url, connections=1, timeout=60.0)
    try:
        for topic in (one, other):
            store = RedisStore(redis)
            await store.schedule(topic, [NewTimer(name, b"old", due=1) for name in ("a", "b", "z")])
            await store.claim(topic, ClaimRequest(limit=2, lease=SECOND * 3600, nonce=N1, max_bytes=100))
        await RedisStore(redis).schedule(
            one, [NewTimer(name, body, due=due, expires=expires) for name, due, body, expires in rows]
        )
    finally:
        await redis.aclose()
    names, dues, bodies, expiries = zip(*rows, strict=True)
    stored = [envelope.encode(body, {}, "") for body in bodies]
    write(bulk, TimerBatch(other, names, dues, stored, expiries))

    assert state(redis_server, other) == state(redis_server, one)


async def test_a_token_of_before_is_worth_nothing(
    redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore
) -> None:
    """A timer is written anew while a relay delivers it: the late ACK is stale, the new intent stands."""
    topic = keyspace.topic()
    redis = Server(redis_server.url, connections=1, timeout=60.0)
    store = RedisStore(redis)
    try:
        await store.schedule(topic, [NewTimer("a", b"old", due=1)])
        await store.claim(topic, ClaimRequest(limit=1, lease=60 * SECOND, nonce=N1, max_bytes=100))
        write(bulk, batch(topic, ["a"], LATER))
        assert await store.settle(topic, [end_of("a", N1, Verb.ACK)]) == [Verdict.STALE]
        timer = await store.get(topic, "a")
        assert timer is not None
        assert (timer.due, timer.payload, timer.attempts) == (LATER, b"x", 0)
    finally:
        await redis.aclose()
    assert state(redis_server, topic)[2] == {}, "no record is left behind"


def test_relays_are_woken(redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore) -> None:
    """Once for each new head, and by nothing that is later; the topic is one that people are told of."""
    topic = keyspace.topic()
    with redis_server.client() as client, client.pubsub(ignore_subscribe_messages=True) as ear:
        ear.subscribe(KeyNames().channel(topic))
        ear.get_message(timeout=60.0)
        write(bulk, batch(topic, ["a", "b"], LATER + 10))
        write(bulk, batch(topic, ["c"], LATER + 20), batch(topic, ["d"], LATER + 5))
        write(bulk, batch(topic, ["e"], LATER + 5))
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
            write(store, batch(topic, ["a", "b"])._replace(expires=[None, LATER + 9]), batch(topic, ["a"]))
        noted = [
            record for each in await JournalReader(redis).read(topic, count=10) for record in each.records
        ]
    finally:
        await redis.aclose()
    told = [(record.kind, record.timer_id, record.due, record.expires) for record in noted]
    assert told[0 if known else 1 :] == [
        (RecordKind.SCHEDULED, "a", LATER, 0),
        (RecordKind.SCHEDULED, "b", LATER + 1, LATER + 9),
        (RecordKind.REPLACED, "a", LATER, 0),
    ]


def test_a_full_redis_refuses_the_whole(
    redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore
) -> None:
    """Neither timeline nor payloads has anything of a batch that is refused."""
    topic = keyspace.topic()
    write(bulk, batch(topic, ["a"]))
    before = state(redis_server, topic)
    with redis_server.client() as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(StoreFull):
                write(bulk, batch(topic, ["a", "b"], payload=b"new"))
        finally:
            client.config_set("maxmemory", "0")
    assert state(redis_server, topic) == before


@pytest.mark.parametrize("which", [0, 1, 2, 5])
def test_another_type_under_a_key(
    redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore, which: int
) -> None:
    """It is named before anything is written."""
    topic = keyspace.topic()
    key = KeyNames().of(topic)[which]
    with redis_server.client() as client:
        client.set(key, "x")
        with pytest.raises(WrongKeyType, match=f"{key} holds a string, not a"):
            bulk.write(batch(topic, ["a"]))
        assert client.keys(f"*:{topic}") == [key.encode()]


def test_a_script_that_the_server_forgot(
    redis_server: RunningServer, keyspace: Keyspace, bulk: BulkStore
) -> None:
    """It is sent again with its text."""
    with redis_server.client() as client:
        for _ in range(2):
            client.script_flush()
            assert bulk.call(timeline.page(keyspace.topic(), 1, "", b"")) == [b""]


@given(st.integers(0, EXACT - 1))
@example(EXACT - 1)
@example(999_999)
def test_scores_as_text(due: int) -> None:
    """What Redis reads is the score that everybody else computes."""
    scores, _ = _scores(TimerBatch("t", ["a"], [due], [b""]))
    assert [float(score) for score in scores] == [to_score(due)]


def test_batches_are_bounded() -> None:
    """By timers and by bytes, and each has one timer at least."""
    assert _end([b"x"] * 1000, 0) == BATCH
    assert _end([b"x"] * 1000, 900) == 1000
    big = bytes(BATCH_BYTES // 2)
    assert _end([big, big, b"x"], 0) == 2
    assert _end([bytes(2 * BATCH_BYTES), b"x"], 0) == 1


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
        for pace in (*paces, *paces):
            pace.turn(1000)  # ten seconds each
        assert [round(wait) for wait in waits] == [10, 20, 30]
        with redis_server.client() as client:
            ttl = cast("int", client.pttl(KeyNames().pace))
            assert 30_000 < ttl <= 40_000
            client.set(KeyNames().pace, LATER)
        paces[0].turn(1)
        assert len(waits) == 3
        assert Pace(one, 1e6).batch == BATCH
        assert Pace(one, 0.5).batch == 1
