"""Spark's workers in a Cluster: a call goes to the node with its topic, follows where it is sent, and runs
once; replies come in the order of the commands."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from anyio.to_thread import run_sync

from relay.core.errors import GivenUp, StoreUnavailable, UnfitServer
from relay.core.instants import to_score
from relay.core.partitions import Layout
from relay.store.bulk.columns_call import AHEAD, LoadRows, PackedRows
from relay.store.bulk.inserting import Inserted, Inserting
from relay.store.bulk.lookup import present_now
from relay.store.bulk.scanning import TopicSlice, read
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BulkStore
from relay.store.codec import envelope
from relay.store.server.blocking import BlockingServer
from relay.store.server.cluster.blocking_nodes import BlockingNodes
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.verbs import timeline
from tests.store.test_blocking import cut_off
from tests.store.test_late_calls import Claims
from tests.store.test_routes import redirects, tried_again
from tests.worlds.cluster.cluster import Cluster
from tests.worlds.waiting import eventually, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RunningServer

LATER = 4_000_000_000_000_000


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """Three masters; a test that moves a topic takes one of its own."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def bulk(shared: Cluster) -> Iterator[BulkStore]:
    with BulkStore(BlockingServer(shared.url, timeout=60.0)) as store:
        yield store


def rows(*ids: str, due: int = LATER) -> PackedRows:
    stored = [envelope.encode(b"x", {}, "")] * len(ids)
    return PackedRows.of(LoadRows(0, ids, [due] * len(ids), stored, []))


def timers_at(node: RunningServer, topic: str) -> dict[bytes, float]:
    """The topic's timeline, as the node itself has it."""
    with node.client() as raw:
        found = raw.zrange(f"timers_timeline:{{{topic}}}", 0, -1, withscores=True)
    return dict(cast("list[tuple[bytes, float]]", found))


def test_each_topic_is_at_its_node(shared: Cluster, bulk: BulkStore) -> None:
    """A load of three topics, in turns; and whatever is asked about one is asked there."""
    topics = [shared.topic_at(node) for node in shared.nodes]
    for n in range(2 * AHEAD):
        for topic in topics:
            bulk.replace(topic, rows(f"t{n}"))
    bulk.flush()
    names = [f"t{n}".encode() for n in range(2 * AHEAD)]
    for topic, node in zip(topics, shared.nodes, strict=True):
        assert sorted(timers_at(node, topic)) == names
        assert bulk.count(topic) == len(names)
        pages = read(bulk, TopicSlice(topic), envelopes=True)
        assert [name for page in pages for name in page.timer_ids] == names
        found = bulk.server.each([timeline.get(topic, name) for name in (*names, b"nobody")])
        assert [bool(words) for words in found] == [*[True] * len(names), False]
        assert list(present_now(bulk.server, Layout(topic), ["t0", "nobody"])) == [
            (True, False),
            (False, False),
        ]
        assert bulk.now(topic) > 0
    assert set(topics) <= set(bulk.topics())
    bulk.connect()
    assert bulk.now() > 0
    Pace(bulk, 1e6).turn(1)


def test_a_connection_to_each_node_that_is_needed(shared: Cluster) -> None:
    """And to no other one."""

    def connected(node: RunningServer) -> bool:
        with node.client() as raw:
            return "relay-pipeline" in [each["name"] for each in raw.client_list()]

    with BulkStore(BlockingServer(shared.url)) as store:
        store.count(shared.topic_at(shared.nodes[1]))
        there = [False, True, False]
        eventually(lambda: [connected(node) for node in shared.nodes] == there, "there is one")
    eventually(lambda: not any(map(connected, shared.nodes)), "all connections are closed")


def test_replies_come_in_the_order_of_the_commands(shared: Cluster) -> None:
    """Though the node that was asked first answers last."""
    first, second, third = (f"k:{{{shared.topic_at(node)}}}" for node in shared.nodes)
    with BlockingServer(shared.url, timeout=60.0) as server:
        server.send(("BLPOP", first, 60), ("SET", second, 2), ("GET", second), ("SET", third, 3))
        with pytest.raises(RuntimeError, match="4 replies are under way"):
            server.ask("PING")
        eventually(lambda: shared.tell(shared.nodes[2], "EXISTS", third) == 1, "the last one is answered")
        shared.tell(shared.nodes[0], "RPUSH", first, "1")
        assert server.receive(4) == [[first.encode(), b"1"], b"OK", b"2", b"OK"]
        for key in (second, third):
            server.ask("DEL", key)


def test_batches_are_under_way_to_a_node_that_has_lost_their_slot(shared: Cluster, bulk: BulkStore) -> None:
    """MOVED: each is made again, once, in the same order. What comes then goes straight to the new node."""
    source, target = shared.nodes[:2]
    topic, other = shared.topic_at(source), shared.topic_at(source)
    inserting = Inserting(bulk, "r")
    inserting.insert(topic, rows("a"))
    inserting.flush()
    bulk.replace(other, rows("a"))
    bulk.flush()
    for each in (topic, other):
        shared.migrate(each, target)
    asked = redirects(shared)
    for n in range(AHEAD):
        inserting.insert(topic, rows(f"b{n}", f"c{n}"))
    inserting.flush()
    assert redirects(shared) >= asked + AHEAD
    assert inserting.done == Inserted(1 + 2 * AHEAD, 0, 0)
    for n in range(AHEAD):
        bulk.replace(other, rows("a", due=LATER + n))
    bulk.flush()
    assert timers_at(target, other) == {b"a": to_score(LATER + AHEAD - 1)}
    asked = redirects(shared)
    inserting.insert(topic, rows("d"))
    inserting.flush()
    assert bulk.count(topic) == len(timers_at(target, topic)) == 2 + 2 * AHEAD
    assert redirects(shared) == asked


@pytest.mark.parametrize("carried", [0, 1, 1000], ids=["not yet", "in part", "all keys"])
def test_batches_wait_for_a_slot_that_is_moved_key_by_key(
    shared: Cluster, bulk: BulkStore, carried: int
) -> None:
    """ASK and TRYAGAIN: neither node takes a script that changes something, and each runs once when the slot
    has arrived."""
    source, target = shared.nodes[1:]
    topic = shared.topic_at(source)
    inserting = Inserting(bulk, "r")
    inserting.insert(topic, rows("a"))
    inserting.flush()
    shared.begin_move(topic, source, target)
    if carried:
        shared.carry(topic, source, target, most=carried)
    refused = tried_again(shared)

    def end() -> None:
        eventually(lambda: tried_again(shared) > refused + AHEAD, "batches are refused, and made again")
        while shared.carry(topic, source, target):
            pass
        shared.end_move(topic, target)

    with ThreadPoolExecutor(1) as others:
        ending = others.submit(end)
        for n in range(2 * AHEAD):
            inserting.insert(topic, rows(f"b{n}"))
        inserting.flush()
        ending.result()
    assert inserting.done == Inserted(1 + 2 * AHEAD, 0, 0)
    assert len(timers_at(target, topic)) == 1 + 2 * AHEAD


def test_what_has_gone_over_is_asked_for_there(shared: Cluster, bulk: BulkStore) -> None:
    """ASK, for commands, scripts that only read, and a transaction."""
    source, target = shared.nodes[1:]
    topic = shared.topic_at(source)
    bulk.replace(topic, rows("a"))
    bulk.flush()
    leases = bulk.server.keys.key("leases", topic)
    bulk.server.ask("HSET", leases, "a", "x")
    found: list[object] = []
    for step in ("at the source", "on its way", "at the target"):
        if step == "on its way":
            shared.begin_move(topic, source, target)
            assert shared.carry(topic, source, target) == 3
        if step == "at the target":
            shared.end_move(topic, target)
        found += [bulk.count(topic), *present_now(bulk.server, Layout(topic), ["a", "b"])]
        found += [name for page in bulk.server.scan("HSCAN", leases, 10) for name in page]
    assert found == [1, (True, True), (False, False), b"a", b"x"] * 3


@pytest.mark.parametrize("ended", [True, False], ids=["moved", "on its way"])
def test_a_scan_begins_again_at_another_node(shared: Cluster, bulk: BulkStore, ended: bool) -> None:
    """A cursor means nothing there: without that, what the new node has before it would be left out. It does
    so once, though each page is asked for at the old node first."""
    source, target = shared.nodes[:2]
    topic = shared.topic_at(source)
    leases = bulk.server.keys.key("leases", topic)
    names = {f"f{n}".encode() for n in range(5000)}
    bulk.server.ask("HSET", leases, *(part for name in names for part in (name, b"x")))
    pages = bulk.server.scan("HSCAN", leases, 100)
    first = next(pages)[::2]
    assert len(first) < 1000
    shared.begin_move(topic, source, target)
    shared.carry(topic, source, target)
    if ended:
        shared.end_move(topic, target)
    rest = [name for page in pages for name in page[::2]]
    assert set(rest) == names
    assert len(rest) < 2 * len(names)
    if not ended:
        shared.end_move(topic, target)


def test_pages_go_on_at_another_node(shared: Cluster, bulk: BulkStore) -> None:
    """The next page was asked for when the slot moved."""
    topic = shared.topic_at(shared.nodes[0])
    names = [f"t{n:04}".encode() for n in range(1500)]
    for start in range(0, len(names), 500):
        bulk.replace(topic, rows(*(name.decode() for name in names[start : start + 500])))
    bulk.flush()
    pages = read(bulk, TopicSlice(topic), envelopes=False)
    seen = next(pages).timer_ids
    shared.migrate(topic, shared.nodes[1])
    for page in pages:
        seen += page.timer_ids
    assert seen == names


@pytest.mark.slow
def test_a_slot_that_stays_on_its_way(shared: Cluster) -> None:
    """The call is given up in the end, and did nothing."""
    source, target = shared.nodes[:2]
    topic = shared.topic_at(source)
    with BulkStore(BlockingServer(shared.url, timeout=60.0)) as hasty:
        hasty.replace(topic, rows("a"))
        hasty.flush()
        assert isinstance(hasty.server._servers, BlockingNodes)
        hasty.server._servers._patience = 5.0  # which is not the time for an answer
        shared.begin_move(topic, source, target)
        hasty.replace(topic, rows("b"))
        with pytest.raises(GivenUp, match="the Cluster could not take the call in time"):
            hasty.flush()
        while shared.carry(topic, source, target):
            pass
        shared.end_move(topic, target)
        assert hasty.count(topic) == 1


@pytest.mark.slow
def test_a_load_while_slots_move_and_a_replica_takes_over() -> None:
    """No batch is lost, and none is made twice: the ledger would have its timers already."""
    with (
        Cluster(replicas=1) as cluster,
        BulkStore(BlockingServer(cluster.url, timeout=60.0)) as store,
        ThreadPoolExecutor(1) as others,
    ):
        topic = cluster.topic_at(cluster.nodes[0])
        inserting = Inserting(store, "r")

        def change() -> None:
            for n in range(4):
                (cluster.migrate if n % 2 else cluster.move)(topic, cluster.nodes[(n + 1) % 3])
            cluster.fail_over(cluster.replicas[1][0])  # of the node that has the topic then

        changing = others.submit(change)
        batches = count()
        while not changing.done():
            inserting.insert(topic, rows(f"t{next(batches)}"))
        changing.result()
        inserting.flush()
        made = next(batches)
        assert inserting.done == Inserted(made, 0, 0)
        assert store.count(topic) == made


@pytest.mark.slow
def test_a_node_that_is_away() -> None:
    """Its topics fail, and at once where nothing is under way; those of the others go on; and it is found
    again."""
    with Cluster() as cluster, BulkStore(BlockingServer(cluster.url)) as store:
        away, there = (cluster.topic_at(node) for node in cluster.nodes[:2])
        for topic in (away, there):
            store.replace(topic, rows("a"))
        store.flush()
        cluster.nodes[0].kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                store.count(away)
            assert store.count(there) == 1
        cluster.nodes[0].start()
        eventually(lambda: counted(store, away) == 0, "the node is back, without its timers")


def test_a_line_that_is_lost_is_a_reason_to_look(shared: Cluster) -> None:
    """Its node may have died, and another one have its slots."""
    with BlockingServer(shared.url, timeout=60.0) as server:
        node = shared.nodes[1]
        key = server.keys.key("dead", shared.topic_at(node))
        server.send(("BLPOP", key, 0))
        before = looks(shared)
        cut_off(node)
        with pytest.raises(StoreUnavailable):
            server.receive(1)
        assert server.ask("TYPE", key) == b"none"
        assert looks(shared) == before + 1


def looks(cluster: Cluster) -> int:
    """How often the nodes were asked for their slots."""
    stats = [cast("dict[str, Any]", cluster.tell(node, "INFO", "commandstats")) for node in cluster.nodes]
    return sum(each["cmdstat_cluster|slots"]["calls"] for each in stats if "cmdstat_cluster|slots" in each)


def counted(store: BulkStore, topic: str) -> int | None:
    try:
        return store.count(topic)
    except StoreUnavailable:
        return None


async def test_a_lost_reply_is_never_sent_again(shared: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is well, and reached by way of the URL's `addresses`; only the reply is lost."""
    node = shared.nodes[0]

    async def lose(topic: str, seconds: float) -> Claims:
        """Lose the reply to a batch, which has `seconds` to reach the node; return the line that it took."""
        monkeypatch.setattr("relay.store.server.line.WRITE_TTL", seconds)
        line = Claims(node.port)
        async with line.open() as url:
            port = url.rpartition(":")[2].removesuffix("/0")
            mapped = f"{shared.url}?addresses=127.0.0.1:{node.port}=127.0.0.1:{port}"
            with BulkStore(BlockingServer(mapped, timeout=60.0)) as load:
                await run_sync(load.register, topic)
                await run_sync(load.server.keep, topic)
                line.losing = True
                await run_sync(load.replace, topic, rows("a"))
                with pytest.raises(StoreUnavailable):
                    await run_sync(load.flush)
        return line

    topic = shared.topic_at(node)
    line = await lose(topic, 0.5)
    if line.lost.startswith(b"-GIVENUP"):  # on a busy machine it came too late, and gets more time
        line = await lose(topic, 20.0)
    assert (line.sent.count(b"$4\r\nEVAL\r\n"), line.sent.count(b"$7\r\nEVALSHA\r\n")) == (1, 0)
    assert timers_at(node, topic) == {b"a": to_score(LATER)}


async def test_relays_hear_of_a_load(shared: Cluster) -> None:
    """Hints are sharded: at the node with the topic, and there alone."""
    topic, heard = shared.topic_at(shared.nodes[2]), list[int]()

    def load() -> None:
        with BulkStore(BlockingServer(shared.url)) as store:
            store.replace(topic, rows("a"))
            store.flush()

    async with Server(shared.url, timeout=20.0) as server, anyio.create_task_group() as group:
        hints = RedisHints(server)
        group.start_soon(hints.run)
        await hints.watch(topic, heard.append)
        await until(lambda: heard, "it is subscribed")
        assert server.hints_are_sharded
        await run_sync(load)
        await until(lambda: LATER in heard, "the hint is heard")
        group.cancel_scope.cancel()


def test_the_url_is_for_another_kind(shared: Cluster, valkey: RunningServer) -> None:
    """It is refused by name, with the way out, by the first call."""
    url = valkey.url.replace("redis://", "redis+cluster://").removesuffix("/0")
    calls: list[Any] = [lambda server: server.ask("PING"), lambda server: server.send(("PING",))]
    for call in calls:
        with BlockingServer(url) as server, pytest.raises(UnfitServer, match=r"redis:// in the place"):
            call(server)
        said = r"a node of a Cluster.*with redis\+cluster://"
        with BlockingServer(shared.nodes[0].url) as server, pytest.raises(UnfitServer, match=said):
            call(server)


def test_a_seed_that_is_away(shared: Cluster) -> None:
    """The next one is asked. Where none answers, the error says what each of them said."""
    with BlockingServer(shared.url.replace("://", "://127.0.0.1:1,")) as server:
        assert server.ask("PING") == b"PONG"
    said = r"no node tells how the Cluster stands \(127\.0\.0\.1:1"
    with (
        BlockingServer("redis+cluster://127.0.0.1:1") as server,
        pytest.raises(StoreUnavailable, match=said),
    ):
        server.ask("PING")
