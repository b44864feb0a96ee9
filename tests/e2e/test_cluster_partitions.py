"""Whole relays and a topic of eight partitions, over a Cluster of three nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import grpc
import pytest

from relay.core.partitions import Layout, place_of
from relay.store.keys import KeyNames
from tests.servers import RunningServer
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.relay.processes import command
from tests.worlds.relay.producer import code_of
from tests.worlds.relay.restless import Restless
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

ON_DISK = {"appendonly": "yes", "appendfsync": "always"}

EIGHT = {"RELAY_DEFAULTS__PARTITIONS": "8", "RELAY_REDIS__WRITE_TTL": "10"}
"""A write has ten seconds, so that on a busy machine no call is given up that only had to wait."""

LAID = KeyNames(hash_tags=True)
LAYOUT = Layout.parse("orders", "1 8")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three masters, which forget nothing that they have answered."""
    with Cluster(config=ON_DISK) as cluster:
        yield cluster


def homes(cluster: Cluster) -> dict[str, RunningServer]:
    """The node of each partition."""
    found = {name: cluster.owner_of(place_of(name).removesuffix("#0")) for name in LAYOUT.partitions}
    return {name: node for name, node in found.items() if node is not None}


def is_empty(cluster: Cluster, node: RunningServer, partition: str) -> bool:
    """Whether a partition has no timer."""
    return bool(cluster.tell(node, "ZCARD", LAID.key("timeline", partition)) == 0)


def ids(prefix: str, count: int, partitions: set[str] | None = None) -> list[str]:
    """Ids of timers, all in some of the partitions."""
    wanted = partitions or set(LAYOUT.partitions)
    names = (f"{prefix}-{n}" for n in range(100 * count))
    return [name for name in names if LAYOUT.partition(name) in wanted][:count]


def test_a_topic_spreads_over_the_nodes(stage: Stage, cluster: Cluster) -> None:
    """Timers that are scheduled through two relays end once each, and each partition has had some of them."""
    relays = [stage.relay(name, EIGHT, url=cluster.url) for name in ("one", "two")]
    for relay in relays:
        stage.application(relay, "orders", name=f"app-{relay.name}")
    for number, relay in enumerate(relays):
        stage.producer(relay).schedule_many("orders", ids(f"timer{number}", 500), spread=1.0)
    expected = {*ids("timer0", 500), *ids("timer1", 500)}
    eventually(lambda: expected <= stage.journal.ended().keys(), "all are handled", 200.0)
    assert stage.journal.ended().most_common(1)[0][1] == 1
    owners = homes(cluster)
    assert len({node.port for node in owners.values()}) == 3
    for partition, node in owners.items():
        eventually(partial(is_empty, cluster, node, partition), partition)
        assert cluster.tell(node, "XLEN", LAID.key("journal", partition)) > 0
    first = owners[LAYOUT.partitions[0]]
    assert cluster.text(first, "GET", "timers_leases:{orders}") == "1 8"


def test_a_node_dies_and_other_partitions_go_on(stage: Stage, cluster: Cluster) -> None:
    """Calls about them work, their timers come, and the rest of the topic comes once the node is back."""
    relay = stage.relay(settings=EIGHT, url=cluster.url)
    stage.application(relay, "orders")
    producer = stage.producer(relay)
    producer.schedule_many("orders", ["first"])
    eventually(lambda: "first" in stage.journal.ended(), "the topic has its layout")
    owners = homes(cluster)
    dying = owners[LAYOUT.partitions[3]]
    gone = {name for name, node in owners.items() if node is dying}
    there = set(owners) - gone
    kept, later = ids("kept", 40, gone), ids("later", 200, there)
    producer.schedule_many("orders", kept, delay=5.0)
    dying.kill()
    with pytest.raises(grpc.RpcError) as caught:
        producer.schedule("orders", ids("refused", 1, gone)[0], timeout=60.0)
    assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE
    producer.schedule_many("orders", later)
    eventually(lambda: set(later) <= stage.journal.ended().keys(), "the others' timers are handled", 200.0)
    assert relay.probe("/healthz/ready") == 200
    assert stage.journal.ended().keys() & set(kept) == set()
    dying.start()
    eventually(lambda: set(kept) <= stage.journal.ended().keys(), "what the node held is handled", 200.0)


def test_partitions_move_between_nodes(stage: Stage, cluster: Cluster) -> None:
    """A topic of two gets eight, beside a caller who schedules, moves and cancels timers; all are handled."""
    settings = {**EIGHT, "RELAY_DEFAULTS__PARTITIONS": "2", "RELAY_DEFAULTS__JOURNAL": "false"}
    relay = stage.relay(settings=settings, url=cluster.url)
    stage.application(relay, "orders")
    producer = stage.producer(relay)
    far = ids("far", 800)
    producer.schedule_many("orders", far, delay=7200.0)
    options = ("--partitions", "8", "--json", "--target", relay.target)
    with Restless([producer], "orders", seed=1) as caller:
        moved = command("topics", "reshard", "orders", *options, timeout=300.0)
        assert (moved.code, moved.documents[0]["partitions"]) == (0, 8), moved.err
    for partition, node in homes(cluster).items():
        assert not is_empty(cluster, node, partition)
    producer.schedule_many("orders", far)
    expected = {*far, *caller.wanted}
    eventually(lambda: expected <= stage.journal.ended().keys(), "all are handled", 200.0)
    assert not caller.unwanted & stage.journal.ended().keys()
    for partition, node in homes(cluster).items():
        eventually(partial(is_empty, cluster, node, partition), partition)


def test_a_relay_that_is_told_another_number(stage: Stage, cluster: Cluster) -> None:
    """It learns from Redis how many partitions there are, in the middle of its calls and deliveries."""
    told = stage.relay("told", EIGHT, url=cluster.url)
    untold = stage.relay("untold", {"RELAY_REDIS__WRITE_TTL": "10"}, url=cluster.url)
    stage.application(untold, "orders")
    stage.producer(told).schedule_many("orders", ids("told", 100))
    stage.producer(untold).schedule_many("orders", ids("untold", 100))
    expected = {*ids("told", 100), *ids("untold", 100)}
    eventually(lambda: expected <= stage.journal.ended().keys(), "all are handled", 200.0)
    assert stage.journal.ended().most_common(1)[0][1] == 1
