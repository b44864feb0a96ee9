"""Whole relays over a Cluster of three nodes: nodes die and come back, slots move, replicas take over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import cast

import grpc
import pytest

from tests.chaos import in_long
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.relay.producer import Load, code_of
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import eventually

pytestmark = pytest.mark.slow

ON_DISK = {"appendonly": "yes", "appendfsync": "always"}

PATIENT = {"RELAY_REDIS__WRITE_TTL": "10"}
"""Seconds: on a busy machine no call is given up that only had to wait."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three masters, which forget nothing that they have answered."""
    with Cluster(config=ON_DISK) as cluster:
        yield cluster


def handled(stage: Stage, *loads: Load) -> None:
    """Wait until all that was accepted has been handled."""
    accepted = {name for load in loads for name in load.accepted}
    eventually(lambda: accepted <= stage.journal.ended().keys(), "all that was accepted is handled", 200.0)


def goes_on(stage: Stage, load: Load, timers: int = 30) -> None:
    """Wait until `timers` further timers of a load are accepted and handled."""
    first = len(load.accepted)
    eventually(lambda: len(load.accepted) >= first + timers, "more is accepted")
    more = set(load.accepted[first : first + timers])
    eventually(lambda: more <= stage.journal.ended().keys(), "more is handled")


def settled(cluster: Cluster, topic: str) -> bool:
    """Whether nothing of a topic is left but its journal."""
    node = cluster.owner_of(topic)
    assert node
    keys = cast("list[bytes]", cluster.tell(node, "KEYS", f"*{{{topic}}}*"))
    return {key.partition(b":")[0] for key in keys} <= {b"timers_journal"}


@pytest.mark.parametrize("which", [0, *in_long([1, 2])])
def test_a_node_dies_while_the_others_go_on(stage: Stage, cluster: Cluster, which: int) -> None:
    """Timers on the other nodes are scheduled, delivered and settled all the while, through two relays, which
    stay ready; no call about them fails. What the node held is delivered when it is back. One of the nodes
    has what belongs to no topic, too."""
    dying = cluster.nodes[which]
    first, second = (node for node in cluster.nodes if node is not dying)
    away, there, too = cluster.topic_at(dying), cluster.topic_at(first), cluster.topic_at(second)
    relays = [stage.relay(name, PATIENT, url=cluster.url) for name in ("one", "two")]
    for relay in relays:
        stage.application(relay, [away, there, too], name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    kept = {f"kept-{n}" for n in range(50)}
    producers[0].schedule_many(away, sorted(kept), delay=5.0)
    with (
        Load(producers, there, pause=0.01, name="there") as one,
        Load(producers, too, pause=0.01, name="too") as other,
    ):
        goes_on(stage, one)
        goes_on(stage, other)
        dying.kill()
        for producer in producers:
            with pytest.raises(grpc.RpcError) as caught:
                producer.schedule(away, "refused", timeout=60.0)
            assert code_of(caught.value) is grpc.StatusCode.UNAVAILABLE
        for load in (one, other):
            goes_on(stage, load, 100)
        for relay in relays:
            assert relay.health() == "SERVING"
            assert relay.probe("/healthz/ready") == 200
        dying.start()
        eventually(lambda: kept <= stage.journal.ended().keys(), "what the node held is delivered")
        for load in (one, other):
            goes_on(stage, load)
    assert (one.refusals, other.refusals) == (Counter(), Counter())
    handled(stage, one, other)
    producers[1].schedule(away, "again")
    eventually(lambda: "again" in stage.journal.ended(), "its topics go on")
    for topic in (away, there, too):
        eventually(partial(settled, cluster, topic), f"{topic} is settled")
    told = [line for line in relays[0].lines() if line["message"].startswith("Redis is away")]
    assert {line["node"] for line in told} == {cluster.place_of(dying)}


def test_slots_move_under_load(stage: Stage, cluster: Cluster) -> None:
    """By both ways, to and fro: every timer is handled once, and no call fails where the server hands the
    slot over by itself."""
    topic = cluster.topic_at(cluster.nodes[0])
    relays = [stage.relay(name, PATIENT, url=cluster.url) for name in ("one", "two")]
    for relay in relays:
        stage.application(relay, topic, name=f"app-{relay.name}")
    producers = [stage.producer(relay) for relay in relays]
    with Load(producers, topic, {"sleep": 0.01}, pause=0.005) as load:
        for n in range(1, 7):
            goes_on(stage, load)
            cluster.migrate(topic, cluster.nodes[n % 3])
        assert load.refusals == Counter()
        for n in range(1, 7):
            goes_on(stage, load)
            cluster.move(topic, cluster.nodes[n % 3])
        goes_on(stage, load)
    handled(stage, load)
    eventually(lambda: settled(cluster, topic), "all is settled")
    assert {name: times for name, times in stage.journal.ended().items() if times > 1} == {}


def test_a_slot_that_stays_on_its_way(stage: Stage, cluster: Cluster) -> None:
    """Its topics stand still, by calls that are given up and had no effect; another topic on the same node
    goes on at its pace, and nobody says that Redis is away. All goes on once the move is over."""
    source, target = cluster.nodes[:2]
    moving, beside = cluster.topic_at(source), cluster.topic_at(source)
    # The longer a call may wait, the busier may the machine be that is not taken for a Redis that is away.
    relay = stage.relay(settings={"RELAY_REDIS__WRITE_TTL": "4"}, url=cluster.url)
    stage.application(relay, [moving, beside])
    producer = stage.producer(relay)
    with (
        Load([producer], moving, pause=0.01, name="moving") as held,
        Load([producer], beside, pause=0.01, name="beside") as other,
    ):
        goes_on(stage, held)
        cluster.begin_move(moving, source, target)
        eventually(lambda: held.refusals[grpc.StatusCode.UNAVAILABLE] > 1, "its calls are given up")
        goes_on(stage, other, timers=150)  # in one lane with what stands still it was one in two seconds
        assert relay.probe("/healthz/ready") == 200
        while cluster.carry(moving, source, target):
            pass
        cluster.end_move(moving, target)
        goes_on(stage, held)
    handled(stage, held, other)
    for topic in (moving, beside):
        eventually(partial(settled, cluster, topic), f"{topic} is settled")
    assert relay.said("Redis is away") == 0


def test_a_replica_takes_over_under_load(stage: Stage) -> None:
    """First by agreement, without a call that fails; then because the master dies: the topic goes on at the
    replica, and what the replica had is delivered."""
    with Cluster(replicas=1) as cluster:
        (master, *_), ((replica,), *_) = cluster.nodes, cluster.replicas
        topic, other = cluster.topic_at(master), cluster.topic_at(cluster.nodes[1])
        relay = stage.relay(settings=PATIENT, url=cluster.url)
        stage.application(relay, [topic, other])
        producer = stage.producer(relay)
        with Load([producer], other, pause=0.01, name="other") as beside:
            with Load([producer], topic, pause=0.01, name="agreed") as agreed:
                goes_on(stage, agreed)
                cluster.fail_over(replica)
                goes_on(stage, agreed)
            assert agreed.refusals == Counter()
            handled(stage, agreed)
            kept = {f"kept-{n}" for n in range(50)}
            producer.schedule_many(topic, sorted(kept), delay=5.0)
            eventually(lambda: cluster.tell(replica, "WAIT", 1, 500) == 1, "the other one has them")
            replica.kill()
            eventually(lambda: kept <= stage.journal.ended().keys(), "what was kept is delivered")
            producer.schedule(topic, "again")
            eventually(lambda: "again" in stage.journal.ended(), "the topic goes on")
        assert beside.refusals == Counter()
        handled(stage, beside)
