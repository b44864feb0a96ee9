"""Whole relays over a Cluster of three nodes that speak TLS: with each other, and with relays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.e2e.test_cluster import PATIENT, goes_on, handled
from tests.missing import need
from tests.servers import SYSTEM
from tests.store.test_tls import tls_config
from tests.tls import Authority
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.relay.processes import command
from tests.worlds.relay.producer import Load, code_of
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

THERE = "IP:127.0.0.1"
ELSEWHERE = "DNS:elsewhere"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    need("openssl")
    need("redis-server")
    return Authority(tmp_path)


@pytest.fixture
def cluster(authority: Authority, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Three masters, each with a certificate of its own for the host that the mark names."""
    hosts = iter(getattr(request, "param", (THERE, THERE, THERE)))

    def config() -> dict[str, str]:
        host = next(hosts)
        pair = authority.issue(f"node-{len(names)}", host)
        names.append(host)
        return tls_config(authority, pair)[1] | {"tls-cluster": "yes", "tls-replication": "yes"}

    names: list[str] = []
    with Cluster(SYSTEM, config=config) as cluster:
        yield cluster


def url_of(cluster: Cluster, authority: Authority) -> str:
    return f"{cluster.url}?ssl_ca_certs={authority.ca.certificate}"


def test_a_slot_moves_from_node_to_node(stage: Stage, cluster: Cluster, authority: Authority) -> None:
    """Timers at all nodes are scheduled and delivered through two relays, which follow a topic by MOVED from
    one node to the next: each timer is handled once, and no call fails but where a slot stood still."""
    topics = [cluster.topic_at(node) for node in cluster.nodes]
    relays = [stage.relay(name, PATIENT, url=url_of(cluster, authority)) for name in ("one", "two")]
    for relay in relays:
        stage.application(relay, topics, name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    with (
        Load(producers, topics[0], pause=0.01, name="moving") as moving,
        Load(producers, topics[1], pause=0.01, name="there") as there,
        Load(producers, topics[2], pause=0.01, name="too") as too,
    ):
        for n in (1, 2, 0):
            goes_on(stage, moving)
            cluster.move(topics[0], cluster.nodes[n])
        for load in (moving, there, too):
            goes_on(stage, load)
    assert there.refusals + too.refusals == Counter()
    handled(stage, moving, there, too)
    assert {name: times for name, times in stage.journal.ended().items() if times > 1} == {}


@pytest.mark.parametrize("cluster", [(THERE, THERE, ELSEWHERE)], indirect=True)
def test_a_node_with_another_hosts_certificate(stage: Stage, cluster: Cluster, authority: Authority) -> None:
    """It is taken for away, and the log says why; nothing is sent to it, not even where a slot has moved to
    it. Topics at the other nodes go on. A relay that is told of this node alone does not start."""
    first, _, stranger = cluster.nodes
    topic, away = cluster.topic_at(first), cluster.topic_at(stranger)
    relay = stage.relay(settings=PATIENT, url=url_of(cluster, authority))
    stage.application(relay, [topic, away])
    producer = stage.producer(relay)
    with Load([producer], topic, pause=0.01) as load:
        with pytest.raises(grpc.RpcError) as caught:
            producer.schedule(away, "refused", timeout=60.0)
        assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE
        goes_on(stage, load)
        assert load.refusals == Counter()
        cluster.move(topic, stranger)
        eventually(lambda: load.refusals[grpc.StatusCode.UNAVAILABLE], "it is not followed there")
        cluster.move(topic, first)
        goes_on(stage, load)
    handled(stage, load)
    told = [line for line in relay.lines() if line["message"].startswith("Redis is away")]
    # Where a call was sent on to it by MOVED, the line has the node that sent the call on.
    assert cluster.place_of(stranger) in {line["node"] for line in told}
    to = f"connecting to {cluster.place_of(stranger)}."
    assert all(to in line["reason"] and "for another host" in line["reason"] for line in told)
    assert cluster.tell(stranger, "EXISTS", f"timers_timeline:{{{away}}}") == 0
    alone = f"rediss+cluster://{cluster.place_of(stranger)}?ssl_ca_certs={authority.ca.certificate}"
    settings = {"RELAY_REDIS__URL": alone, "RELAY_REDIS__START_TIMEOUT": "1"}

    def is_told() -> bool:
        """Not by a start that has met no more than a server that was slow."""
        ran = command("serve", settings=settings)
        assert ran.code != 0
        return "is for another host: name in redis.url one that it lists" in ran.out + ran.err

    eventually(is_told, "it says what is wrong")
