"""Hash tags: all of a topic's keys in one slot of a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import anyio
import pytest

from relay.core.dispatch import Dispatch, ListPolicy, StreamPolicy
from relay.core.errors import StoreRefused, StoreUnavailable, UnfitServer
from relay.core.outcomes import ClaimRequest, Extension, Limits, Verb, Verdict
from relay.core.partitions import Layout
from relay.core.policy import TopicPolicy
from relay.core.timers import KEEP_EXISTING, Change, Changed, NewTimer
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserting
from relay.store.bulk.lookup import present_now
from relay.store.bulk.scanning import cut, read
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BulkStore
from relay.store.bulk.sweeping import Loading, Marks
from relay.store.codec import envelope
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.keys import KeyNames
from relay.store.server.blocking import BlockingServer
from relay.store.server.fitness import check_server
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.servers import KINDS, Kind, RunningServer, server_id, start_server
from tests.settlements import end_of

NONCE = b"relay-1-nonce-01"
SECOND = 1_000_000
LATER = 4_000_000_000_000_000
SLOTS = 16384


@pytest.fixture(params=KINDS, ids=server_id)
def cluster(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A cluster of one node that has all slots."""
    kind: Kind = request.param
    with start_server(kind, config={"cluster-enabled": "yes"}) as server, server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTS", *range(SLOTS))
        while "cluster_state:ok" not in str(client.execute_command("CLUSTER", "INFO")):
            pass
        yield server


def test_tagged_names() -> None:
    """All keys of a topic and its channel carry the topic in braces."""
    names = KeyNames(hash_tags=True)
    assert names.of("orders") == (
        "timers_timeline:{orders}",
        "timers_payloads:{orders}",
        "timers_leases:{orders}",
        "timers_dead:{orders}",
        "timers_pause:{orders}",
        "timers_journal:{orders}",
    )
    assert names.channel("orders") == "timers_wake:{orders}"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_every_script_runs_in_a_cluster(cluster: RunningServer, scheme: str) -> None:
    """With tags every verb and the hints work there as elsewhere. A Cluster's URL brings the tags; one node
    that has all slots may be taken for a single server, too."""
    url = f"{scheme}://127.0.0.1:{cluster.port}"
    server = Server(url, KeyNames(hash_tags=scheme == "redis"), connections=2, timeout=60.0)
    assert await check_server(server, allow_eviction=False)
    store, hints = RedisStore(server), RedisHints(server)
    heard: list[int] = []
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch("orders", heard.append)
        with anyio.fail_after(60):
            while not heard:  # noqa: ASYNC110  (the condition is another task's doing)
                await anyio.sleep(0.001)
        await store.schedule("orders", [NewTimer("a", b"x", delay=0), NewTimer("b", b"y", due=LATER)])
        claim = await store.claim(
            "orders", ClaimRequest(limit=5, lease=30 * SECOND, nonce=NONCE, max_bytes=1 << 20)
        )
        assert [timer.timer_id for timer in claim.timers] == ["a"]
        extended = await store.extend("orders", [Extension("a", NONCE, received=True)], lease=SECOND)
        assert extended == [Verdict.OK]
        assert await store.settle("orders", [end_of("a", NONCE, Verb.ACK)]) == [Verdict.OK]
        assert await store.get("orders", "b")
        assert len((await store.list(Layout("orders"), state=None, limit=5, cursor="")).timers) == 1
        assert set(await server.ask("KEYS", "*")) == {
            b"timers_timeline:{orders}",
            b"timers_payloads:{orders}",
        }
        assert await store.run("orders", ["b"]) == [Changed(Change.RUN)]
        assert await store.cancel("orders", ["b"]) == [Changed(Change.CANCELLED)]
        assert await server.ask("KEYS", "*") == []
        await people(store, RedisTopics(server))
        assert await server.ask("KEYS", "*") == [b"timers_topics"]
        with anyio.fail_after(60):
            while len(heard) < 2:  # noqa: ASYNC110  (the condition is another task's doing)
                await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    await server.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("dispatch", [Dispatch.LIST, Dispatch.STREAM])
async def test_lists_and_streams_run_in_a_cluster(cluster: RunningServer, dispatch: Dispatch) -> None:
    """All keys of a topic share a slot there too, those of its groups among them."""
    policy = TopicPolicy(dispatch=dispatch, stream=StreamPolicy("billing"), ready=ListPolicy(1.0))
    async with Server(cluster.url, KeyNames(hash_tags=True), connections=2, timeout=60.0) as server:
        store, topics = RedisStore(server), RedisTopics(server)
        promotions = RedisPromotions(server, lambda _: policy)
        groups = RedisGroups(server, lambda _: policy)
        await store.schedule("jobs", [NewTimer(name, b"x", delay=0) for name in "abc"])
        assert (await promotions.promote("jobs", limit=9, nonce=NONCE)).promoted == 3
        if dispatch is Dispatch.STREAM:
            claim = await groups.claim(
                "jobs", ClaimRequest(limit=9, lease=SECOND, nonce=NONCE, max_bytes=1 << 20)
            )
            a, b, c = claim.timers
            await groups.extend("jobs", [Extension("a", a.proof, received=True)], lease=SECOND)
            again = end_of("c", c.proof, Verb.RESCHEDULE, again=NewTimer("c", b"", delay=0))
            ends = [end_of("a", a.proof, Verb.NACK), end_of("b", b.proof, Verb.REJECT), again]
            await groups.settle("jobs", ends, limits=Limits(keep=True))
            (letter,) = (await topics.dead_page("jobs", limit=5, cursor="")).letters
            assert await topics.redrive("jobs", [letter.dead_id]) == [Change.RUN]
        await promotions.tidy("jobs")
        assert (await promotions.state("jobs")).dispatch is dispatch
        keys_there = cast("list[bytes]", await server.ask("KEYS", "*"))
        assert {key.rpartition(b":")[2] for key in keys_there} == {b"{jobs}"}
        await server.ask("FLUSHALL")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
def test_every_script_of_the_pipeline_runs_in_a_cluster(cluster: RunningServer, scheme: str) -> None:
    """The keys of each share a slot, those that keep a script whole on a slot that moves among them."""
    url = f"{scheme}://127.0.0.1:{cluster.port}"
    rows = PackedRows.of(LoadRows(0, ["a"], [LATER], [envelope.encode(b"x", {}, "")], [1]))
    with BulkStore(BlockingServer(url, KeyNames(hash_tags=scheme == "redis"), timeout=60.0)) as store:
        store.replace("orders", rows)
        store.flush()
        inserting = Inserting(store, "run", on_conflict=KEEP_EXISTING)
        inserting.insert("orders", rows)
        inserting.flush()
        assert inserting.done == (0, 0, 1)
        loading = Loading(store.server)
        epoch = loading.open("orders", "1", "d", lock=SECOND, ttl=60, epoch="e", store="s")
        marks = Marks(Layout("orders"), str(epoch), "1")
        loading.load(marks, rows)
        loading.flush()
        assert loading.done.live == 1
        assert loading.skip(marks, 0)
        assert loading.keep(Layout("orders"), "1", "d", lock=SECOND, ttl=60)
        assert loading.close(Layout("orders"), "1", "d")
        Pace(store, 1e6).turn(1)
        (part,) = cut(store, "orders", 2)
        assert [page.timer_ids for page in read(store, part, envelopes=True)] == [[b"a"]]
        assert list(present_now(store.server, Layout("orders"), ["a"])) == [(True, False)]
        loading.may_retire(Layout("orders"), 1, "w")
        assert loading.retire("orders", 1, "w", ["a"]) == 1
        loading.has_retired(Layout("orders"), 1)
        assert store.topics() == ["orders"]
        assert store.count("orders") == 0


async def people(store: RedisStore, topics: RedisTopics) -> None:
    """All that they do to a topic and its dead."""
    await topics.register("orders")
    assert await topics.topics() == ["orders"]
    await topics.pause("orders", duration=SECOND)
    await topics.resume("orders")
    limits = Limits(keep=True)
    for n in range(3):
        nonce = bytes([n]) * 16
        await store.schedule("orders", [NewTimer("a", b"x", due=n)])
        await store.claim("orders", ClaimRequest(limit=1, lease=SECOND, nonce=nonce, max_bytes=1))
        await store.settle("orders", [end_of("a", nonce, Verb.REJECT)], limits=limits)
    names = [letter.dead_id for letter in (await topics.dead_page("orders", limit=5, cursor="")).letters]
    assert await topics.redrive("orders", names[:1]) == [Change.RUN]
    assert await topics.trim("orders", max_count=1, max_age=0) == 1
    assert (await topics.stats("orders")).dead == 1
    assert await topics.purge("orders", names) == 1
    assert await topics.orphans("orders", limit=5) == ([], False)
    assert await topics.repair("orders", ["nobody"]) == (0, 0)
    assert await store.cancel("orders", ["a"]) == [Changed(Change.CANCELLED)]


async def test_without_tags_a_start_is_refused(cluster: RunningServer) -> None:
    """The start names the URL's other form, and each call the setting."""
    redis = Server(cluster.url, connections=1, timeout=60.0)
    with pytest.raises(UnfitServer, match=r"a node of a Cluster.*with redis\+cluster://"):
        await check_server(redis, allow_eviction=False)
    with pytest.raises(StoreRefused, match=r"same slot.*set redis\.hash_tags to true"):
        await RedisStore(redis).schedule("orders", [NewTimer("a", b"", delay=0)])
    await redis.aclose()


async def test_a_place_that_is_none_has_no_clock(cluster: RunningServer) -> None:
    """Where a slot has no node the place has no name; and a node may have left."""
    async with Server(f"redis+cluster://127.0.0.1:{cluster.port}", timeout=60.0) as server:
        for place in "", "127.0.0.1:1":
            with pytest.raises(StoreUnavailable, match="no node"):
                await server.time(place)
        ((place, slots),) = server.slots.items()
        assert slots == SLOTS
        assert await server.time(place) > 0
