"""relay doctor on the nodes of a Cluster: what each has and holds, and where that is out of proportion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from relay.cli.daemon import doctor_nodes
from relay.cli.daemon.doctor_findings import Finding
from relay.core.dispatch import Dispatch
from relay.core.instants import SECOND
from relay.core.partitions import Layout, place_of
from relay.core.policy import TopicPolicy
from relay.core.timers import TopicStats
from relay.store.census import Counted
from relay.store.examine import ServerFacts
from tests.cli.doctored import AOF, WELL, server
from tests.servers import RunningServer
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.waiting import eventually

LATER = 4_000_000_000
NOW = 1_700_000_000 * SECOND


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three masters."""
    with Cluster(config=AOF) as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[list[RunningServer]]:
    """The same, empty again afterwards."""
    yield cluster.nodes
    for node in cluster.nodes:
        with node.client() as client:
            client.config_set("maxmemory", 0)
            client.flushall()


def fill(node: RunningServer, topic: str, timers: int, due: float = LATER) -> None:
    """Timers of a topic or a partition, at its node; `due` in seconds since 1970."""
    with node.client() as client:
        client.zadd(f"timers_timeline:{{{topic}}}", {f"t-{n}": due for n in range(timers)})


def info(node: RunningServer, section: str) -> dict[str, Any]:
    with node.client() as client:
        return cast("dict[str, Any]", client.info(section))


@pytest.mark.slow
def test_what_each_node_has(doctor: Any, cluster: Cluster, nodes: list[RunningServer]) -> None:
    """Address, slots, memory and replicas, the partitions with their timers; and the hottest of all."""
    topics = [cluster.topic_at(node) for node in nodes]
    fill(nodes[0], topics[0], 5)
    fill(nodes[1], topics[1], 3)
    cluster.tell(nodes[0], "ZADD", f"timers_timeline:{{{topics[0]}}}", str(time.time() - 5), "late")
    seen = doctor(cluster.url, topics={topic: {} for topic in topics})
    assert (seen.code, seen.results("wrong"), seen.results("note")) == (0, [], [])
    lines = {line["node"]: line for line in seen.all_of("nodes")}
    assert lines.keys() == {cluster.place_of(node) for node in nodes}
    first, second, third = (lines[cluster.place_of(node)] for node in nodes)
    assert [line["slots"] for line in (first, second, third)] == [5462, 5462, 5460]
    assert [line["timers_by_partition"] for line in (first, second, third)] == [
        {topics[0]: 6},
        {topics[1]: 3},
        {},
    ]
    assert [line["partitions"] for line in (first, second, third)] == [1, 1, 1]
    assert first["memory_used"] > 0
    assert (first["memory_limit"], first["replicas"]) == (0, 0)
    assert first["message"].startswith(f"{cluster.place_of(nodes[0])} has 5,462 slots (33%), ")
    told = f"in use and no maxmemory, 0 connected replicas, 1 partition with 6 timers ({topics[0]!r} 6)"
    assert first["message"].endswith(told)
    hot = seen.all_of("hottest")
    assert [(line["partition"], line["timers"], line["node"]) for line in hot] == [
        (topics[0], 6, cluster.place_of(nodes[0])),
        (topics[1], 3, cluster.place_of(nodes[1])),
    ]
    assert (hot[0]["due"], hot[1]["due"], hot[1]["overdue_seconds"]) == (1, 0, 0)
    assert 5 <= hot[0]["overdue_seconds"] < 60


def test_partitions_on_their_nodes(doctor: Any, cluster: Cluster, nodes: list[RunningServer]) -> None:
    """Each partition counts where it is."""
    layout = Layout("orders", 1, 8)
    for number, name in enumerate(layout.partitions):
        partition = place_of(name).removesuffix("#0")
        node = cluster.owner_of(partition)
        assert node
        fill(node, partition, 10 + number)
    first = cluster.owner_of("orders")
    assert first
    cluster.tell(first, "SET", "timers_leases:{orders}", layout.text)
    seen = doctor(cluster.url, topics={"orders": {"partitions": 8}})
    lines = seen.all_of("nodes")
    assert sum(line["partitions"] for line in lines) == 8
    held = {name: timers for line in lines for name, timers in line["timers_by_partition"].items()}
    assert held == {f"orders#{number}": 10 + number for number in range(8)}
    assert [line["partition"] for line in seen.all_of("hottest")] == [f"orders#{n}" for n in (7, 6, 5, 4, 3)]


def test_a_node_with_nearly_all_timers(doctor: Any, cluster: Cluster, nodes: list[RunningServer]) -> None:
    """The note names the topic that would have to be spread, and the command."""
    topic, other = cluster.topic_at(nodes[1]), cluster.topic_at(nodes[2])
    fill(nodes[1], topic, 9_000)
    fill(nodes[2], other, 1_000)
    seen = doctor(cluster.url, topics={topic: {}, other: {}})
    assert (seen.code, seen.results("note")) == (0, ["spread"])
    assert seen.of("spread")[1] == (
        f"{cluster.place_of(nodes[1])} has 90% of all timers and 33% of the slots: "
        f"relay topics reshard {topic} --partitions 8 spreads {topic!r}, which has most of them; "
        "moving slots would move its one partition with timers as a whole"
    )


def test_a_node_that_is_nearly_full(doctor: Any, cluster: Cluster, nodes: list[RunningServer]) -> None:
    """While others have room; the line of the node tells how full it is."""
    topic = cluster.topic_at(nodes[0])
    fill(nodes[0], topic, 1)
    with nodes[0].client() as client:
        client.setrange(f"filler:{{{topic}}}", 20 << 20, "x")  # nothing large is sent, or buffers would count
        client.config_set("maxmemory", int(info(nodes[0], "memory")["used_memory"] / 0.94))
    seen = doctor(cluster.url, topics={topic: {}})
    assert (seen.code, seen.results("note")) == (0, ["memory"])
    words = seen.of("memory")[1]
    assert words.startswith(f"{cluster.place_of(nodes[0])} uses 9")
    assert "other nodes have room; relay topics reshard" in words
    line = next(line for line in seen.all_of("nodes") if line["node"] == cluster.place_of(nodes[0]))
    assert line["memory_used"] > 0.9 * line["memory_limit"]
    assert " of 2" in line["message"]


def test_a_node_that_is_away(doctor: Any) -> None:
    """It is named at once, and the others are looked at all the same."""
    with Cluster(config=AOF) as cluster:
        topics = [cluster.topic_at(node) for node in cluster.nodes]
        for node, topic in zip(cluster.nodes, topics, strict=True):
            fill(node, topic, 7)
        gone = cluster.nodes[1]
        gone.kill()
        url = f"redis+cluster://127.0.0.1:{cluster.nodes[0].port}"
        seen = doctor(url, topics={topic: {} for topic in topics})
        away, *others = seen.all_of("nodes")
        assert (seen.code, away["result"], away["node"]) == (4, "wrong", cluster.place_of(gone))
        assert "has 5,462 slots and does not answer" in away["message"]
        assert sorted(line["node"] for line in others) == sorted(map(cluster.place_of, cluster.running))
        assert [line["timers"] for line in others] == [7, 7]


def test_slots_without_a_node(doctor: Any) -> None:
    """Nobody can use their topics."""
    with server(config={"cluster-enabled": "yes", "cluster-require-full-coverage": "no"}) as node:
        with node.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_000)
            eventually(
                lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"), "the node is up"
            )
        seen = doctor(node, redis={"url": f"redis+cluster://127.0.0.1:{node.port}", "start_timeout": 4.0})
    wrong = [line["message"] for line in seen.all_of("nodes") if line["result"] == "wrong"]
    assert wrong == ["no node has 383 of the 16,384 slots: topics there can't be used"]


def test_a_single_server(doctor: Any) -> None:
    """Its memory, its replicas, its topics; a topic that can't be read is said to be one."""
    with server() as master, server() as replica:
        with replica.client() as follower:
            follower.replicaof("127.0.0.1", master.port)
        with master.client() as client:
            eventually(lambda: info(master, "replication")["connected_slaves"] == 1, "the replica follows")
            client.zadd("timers_timeline:mail", {f"m-{n}": LATER for n in range(3)})
            client.set("timers_leases:orders", "1 2")
            client.zadd("timers_timeline:orders", {f"o-{n}": LATER for n in range(1_200)})
            client.zadd("timers_timeline:orders#1", {f"o-{n}": LATER for n in range(1_000)})
            client.lpush("timers_timeline:odd", "theirs")
        seen = doctor(master, topics={"mail": {}, "orders": {"partitions": 2}, "odd": {}})
    result, message = seen.of("nodes")
    assert (result, message.startswith("the server has ")) == ("ok", True)
    assert ", 1 connected replica, " in message
    assert "4 partitions with 2,203 timers ('orders' 2,200 in 2, 'mail' 3)" in message
    assert message.endswith("; 1 partition can't be read")
    (line,) = seen.all_of("nodes")
    assert (line["node"], line["replicas"], line["unread_partitions"]) == ("", 1, 1)
    assert [each["message"] for each in seen.all_of("hottest")] == [
        "'orders#0' has 1,200 timers",
        "'orders#1' has 1,000 timers",
        "'mail' has 3 timers",
    ]


# ------------------------------------------------------------------ judgements


def node(place: str, slots: int, used: int = 1, limit: int = 0) -> ServerFacts:
    return replace(WELL, place=place, slots=slots, memory_used=used, memory_limit=limit)


def counted(
    topic: str, place: str, timers: int, *, due: int = 0, late: int = 0, paused: bool = False
) -> Counted:
    """A topic of one partition; `late`: seconds since the first timer was due."""
    stats = TopicStats(
        topic, NOW, timers, due, NOW - late * SECOND, 0, None, NOW + SECOND if paused else None
    )
    return Counted(Layout(topic), topic, place, stats)


def of_partitions(topic: str, places: Sequence[str], timers: int) -> list[Counted]:
    """A topic with `timers` timers in each partition; `places` has the place of each partition."""
    layout = Layout(topic, 1, len(places))
    return [
        replace(counted(name, place, timers), layout=layout)
        for name, place in zip(layout.partitions, places, strict=True)
    ]


def always(policy: TopicPolicy) -> Callable[[str], TopicPolicy]:
    return lambda _: policy


def found(
    check: str,
    nodes: Sequence[ServerFacts],
    partitions: Sequence[Counted],
    policy: TopicPolicy | None = None,
) -> list[Finding]:
    findings = doctor_nodes.spread(nodes, partitions, always(policy or TopicPolicy()))
    return [each for each in findings if each.check == check]


TWO = [node("a:1", 8_192), node("b:1", 8_192)]
THREE = [node("a:1", 5_462), node("b:1", 5_462), node("c:1", 5_460)]


@pytest.mark.parametrize(
    ("nodes", "timers", "crowded"),
    [
        (TWO, (7_500, 2_500), []),
        (TWO, (7_600, 2_400), ["a:1"]),
        (THREE, (6_600, 3_000, 400), []),
        (THREE, (6_700, 3_000, 300), ["a:1"]),
        (THREE, (9_999, 0, 0), []),  # too few to matter
        (THREE[:1], (20_000,), []),
        ([node("a:1", 12_000), node("b:1", 4_384)], (8_000, 2_000), []),
        ([node(f"{n}:1", 1_638) for n in range(10)], (2_001, *[889] * 9), ["0:1"]),
    ],
)
def test_which_node_is_crowded(nodes: list[ServerFacts], timers: tuple[int, ...], crowded: list[str]) -> None:
    """One with more than twice its share, or with its share and half of the rest, of 10,000 or more."""
    partitions = [counted(f"t{n}", each.place, timers[n]) for n, each in enumerate(nodes)]
    assert [each.figures["node"] for each in found("spread", nodes, partitions)] == crowded


def test_by_chance_no_node_is_crowded() -> None:
    """Five of eight partitions on one of three nodes may be, six are told."""
    five = of_partitions("orders", ["a:1"] * 5 + ["b:1"] * 2 + ["c:1"], 5_000)
    six = of_partitions("orders", ["a:1"] * 6 + ["b:1"] + ["c:1"], 5_000)
    assert found("spread", THREE, five) == []
    (told,) = found("spread", THREE, six)
    assert told.message.endswith(
        ": relay topics reshard orders --partitions 16 spreads 'orders', which has most of them; "
        "moving slots to another node moves whole partitions"
    )


def test_ways_out_that_are_none() -> None:
    """No command for a topic that can't be moved, that moves already, or that is one of many small ones."""
    alone = [counted("jobs", "a:1", 20_000)]
    whole = "moving slots would move its one partition with timers as a whole"
    (told,) = found("spread", TWO, alone, TopicPolicy(dispatch=Dispatch.LIST))
    assert told.message == f"a:1 has 100% of all timers and 50% of the slots: {whole}"
    (told,) = found("spread", TWO, alone, TopicPolicy(journal=True))
    assert "relay topics reshard jobs --partitions 4 spreads 'jobs'" in told.message, "one with a journal can"
    (told,) = found("spread", TWO, [replace(alone[0], layout=Layout("jobs", 2, 1, 2))])
    assert told.message.endswith(f": {whole}")
    (told,) = found("spread", TWO, [counted(f"t{n}", "a:1", 5_000) for n in range(9)])
    assert told.message.endswith(": moving slots to another node moves whole partitions")


def test_all_nodes_are_nearly_full() -> None:
    """Then no partition has anywhere to go."""
    full = [replace(each, memory_used=95, memory_limit=100) for each in TWO]
    told = [each.message for each in found("memory", full, [counted("t", "a:1", 5)])]
    words = "uses 95% of its maxmemory; a full node refuses new timers; no other node has room"
    advice = "raise maxmemory, or add a node and move slots to it"
    assert told == [f"{place} {words}; {advice}" for place in ("a:1", "b:1")]
    (one,) = found("memory", [full[0], TWO[1]], [])
    assert one.message.endswith("refuses new timers; other nodes have room")


def test_the_hottest_are_few() -> None:
    """Five for their timers and five for being late, which a paused topic is not."""
    many = [counted(f"many{n}", "a:1", 1_000 + n) for n in range(20)]
    late = [counted(f"late{n}", "a:1", 1, due=1, late=60 + n) for n in range(20)]
    paused = [counted("paused", "a:1", 2, due=2, late=9_000, paused=True)]
    told = list(doctor_nodes.hottest([*many, *late, *paused]))
    expected = [*(f"many{n}" for n in (19, 18, 17, 16, 15)), *(f"late{n}" for n in (19, 18, 17, 16, 15))]
    assert [each.figures["partition"] for each in told] == expected
    assert told[0].message == "'many19' has 1,019 timers at a:1"
    assert told[5].message == "'late19' has 1 timer at a:1, 1 of them due, the first for 79 s"


def test_a_node_names_its_largest_topics() -> None:
    """Up to five in words, a hundred partitions in figures, and how many there are."""
    partitions = [counted(f"t{n}", "a:1", n) for n in range(200)]
    told = found("nodes", TWO, partitions)[0]
    assert "200 partitions with 19,900 timers ('t199' 199, 't198' 198, " in told.message
    assert told.message.endswith("'t195' 195, 194 more)")
    by_partition = told.figures["timers_by_partition"]
    assert isinstance(by_partition, dict)
    assert (len(by_partition), by_partition["t199"]) == (100, 199)
