"""Calls to a Cluster of several nodes: each goes to the node with the topic, and follows where it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from typing import Any

import anyio
import pytest

from relay.core.errors import GivenUp, StoreError, StoreUnavailable, UnfitServer
from relay.core.journal import Journals
from relay.core.outcomes import ClaimRequest, Extension, Verb, Verdict
from relay.core.timers import KEEP_EXISTING, Change, NewTimer
from relay.store.server.cluster.topology import FLOOR
from relay.store.server.fitness import check_server
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs import people
from tests.servers import KINDS, Kind, RunningServer, server_id, start_server
from tests.settlements import end_of
from tests.worlds.cluster.cluster import Cluster, port_of, slot_of
from tests.worlds.waiting import until

SECOND = 1_000_000
LATER = 4_000_000_000_000_000
NONCE = b"relay-1-nonce-01"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Three masters; a test that moves a topic takes one of its own."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def server(shared: Cluster) -> AsyncIterator[Server]:
    async with Server(shared.url, timeout=20.0) as server:
        yield server


async def in_thread(call: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(call, *args)


def timer(name: str = "a", due: int = LATER) -> list[NewTimer]:
    return [NewTimer(name, b"x", due=due)]


async def test_each_topic_is_at_its_node(shared: Cluster, server: Server) -> None:
    """Calls, commands and pipelines find it, and every node has one topic and nothing of the others."""
    store = RedisStore(server)
    topics = [shared.topic_at(node) for node in shared.nodes]
    for topic in topics:
        await store.schedule(topic, [NewTimer("a", b"x", delay=0), *timer("b")])
        claim = await store.claim(topic, ClaimRequest(5, SECOND, NONCE, 1 << 20))
        assert [each.timer_id for each in claim.timers] == ["a"]
        assert await store.settle(topic, [end_of("a", NONCE, Verb.ACK)]) == [Verdict.OK]
        timeline, payloads, *_ = server.keys.of(topic)
        assert await server.ask("ZCARD", timeline) == 1
        for atomic in (False, True):
            assert await server.pipeline(("ZCARD", timeline), ("HLEN", payloads), atomic=atomic) == [1, 1]
    for node, topic in zip(shared.nodes, topics, strict=True):
        assert {key for key in shared.tell(node, "KEYS", "*") if b"{" in key} == {
            f"timers_timeline:{{{topic}}}".encode(),
            f"timers_payloads:{{{topic}}}".encode(),
        }
        assert server.places.of(topic) == shared.place_of(node)
        shared.tell(node, "FLUSHALL")


async def test_many_topics_are_asked_at_once(shared: Cluster, server: Server) -> None:
    """Answers come in the order of the questions, wherever each topic is; no node knows the script yet."""
    store = RedisStore(server)
    topics = [shared.topic_at(shared.nodes[n % 3]) for n in (2, 0, 1, 1, 0, 2)]
    for number, topic in enumerate(topics):
        await store.schedule(topic, [NewTimer(str(n), b"x", due=LATER) for n in range(number + 1)])
    for node in shared.nodes:
        shared.tell(node, "SCRIPT", "FLUSH")
    assert [stats.timers for stats in await RedisTopics(server).overview(topics)] == list(range(1, 7))
    for node in shared.nodes:
        shared.tell(node, "FLUSHALL")


async def test_a_slot_that_has_moved(shared: Cluster, server: Server) -> None:
    """MOVED is followed at once, and learnt: the next call goes straight to the new node."""
    store, topic = RedisStore(server), shared.topic_at(shared.nodes[0])
    await store.schedule(topic, timer())
    told: list[str] = []
    server.places.changed.append(lambda: told.append(server.places.of(topic)))
    await in_thread(shared.migrate, topic, shared.nodes[1])
    asked = redirects(shared)
    assert await store.get(topic, "a")
    assert redirects(shared) == asked + 1
    assert told[0] == server.places.of(topic) == shared.place_of(shared.nodes[1])
    assert await store.get(topic, "a")
    assert await server.each([people.stats(topic)])
    assert redirects(shared) == asked + 1
    await store.cancel(topic, ["a"])


def redirects(cluster: Cluster) -> int:
    """How often its nodes have said MOVED."""
    return sum(
        int(info["errorstat_MOVED"]["count"])
        for info in (cluster.tell(node, "INFO", "errorstats") for node in cluster.nodes)
        if "errorstat_MOVED" in info
    )


async def test_pipelines_follow_a_slot_that_has_moved(shared: Cluster, server: Server) -> None:
    """Each kind of call can be the first that is sent elsewhere."""
    store = RedisStore(server)

    async def moved() -> str:
        topic = shared.topic_at(shared.nodes[2])
        await store.schedule(topic, timer())
        await in_thread(shared.migrate, topic, shared.nodes[0])
        return topic

    topic = await moved()
    others = [shared.topic_at(node) for node in shared.nodes]
    found = await RedisTopics(server).overview([*others, topic])
    assert [stats.timers for stats in found] == [0, 0, 0, 1]
    for atomic in (False, True):
        key = server.keys.key("timeline", await moved())
        assert await server.pipeline(("ZCARD", key), ("TYPE", key), atomic=atomic) == [1, b"zset"]
    assert await server.ask("ZCARD", server.keys.key("timeline", await moved())) == 1
    for node in shared.nodes:
        shared.tell(node, "FLUSHALL")


async def test_a_slot_on_its_way(shared: Cluster, server: Server) -> None:
    """Moved the old way: what is whole at the source is served there; what has gone over, at the target, by
    ASK, which is not learnt; what is in both places waits, until it is in one."""
    source, target = shared.nodes[1], shared.nodes[2]
    store, topic = RedisStore(server), shared.topic_at(source)
    await store.schedule(topic, timer())
    timeline, payloads, *_ = server.keys.of(topic)
    shared.begin_move(topic, source, target)
    assert await server.ask("ZCARD", timeline) == 1
    assert shared.carry(topic, source, target) == 2
    assert await server.ask("ZCARD", timeline) == 1
    for atomic in (False, True):
        assert await server.pipeline(("ZCARD", timeline), ("HLEN", payloads), atomic=atomic) == [1, 1]
    assert server.places.of(topic) == shared.place_of(source)
    async with anyio.create_task_group() as group:
        found: list[object] = []

        async def get() -> None:
            found.append(await store.get(topic, "a"))
            found.extend(await store.schedule(topic, timer("b")))

        waits = tried_again(shared)
        group.start_soon(get)
        await until(lambda: tried_again(shared) > waits)
        assert found == []
        shared.end_move(topic, target)
    assert len(found) == 2
    await store.cancel(topic, ["a", "b"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=server_id)
async def test_a_script_is_not_ended_in_the_middle(kind: Kind) -> None:
    """On a slot that is moved key by key, though all keys of the topic are there: extending its only lease
    removes the record of it before it writes the new one, and Redis would refuse the second."""
    journals = Journals(lambda _: 10)
    with Cluster(kind) as cluster:
        source, target = cluster.nodes[:2]
        topic = cluster.topic_at(source)
        async with Server(cluster.url, timeout=60.0, write_ttl=60.0, journals=journals) as server:
            store = RedisStore(server)
            await store.schedule(topic, [NewTimer("a", b"x", delay=0)])
            await store.claim(topic, ClaimRequest(5, 60 * SECOND, NONCE, 1 << 20))
            assert await store.extend(topic, [Extension("a", NONCE)], lease=70 * SECOND) == [Verdict.OK]
            cluster.begin_move(topic, source, target)
            async with anyio.create_task_group() as group:
                verdicts: list[Verdict] = []

                async def extend() -> None:
                    verdicts.extend(await store.extend(topic, [Extension("a", NONCE)], lease=90 * SECOND))

                group.start_soon(extend)
                await until(lambda: tried_again(cluster) > 0)
                assert verdicts == []
                while cluster.carry(topic, source, target):
                    pass
                cluster.end_move(topic, target)
            assert verdicts == [Verdict.OK]
            assert await store.settle(topic, [end_of("a", NONCE, Verb.ACK)]) == [Verdict.OK]


def tried_again(cluster: Cluster) -> int:
    """How often its nodes have said TRYAGAIN."""
    return sum(
        int(info["errorstat_TRYAGAIN"]["count"])
        for info in (cluster.tell(node, "INFO", "errorstats") for node in cluster.nodes)
        if "errorstat_TRYAGAIN" in info
    )


async def until_given_up(call: Callable[[], Awaitable[object]]) -> None:
    """Make a call until it is given up between two tries. On a busy machine its time may be over while a try
    waits for its answer."""
    with anyio.fail_after(60):
        while True:
            with pytest.raises(StoreUnavailable) as told:
                await call()
            if isinstance(told.value, GivenUp) and "the Cluster could not take the call" in str(told.value):
                return


@pytest.mark.slow
async def test_a_slot_that_stays_on_its_way(shared: Cluster, server: Server) -> None:
    """The call waits until its caller gives it up, and then says why; it did nothing. Other topics of the
    node don't stand in line with it meanwhile."""
    source, target = shared.nodes[1], shared.nodes[2]
    topic, beside = shared.topic_at(source), shared.topic_at(source)
    await RedisStore(server).schedule(topic, timer())
    async with Server(shared.url, timeout=60.0, write_ttl=60.0) as hasty:
        store = RedisStore(hasty)
        assert await store.get(topic, "a")
        shared.begin_move(topic, source, target)
        hasty._timeout = hasty._write_ttl = 2.0  # for what is given up; all else may take as long as it does
        await until_given_up(lambda: store.schedule(topic, timer("b")))
        await until_given_up(lambda: store.get(topic, "a"))
        hasty._timeout = hasty._write_ttl = 60.0
        places = hasty.places
        assert places.lane(topic) != places.lane(beside) == places.of(beside) == places.of(topic)
        while shared.carry(topic, source, target):
            pass
        shared.end_move(topic, target)
        assert await store.get(topic, "b") is None
        assert places.lane(topic) == places.of(topic) != places.of(beside)
        await store.cancel(topic, ["a"])


async def test_a_call_in_the_middle_of_a_move_runs_once(shared: Cluster, server: Server) -> None:
    """Timers come and go while their slot goes to and fro, by both ways: none is lost, and none is done
    twice."""
    store, topic = RedisStore(server), shared.topic_at(shared.nodes[0])
    done = False
    made: list[str] = []
    names = count()

    async def write() -> None:
        while not done:
            name = str(next(names))
            (told,) = await store.schedule(topic, [NewTimer(name, b"x", due=LATER, intent=KEEP_EXISTING)])
            assert told.stored
            made.append(name)

    async def more() -> None:
        before = len(made)
        await until(lambda: len(made) > before + 5)

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(write)
        for n in range(6):
            await more()
            move = shared.migrate if n % 2 else shared.move
            await in_thread(move, topic, shared.nodes[(n + 1) % 3])
        done = True
    assert (await RedisTopics(server).stats(topic)).timers == len(made)
    for start in range(0, len(made), 500):
        gone = await store.cancel(topic, made[start : start + 500])
        assert {each.change for each in gone} == {Change.CANCELLED}


@pytest.mark.slow
async def test_a_node_that_is_away() -> None:
    """Its topics fail at once, by an error that can be tried again; those of the others go on; and of several
    topics at once the others' answers are there."""
    with Cluster() as cluster:
        async with Server(cluster.url, timeout=20.0, write_ttl=20.0) as server:
            store = RedisStore(server)
            away, there, too = (cluster.topic_at(node) for node in cluster.nodes)
            for topic in (away, there, too):
                await store.schedule(topic, timer())
            sent_on = cluster.topic_at(cluster.nodes[1])
            await store.schedule(sent_on, timer())
            cluster.move(sent_on, cluster.nodes[0])
            cluster.nodes[0].kill()
            with pytest.raises(StoreUnavailable) as told:  # the node that says MOVED is well
                await store.schedule(sent_on, timer())
            assert told.value.place == f"127.0.0.1:{port_of(cluster.nodes[0])}"
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as told:
                    await store.schedule(away, timer())
                assert told.value.place == f"127.0.0.1:{port_of(cluster.nodes[0])}"
                await store.schedule(there, timer())
                assert await store.get(too, "a")
            replies = await server.each([people.stats(topic) for topic in (there, away, too)])
            assert [isinstance(reply, StoreError) for reply in replies] == [False, True, False]
            with pytest.raises(StoreUnavailable):
                await server.each([people.stats(away)])
            with pytest.raises(StoreUnavailable):
                await server.places.ping(server.places.of(away))
            await server.places.ping(server.places.of(there))
            assert await check_server(server, allow_eviction=False)
            cluster.nodes[0].start()
            await until(lambda: cluster.owner_of(away, cluster.nodes[0]) is cluster.nodes[0])
            await again(lambda: store.schedule(away, timer()))


async def again(call: Callable[[], Any]) -> Any:
    """Call until it works."""
    with anyio.fail_after(120):
        while True:
            try:
                return await call()
            except StoreUnavailable:
                await anyio.sleep(0.05)


@pytest.mark.slow
async def test_a_replica_takes_over() -> None:
    """By agreement: no call fails by it. By the master's death: its topics are away until then. A new
    connection to one that has become a replica finds its way, too."""
    with Cluster(replicas=1) as cluster:
        topic, (replica,) = cluster.topic_at(cluster.nodes[1]), cluster.replicas[1]
        async with (
            Server(cluster.url, timeout=10.0, write_ttl=60.0) as server,
            Server(cluster.url, timeout=10.0, write_ttl=60.0) as late,
        ):
            store = RedisStore(server)
            await store.schedule(topic, timer())
            await late.ask("TIME")  # at another node; and it looks no further
            async with anyio.create_task_group() as group:
                called = 0

                async def call() -> None:
                    nonlocal called
                    while server.places.of(topic) != cluster.place_of(replica):
                        await store.schedule(topic, timer())
                        called += 1

                group.start_soon(call)
                await until(lambda: called > 5)
                await in_thread(cluster.fail_over, replica)
            await RedisStore(late).schedule(topic, timer("late"))  # its first connection to the old master
            await store.schedule(topic, timer("b"))
            assert server.places.of(topic) == cluster.place_of(replica)
            await until(lambda: cluster.tell(replica, "WAIT", 1, 500) == 1)
            for node in cluster.running:  # not before: a busy machine is no dead node
                cluster.tell(node, "CONFIG", "SET", "cluster-node-timeout", 2000)
            replica.kill()
            assert (await again(lambda: store.get(topic, "b"))).timer_id == "b"
            assert server.places.of(topic) == cluster.place_of(cluster.nodes[1])


async def test_pings_that_are_answered_look_at_nothing(shared: Cluster, server: Server) -> None:
    """An idle relay pings each node every few seconds, and that says nothing of slots."""

    def looks() -> int:
        stats = [shared.tell(node, "INFO", "commandstats") for node in shared.nodes]
        return sum(
            int(each["cmdstat_cluster|slots"]["calls"]) for each in stats if "cmdstat_cluster|slots" in each
        )

    await server.ping()
    before, end = looks(), anyio.current_time() + 4 * FLOOR
    while anyio.current_time() < end:
        for node in shared.nodes:
            await server.places.ping(shared.place_of(node))
    assert looks() == before


async def test_a_seed_that_is_away(shared: Cluster) -> None:
    """The next one is asked. Where none answers, the error says what each of them said."""
    with start_server("valkey") as gone:
        port = gone.port
    url = shared.url.replace("://", f"://127.0.0.1:{port},")
    async with Server(url, timeout=60.0) as server:
        await server.ping()
    async with Server(f"redis+cluster://127.0.0.1:{port}", timeout=60.0) as server:
        with pytest.raises(
            StoreUnavailable, match=rf"no node tells how the Cluster stands \(127\.0\.0\.1:{port}"
        ):
            await server.ping()


async def test_nodes_behind_other_addresses(shared: Cluster) -> None:
    """Where the Cluster announces what is not reached, the URL says where each node is; MOVED counts too."""
    for node in shared.nodes:
        shared.tell(node, "CONFIG", "SET", "cluster-announce-hostname", "inside.invalid")
        shared.tell(node, "CONFIG", "SET", "cluster-preferred-endpoint-type", "hostname")
    try:
        await until(lambda: all("127.0.0.1" not in shared.hosts(node) for node in shared.nodes))
        pairs = ",".join(f"inside.invalid:{node.port}=127.0.0.1:{node.port}" for node in shared.nodes)
        async with Server(f"{shared.url}?addresses={pairs}", timeout=60.0) as server:
            await server.ping()
            store, topic = RedisStore(server), shared.topic_at(shared.nodes[0])
            await store.schedule(topic, timer())
            assert server.places.of(topic) == f"inside.invalid:{shared.nodes[0].port}"
            await in_thread(shared.migrate, topic, shared.nodes[1])
            assert await store.get(topic, "a")
            assert server.places.of(topic) == f"inside.invalid:{shared.nodes[1].port}"
            await store.cancel(topic, ["a"])
    finally:
        for node in shared.nodes:
            shared.tell(node, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


async def test_the_url_is_for_another_kind(shared: Cluster, valkey: RunningServer) -> None:
    """A start is refused by name, with the way out."""
    async with Server(
        valkey.url.replace("redis://", "redis+cluster://").removesuffix("/0"), timeout=60.0
    ) as one:
        with pytest.raises(UnfitServer, match=r"not a node of a Cluster.*redis:// in the place"):
            await check_server(one, allow_eviction=False)
    async with Server(shared.nodes[0].url, timeout=60.0) as node:
        with pytest.raises(UnfitServer, match=r"a node of a Cluster.*with redis\+cluster://"):
            await check_server(node, allow_eviction=False)


def test_topics_of_the_world(shared: Cluster) -> None:
    """A topic at a node has a slot that the node has."""
    for node in shared.nodes:
        topic = shared.topic_at(node)
        assert 0 <= slot_of(topic) < 16_384
        assert shared.owner_of(topic) is node
