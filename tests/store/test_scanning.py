"""A topic in parts: even, complete, and each timer once, wherever it stands."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING

import pytest

from relay.core.instants import SECOND
from relay.core.outcomes import ClaimRequest
from relay.core.timers import NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.scanning import LEAST, TopicSlice, cut, read
from relay.store.bulk.store import BATCH, BulkStore
from relay.store.codec import envelope, lease_record
from relay.store.server.blocking import BlockingServer
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

LATER = 4_000_000_000_000_000
COUNT = 3 * LEAST + 17


@pytest.fixture
def store(valkey: RunningServer) -> Iterator[BulkStore]:
    with BulkStore(BlockingServer(valkey.url)) as store:
        yield store


def fill(store: BulkStore, topic: str, *, step: int) -> list[str]:
    """Timers a `step` (microseconds) apart; 0: all at one instant."""
    ids = [f"t-{n:05d}" for n in range(COUNT)]
    stored = [envelope.encode(name.encode(), {}, "") for name in ids]
    write(store, topic, LoadRows(0, ids, [LATER + n * step for n in range(COUNT)], stored, []))
    return ids


def write(store: BulkStore, topic: str, rows: LoadRows) -> None:
    for start in range(0, len(rows.timer_ids), BATCH):
        part = slice(start, start + BATCH)
        some = LoadRows(0, rows.timer_ids[part], rows.due[part], rows.envelopes[part], [])
        store.replace(topic, PackedRows.of(some))
    store.flush()


def names(store: BulkStore, part: TopicSlice) -> list[str]:
    return [name.decode() for page in read(store, part, envelopes=False) for name in page.timer_ids]


@pytest.mark.parametrize("step", [0, 1000], ids=["one instant", "many"])
def test_parts_are_even_and_complete(store: BulkStore, keyspace: Keyspace, step: int) -> None:
    """Three parts of a topic, in its order, also where all timers share a score."""
    topic = keyspace.topic()
    ids = fill(store, topic, step=step)
    parts = cut(store, topic, 3)
    found = [names(store, part) for part in parts]
    assert [len(each) for each in found] == [2005, 2006, 2006]
    assert list(chain(*found)) == ids
    assert len(cut(store, topic, 100)) == 3, "a part has at least LEAST timers"


def test_a_topic_that_shrinks_while_it_is_read(
    valkey: RunningServer, store: BulkStore, keyspace: Keyspace
) -> None:
    """What stays is read once, though all ranks have moved since the cut."""
    topic = keyspace.topic()
    ids = fill(store, topic, step=0)
    parts = cut(store, topic, 3)
    with valkey.client() as client:
        client.zrem(store.server.keys.of(topic)[0], *ids[:LEAST], *ids[LEAST::2])
    assert list(chain(*(names(store, part) for part in parts))) == ids[LEAST + 1 :: 2]


def test_envelopes_and_records_come_along(store: BulkStore, keyspace: Keyspace) -> None:
    """In pages that are bounded by bytes; a payload that is missing is None."""
    topic = keyspace.topic()
    stored = [envelope.encode(bytes([n]) * 400_000, {}, "") for n in range(5)]
    write(store, topic, LoadRows(0, list("abcde"), [LATER] * 5, stored, []))
    store.server.ask("HDEL", store.server.keys.of(topic)[1], "c")
    pages = list(read(store, TopicSlice(topic), envelopes=True))
    assert [page.timer_ids for page in pages] == [[b"a", b"b", b"c"], [b"d", b"e"]]
    assert [held for page in pages for held in page.envelopes] == [*stored[:2], None, *stored[3:]]
    assert all(lease_record.due_of(record) == LATER for page in pages for record in page.records)


async def test_by_due_time(valkey: RunningServer, store: BulkStore, keyspace: Keyspace) -> None:
    """What is due then is found where it stands, and where a lease has put it; each once. What stands
    there and was due before comes along."""
    topic = keyspace.topic()
    redis = Server(valkey.url, connections=1, timeout=60.0)
    try:
        relay = RedisStore(redis)
        due = {"leased": 2, "early": 1, "late": LATER, "first": LATER + SECOND, "expires": LATER + 1}
        await relay.schedule(
            topic,
            [
                NewTimer(name, b"", due=at, expires=LATER * 2 if name == "expires" else None)
                for name, at in due.items()
            ],
        )
        await relay.claim(topic, ClaimRequest(limit=2, lease=3600 * SECOND, nonce=b"n" * 16, max_bytes=100))
    finally:
        await redis.aclose()

    def found(low: int, high: int | None) -> list[str]:
        return sorted(
            name for part in cut(store, topic, 2, low=low, high=high) for name in names(store, part)
        )

    assert found(2, LATER) == ["early", "leased"]
    assert found(0, LATER + 1) == ["early", "late", "leased"]
    assert found(LATER, LATER + 2) == ["expires", "late"]
    assert found(LATER, None) == ["expires", "first", "late"]
    assert found(0, None) == sorted(due)
    assert found(LATER + 1, LATER + 1) == []


def test_places_are_in_order(store: BulkStore, keyspace: Keyspace) -> None:
    """Each part begins where the one before ends."""
    topic = keyspace.topic()
    fill(store, topic, step=1)
    parts = cut(store, topic, 3)
    assert all(one.until == other.after for one, other in pairwise(parts))
    assert (parts[0].after, parts[-1].until) == (None, None)
