"""A topic of several partitions is refused by its name, before anything of it is read or written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from relay.core.errors import InvalidField
from relay.pipeline.inputs import preflight
from relay.settings import load
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserting
from relay.store.bulk.scanning import cut
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loading
from relay.store.codec import envelope
from relay.store.server.blocking import BlockingServer

if TYPE_CHECKING:
    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

ROWS = PackedRows.of(LoadRows(0, ["a"], [4_000_000_000_000_000], [envelope.encode(b"x", {}, "")], []))
REFUSED = r"^topic: 'orders-\w+' has several partitions, and the pipeline can't work on such a topic yet"

WAYS: dict[str, Callable[[BlockingServer, str], object]] = {
    "replace": lambda server, topic: BulkStore(server).replace(topic, ROWS),
    "insert": lambda server, topic: Inserting(BulkStore(server), "run", spare=False).insert(topic, ROWS),
    "scan": lambda server, topic: cut(BulkStore(server), topic, 2),
    "sweep": lambda server, topic: Loading(server).open(topic, "1", "d", lock=1, ttl=1, epoch="e", store="s"),
    "retire": lambda server, topic: Loading(server).may_retire(topic, 1, "t"),
}


@pytest.fixture
def partitioned(valkey: RunningServer, keyspace: Keyspace) -> Iterator[str]:
    """A topic of eight partitions, which has nothing but its layout when the test is over."""
    topic = keyspace.topic("orders")
    with valkey.client() as raw:
        raw.set(f"timers_leases:{topic}", "1 8")
        yield topic
        assert raw.keys(f"*{topic}*") == [f"timers_leases:{topic}".encode()]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_into_redis(valkey: RunningServer, partitioned: str, way: str) -> None:
    with BlockingServer(valkey.url) as server, pytest.raises(InvalidField, match=REFUSED):
        WAYS[way](server, partitioned)


def test_before_spark_starts(valkey: RunningServer, partitioned: str) -> None:
    """A job that names the topic ends before it has cost a session."""
    settings = load(environ={"RELAY_REDIS__URL": valkey.url})
    with pytest.raises(InvalidField, match=REFUSED):
        preflight.check_redis(settings, partitioned)
