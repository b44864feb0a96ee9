"""The ACL line of docs/how-to/redis.md: everything that a relay does works with it, and nothing more."""

from __future__ import annotations

import re
from collections.abc import Iterator

import anyio
import pytest
import redis as sync_redis

from relay.core.dispatch import Dispatch, ListPolicy, StreamPolicy
from relay.core.endpoints.announcement import Announcement
from relay.core.errors import ServiceError, StoreRefused
from relay.core.journal import Journals
from relay.core.outcomes import ClaimRequest, Extension, Limits, Verb
from relay.core.partitions import Layout
from relay.core.policy import RetryPolicy, TopicPolicy
from relay.core.recurring.calendars import NO_CALENDARS
from relay.core.recurring.forecast import Window
from relay.core.recurring.nominal import Nominal
from relay.core.recurring.recurrence import Put, Recurrence, Standing, Turned
from relay.core.recurring.rule import Rule
from relay.core.recurring.turns import turn
from relay.core.timers import KEEP_EXISTING, Change, Changed, NewTimer
from relay.core.trust.actions import Action
from relay.store.bulk.applying import Applying, BatchLedger
from relay.store.bulk.columns_call import LoadRows, PackedRows
from relay.store.bulk.inserting import Inserting, RunLedger
from relay.store.bulk.lookup import present_now
from relay.store.bulk.scanning import cut, read
from relay.store.bulk.shared_rate import Pace
from relay.store.bulk.store import BulkStore
from relay.store.dispatch.promotions import RedisPromotions
from relay.store.dispatch.stream_groups import RedisGroups
from relay.store.journal.entries import JournalReader
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.forecasts import RedisForecasts
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.recurrences import RedisRecurrences
from relay.store.server.blocking import BlockingServer
from relay.store.server.fitness import check_server
from relay.store.server.hints import RedisHints
from relay.store.server.server import Server
from relay.store.timeline.actions import RedisActions
from relay.store.timeline.announcements import RedisAnnouncements
from relay.store.timeline.calendars import RedisCalendars
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from relay.store.verbs import move
from tests.docs import pages
from tests.servers import KINDS, Kind, RunningServer, server_id, start_server
from tests.settlements import end_of
from tests.store.moving import IDS, Relay, nothing
from tests.worlds.cluster.cluster import Cluster

PAGE = "".join(block.text for block in pages.run_by(__file__))
SECOND = 1_000_000
LATER = 4_000_000_000_000_000
JOURNALS = Journals(lambda topic: 5 if topic == "t" else 0)
N1, N2 = b"relay-1-nonce-01", b"relay-1-nonce-02"

pytestmark = pytest.mark.checkout


def documented() -> list[str]:
    """The rules of the page's ACL line."""
    found = re.search(r"^ACL SETUSER relay ((?:.*\\\n)*.*)$", PAGE, re.MULTILINE)
    assert found
    return found[1].replace("\\\n", " ").split()


def besides(part: str) -> list[str]:
    """The rules of the line that begins with this one: for a list, a stream, a move, or a Cluster."""
    lines = PAGE.replace("\\\n", " ").splitlines()
    (line,) = (each for each in lines if each.startswith(f"ACL SETUSER relay {part}"))
    return line.split()[3:]


RULES = documented() if PAGE else []
LIST_RULES = besides("~timers_ready") if PAGE else []
STREAM_RULES = besides("~timers_stream") if PAGE else []
MOVE_RULES = besides("+rename") if PAGE else []
CLUSTER_RULES = besides("+cluster") if PAGE else []


@pytest.fixture(params=KINDS, ids=server_id)
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    kind: Kind = request.param
    with start_server(kind) as server:
        yield server


def become(server: RunningServer, rules: list[str], *, flush: bool = True) -> str:
    """Make the user anew; its URL. The server forgets all scripts, and timers unless `flush` is false."""
    with server.client() as operator:
        if flush:
            operator.flushall()
        operator.script_flush()
        operator.execute_command("ACL", "DELUSER", "relay")
        operator.execute_command("ACL", "SETUSER", "relay", *rules)
    password = next(rule for rule in rules if rule.startswith(">"))[1:]
    return server.url.replace("://", f"://relay:{password}@")


async def shortcomings(server: RunningServer, url: str, *, patience: float = 1.0) -> list[str]:
    """All that a relay does, as one user; what did not work. `patience`: seconds that a hint may take."""
    way = Server(url, connections=2, timeout=60.0, journals=JOURNALS)
    try:
        await check_server(way, allow_eviction=False)
        store = RedisStore(way)
        await verbs(store)
        await people(store, RedisTopics(way))
        await recorded(way)
        await recurring(way)
        for _ in range(2):
            assert await RedisLayouts(way, lambda _: 4).ask("new") == Layout("new", 1, 4)
        assert await JournalReader(way).read("t")
        names = [] if "relay" in names_on(server) else ["the connection has no name"]
        return names + await deafness(store, RedisHints(way), patience)
    except ServiceError as failure:
        return [str(failure)]
    finally:
        await way.aclose()


async def verbs(store: RedisStore) -> None:
    """Every script, each by its text and by its digest."""
    for _ in range(2):
        await store.ping()
        now = [NewTimer(name, b"x", delay=0) for name in "abc"]
        await store.schedule("t", [*now, NewTimer("d", b"x", due=LATER), NewTimer("e", b"x", due=LATER)])
        await store.claim("t", ClaimRequest(limit=3, lease=30 * SECOND, nonce=N1, max_bytes=1 << 20))
        await store.extend("t", [Extension("a", N1, received=True)], lease=30 * SECOND)
        ends = [end_of("a", N1, Verb.ACK), end_of("b", N1, Verb.NACK, retry_after=0)]
        await store.settle("t", [*ends, end_of("c", N1, Verb.RELEASE)])
        assert await store.get("t", "d")
        page = await store.list(Layout("t"), state=None, limit=3, cursor="")
        assert (await store.list(Layout("t"), state=None, limit=3, cursor=page.cursor)).timers
        assert (await store.list(Layout("t"), state=None, limit=3, cursor="", max_bytes=9)).timers
        await store.run("t", ["d"])
        assert await store.cancel("t", list("bcde")) == [Changed(Change.CANCELLED)] * 4


async def recurring(way: Server) -> None:
    """Recurrences and calendars: kept, ticked, read, removed."""
    recurrences, calendars = RedisRecurrences(way, Carrier(way)), RedisCalendars(way)
    for _ in range(2):
        wanted = Recurrence("r", Rule(every=SECOND, calendars=("c",)), b"x")
        assert await recurrences.keep("t", None, wanted, Standing(1, 1, 0), 0, reason="put")
        due = await recurrences.due("t", 9)
        made = turn(due.kept[0], [Nominal(1, 0), Nominal(LATER, 0)], due.now, "")
        assert await recurrences.turn("t", [made], due.now) == [Turned.DONE]
        names = [each.timer_id for each in made.occurrences]
        assert await recurrences.occurrences(Layout("t"), "r") == names
        page = await recurrences.page(Layout("t"), prefix="", limit=9, cursor="")
        assert await recurrences.remove("t", page.kept[0])
        await RedisStore(way).cancel("t", names)
        assert await calendars.put("c", ["2026-12-25"]) is Put.CREATED
        assert (await calendars.read(NO_CALENDARS)).dates == {"c": {"2026-12-25"}}
        assert await calendars.remove("c")


async def recorded(way: Server) -> None:
    """The action log, and the relays that live."""
    relays = RedisAnnouncements(way)
    await relays.announce(Announcement("1", "orders-a", "0.1.0"))
    assert [each.name for each in await relays.living()] == ["orders-a"]
    await relays.leave("1")
    record = RedisActions(way)
    entry = await record.append(Action("token:a", "operate", "PauseTopic", "t"))
    assert await record.append(Action("relay", "admin", "TakeOverPolicy", "*"), once=entry)
    assert len([each async for each in record.behind("0-0")]) > 1


async def people(store: RedisStore, topics: RedisTopics) -> None:
    """What they do to topics and to the dead."""
    keep, forecasts = Limits(keep=True), RedisForecasts(topics._server)
    for _ in range(2):
        await topics.register("t")
        assert await topics.topics() == ["t"]
        await topics.lock("janitor", ttl=SECOND)
        await topics.pause("t", duration=SECOND)
        await topics.resume("t")
        for n in range(3):
            nonce = bytes([n + 1]) * 16
            await store.schedule("t", [NewTimer("a", b"x", due=n)], max_waiting=1)
            await store.claim("t", ClaimRequest(limit=1, lease=SECOND, nonce=nonce, max_bytes=1))
            await store.settle("t", [end_of("a", nonce, Verb.REJECT)], limits=keep)
        first, second, _ = (await topics.dead_page("t", limit=5, cursor="")).letters
        assert await topics.dead_letter("t", first.dead_id)
        assert await topics.redrive("t", [first.dead_id]) == [Change.RUN]
        assert await topics.purge("t", [second.dead_id]) == 1
        assert (await topics.stats("t")).dead == 1
        assert (await forecasts.read(Layout("t"), Window())).leased == 0
        assert await topics.trim("t", max_count=9, max_age=1) >= 0
        if left := (await topics.dead_page("t", limit=5, cursor="")).letters:
            await topics.purge("t", [each.dead_id for each in left])
        await store.cancel("t", ["a"])
        assert await topics.orphans("t", limit=5) == ([], False)
        assert await topics.orphans("t", limit=5) == ([], True)
        assert await topics.repair("t", ["nobody"]) == (0, 0)


def names_on(server: RunningServer) -> list[str]:
    with server.client() as operator:
        return [each["name"] for each in operator.client_list()]


async def deafness(store: RedisStore, hints: RedisHints, patience: float) -> list[str]:
    """Listen to two topics, of one node in a Cluster of two; leave one, hear of the other."""
    heard: list[int] = []
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        await hints.watch("one", lambda _: heard.append(-1))
        await hints.watch("three", heard.append)

        async def happens(what: int) -> bool:
            with anyio.move_on_after(patience):
                while what not in heard and not hints.is_deaf:  # noqa: ASYNC110  (the condition is another task's doing)
                    await anyio.sleep(0.001)
            return what in heard and not hints.is_deaf

        problems = [] if await happens(0) and await happens(-1) else ["subscriptions fail"]
        await hints.unwatch("one")
        heard.clear()
        await store.schedule("three", [NewTimer("a", b"", due=LATER)])
        if not problems and not await happens(LATER):
            problems.append("hints are not heard")
        group.cancel_scope.cancel()
    await store.cancel("three", ["a"])
    return problems


async def test_everything_works(server: RunningServer) -> None:
    """Start check, all verbs, hints, the connections' name."""
    assert await shortcomings(server, become(server, RULES), patience=60.0) == []


@pytest.mark.slow
async def test_each_rule_is_needed(server: RunningServer) -> None:
    """Without any one of them something does not work."""
    idle = []
    for rule in RULES:
        if rule.startswith(">") or (rule == "resetchannels" and server.kind != "redis-6"):
            continue  # Redis 6.2 alone gives a new user all channels
        rest = [each for each in RULES if each != rule]
        try:
            url = become(server, rest)
        except sync_redis.ResponseError:
            continue  # the line itself is refused
        if not await shortcomings(server, url):
            idle.append(rule)
    assert not idle, "these do nothing"


async def dispatched(url: str, dispatch: Dispatch) -> list[str]:
    """All that a relay does with a list or a stream; what did not work."""
    stream = StreamPolicy("billing", max_length=1)
    policy = TopicPolicy(dispatch=dispatch, stream=stream, ready=ListPolicy(1e-6), retry=RetryPolicy(2))
    async with Server(url, connections=2, timeout=60.0, journals=JOURNALS) as server:
        store, topics = RedisStore(server), RedisTopics(server)
        promotions = RedisPromotions(server, lambda _: policy)
        groups = RedisGroups(server, lambda _: policy)
        try:
            for n in range(2):
                names = [NewTimer(name, b"x", delay=0) for name in "abcde"]
                await store.schedule("t", names)
                assert (await promotions.promote("t", limit=9, nonce=bytes([n + 1]) * 16)).promoted == 5
                if dispatch is Dispatch.LIST:
                    await server.ask("RPOPLPUSH", "timers_ready:t", "timers_processing:t")
                    await promotions.tidy("t")
                    await promotions.tidy("t")
                    continue
                limits = Limits(max_attempts=2, keep=True)
                claim = await groups.claim(
                    "t", ClaimRequest(limit=9, lease=1000, nonce=N1, max_bytes=100, limits=limits)
                )
                a, b, c, d, e = claim.timers[:5]
                await groups.extend("t", [Extension("a", a.proof, received=True)], lease=1000)
                ends = [(a, Verb.ACK), (b, Verb.NACK), (c, Verb.REJECT), (d, Verb.RELEASE)]
                again = end_of("e", e.proof, Verb.RESCHEDULE, again=NewTimer("e", b"", delay=0))
                settled = [end_of(timer.timer_id, timer.proof, verb) for timer, verb in ends]
                await groups.settle("t", [*settled, again], limits=limits)
                groups._rounds.clear()
                await anyio.sleep(0.002)  # the lease
                left = await groups.claim("t", ClaimRequest(limit=9, lease=1000, nonce=N2, max_bytes=100))
                once = {x.timer_id: x for x in left.timers}  # with such a lease one may come twice in a claim
                await groups.settle("t", [end_of(x.timer_id, x.proof, Verb.ACK) for x in once.values()])
                letters = (await topics.dead_page("t", limit=9, cursor="")).letters
                assert await topics.redrive("t", [letters[0].dead_id]) == [Change.RUN]
                await promotions.tidy("t")
            await promotions.state("t")
        except ServiceError as failure:
            return [str(failure)]
    return []


@pytest.mark.parametrize(
    ("dispatch", "rules"), [(Dispatch.LIST, LIST_RULES), (Dispatch.STREAM, STREAM_RULES)]
)
async def test_lists_and_streams(server: RunningServer, dispatch: Dispatch, rules: list[str]) -> None:
    """Work with what the page wants besides, and each of it is needed."""
    workers = ["+rpoplpush"] if dispatch is Dispatch.LIST else []
    assert await dispatched(become(server, [*RULES, *rules, *workers]), dispatch) == []
    idle = []
    for rule in rules:
        rest = [each for each in rules if each != rule]
        if not await dispatched(become(server, [*RULES, *rest, *workers]), dispatch):
            idle.append(rule)
    assert not idle, "these do nothing"


async def moved(url: str) -> list[str]:
    """Change how many partitions a topic has, after somebody has left a batch on its way; what did not
    work."""
    async with Server(url, connections=2, timeout=60.0) as server:
        relay = Relay(server, "orders")
        try:
            await relay.put(*IDS[:20])
            await relay.put("due", due=0)
            assert "due" in await relay.claim()
            layout = await relay.moves.begin("orders", 2)
            left = [name for name in IDS[:20] if relay.at(name) in layout.emptied]
            await server.call(move.leave(layout.partitions[0], "t", left[:1]))
            await relay.moves.run(layout, nothing)
            await relay.move(1)
        except ServiceError as failure:
            return [str(failure)]
    return []


async def test_moves(server: RunningServer) -> None:
    """They work with what the page wants besides, and each of it is needed."""
    assert await moved(become(server, [*RULES, *MOVE_RULES])) == []
    idle = [
        rule
        for rule in MOVE_RULES
        if not await moved(become(server, [*RULES, *(each for each in MOVE_RULES if each != rule)]))
    ]
    assert not idle, "these do nothing"


async def clustered(cluster: Cluster, rules: list[str]) -> list[str]:
    """All that a relay does in a Cluster, on a slot that moves too; what did not work."""
    for node in cluster.nodes:
        become(node, rules)
    url = cluster.url.replace("://", "://relay:a-long-password@")
    there = cluster.owner_of("t")
    assert there
    problems = await shortcomings(there, url)
    if problems:
        return problems
    source, target = cluster.nodes
    topic = cluster.topic_at(source)
    async with Server(url, connections=1, timeout=60.0) as server:
        await RedisStore(server).schedule(topic, [NewTimer("a", b"x", due=LATER)])
        cluster.begin_move(topic, source, target)
        cluster.carry(topic, source, target)
        try:
            await server.ask("ZCARD", server.keys.key("timeline", topic))
        except ServiceError as failure:
            problems = [str(failure)]
        cluster.end_move(topic, target)
    return problems


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=server_id)
async def test_a_cluster(kind: Kind) -> None:
    """Works with what the page wants besides, and each of it is needed."""
    rules = ["+cluster", "+asking"] if kind == "redis-6" else CLUSTER_RULES
    with Cluster(kind, masters=2) as cluster:
        assert await clustered(cluster, [*RULES, *rules]) == []
        idle = []
        for rule in rules:
            rest = [each for each in rules if each != rule]
            if not await clustered(cluster, [*RULES, *rest]):
                idle.append(rule)
    assert not idle, "these do nothing"


@pytest.mark.parametrize(
    "command",
    [
        "INCR timers_pause:t",
        "GET other:t",
        "SET x 1",
        "UNLINK timers_timeline:t",
        "DEL other:t",
        "HGETALL timers_payloads:t",
        "ZADD other:t 1 a",
        "HSET other:t a 1",
        "XADD other:t * a 1",
        "XREAD STREAMS timers_dead:t 0",
        "SMEMBERS timers_topics",
        "SREM timers_topics a",
        "PUBLISH other:t 1",
        "SUBSCRIBE other:t",
        "PSUBSCRIBE *",
        "KEYS *",
        "SCAN 0",
        "FLUSHALL",
        "CONFIG GET maxmemory",
        "CLIENT LIST",
        "CLIENT KILL TYPE normal",
        "SCRIPT FLUSH",
        "ACL LIST",
        "REPLICAOF NO ONE",
        "SELECT 1",
        "EVAL return(redis.call('APPEND',KEYS[1],1)) 1 timers_pause:t",
        "EVAL return(redis.call('SET',KEYS[1],1)) 1 other:t",
        "EVAL return(redis.call('ZADD',KEYS[1],1,'a')) 1 other:t",
    ],
)
async def test_nothing_more_works(server: RunningServer, command: str) -> None:
    """Other commands, other keys and other channels are refused, in scripts too."""
    become(server, RULES)
    password = next(rule for rule in RULES if rule.startswith(">"))[1:]
    with (
        server.client(username="relay", password=password) as user,
        pytest.raises(sync_redis.ResponseError, match=r"NOPERM|permission|can't run this command"),
    ):
        user.execute_command(*command.split())


async def test_another_database(server: RunningServer) -> None:
    """A URL with a database other than 0 needs SELECT besides."""
    url = become(server, RULES).removesuffix("0") + "1"
    assert "select" in "".join(await shortcomings(server, url)).lower()
    become(server, [*RULES, "+select"])
    assert await shortcomings(server, url, patience=60.0) == []


async def test_without_channels_all_else_works(server: RunningServer) -> None:
    """A user without any right on channels schedules and delivers, and polls."""
    url = become(server, [rule for rule in RULES if not rule.startswith(("&", "+publish", "+subscribe"))])
    assert await shortcomings(server, url) == ["subscriptions fail"]


async def test_without_a_name_all_works(server: RunningServer) -> None:
    """The name of the connections is for people."""
    url = become(server, [rule for rule in RULES if rule != "+client|setname"])
    assert await shortcomings(server, url) == ["the connection has no name"]


def test_a_load_needs_no_more(server: RunningServer) -> None:
    """What docs/how-to/pipeline.md says: a relay's rules do for a load that replaces, and for whoever
    reads."""
    with BulkStore(BlockingServer(become(server, RULES), journals=JOURNALS)) as store:
        for topic in ("plain", "t"):
            store.replace(topic, PackedRows.of(LoadRows(0, ["a"], [LATER], [b"x"], [], [LATER + 1])))
        store.flush()
        Pace(store, 1e6).turn(1)
        assert store.topics() == ["plain", "t"]
        assert store.now() > 0
        for topic in ("plain", "t"):
            parts = cut(store, topic, 2, low=1, high=LATER + 2)
            pages = [page for part in parts for page in read(store, part, envelopes=True)]
            assert [page.timer_ids for page in pages] == [[b"a"]]


def test_a_load_in_a_cluster_needs_no_more() -> None:
    """A relay's rules for a Cluster do for a load there."""
    with Cluster(masters=2) as cluster:
        for node in cluster.nodes:
            become(node, [*RULES, *CLUSTER_RULES])
        url = cluster.url.replace("://", "://relay:a-long-password@")
        refused: list[str] = []
        with BulkStore(BlockingServer(url, journals=JOURNALS, on_refused_hint=refused.append)) as store:
            topics = ["t", *(cluster.topic_at(node) for node in cluster.nodes)]
            for topic in topics:
                store.replace(topic, PackedRows.of(LoadRows(0, ["a"], [LATER], [b"x"], [], [LATER + 1])))
            store.flush()
            Pace(store, 1e6).turn(1)
            assert store.topics() == sorted(topics)
            source, target = cluster.nodes
            cluster.begin_move(topics[1], source, target)
            cluster.carry(topics[1], source, target)
            assert store.count(topics[1]) == 1
            cluster.end_move(topics[1], target)
            for topic in topics:
                pages = [page for part in cut(store, topic, 2) for page in read(store, part, envelopes=True)]
                assert [page.timer_ids for page in pages] == [[b"a"]]
        assert refused == []


def test_an_audit_needs_transactions_besides(server: RunningServer) -> None:
    """What docs/how-to/pipeline.md says: `+multi` and `+exec`, to look for timers."""
    with BlockingServer(become(server, RULES)) as limited, pytest.raises(StoreRefused, match="exec"):
        list(present_now(limited, Layout("t"), ["a"]))
    with BlockingServer(become(server, [*RULES, "+multi", "+exec"])) as limited:
        assert list(present_now(limited, Layout("t"), ["a"])) == [(False, False)]


@pytest.mark.parametrize("missing", [None, "~timers_ledger:*", "+smismember", "+expire", "+unlink"])
def test_a_stream_needs_its_ledger_besides(server: RunningServer, missing: str | None) -> None:
    """What docs/how-to/pipeline.md says of a stream: its second batch puts its ledger in the place of the
    first's. `+smismember` is for topics that have, or had, several partitions."""
    needed = ("~timers_ledger:*", "+smismember", "+expire", "+unlink")
    rules = [rule for rule in needed if rule != missing]
    with BulkStore(BlockingServer(become(server, [*RULES, *rules]), journals=JOURNALS)) as store:

        def two_batches(topic: str) -> None:
            for batch in (1, 2):
                BatchLedger(store, "r", batch).decided_elsewhere(f"{topic}#0 1 1", lambda: [b"a"])
                applying = Applying(store, "r", batch)
                applying.apply(topic, PackedRows.of(LoadRows(0, ["a"], [LATER], [b"x"], [], [LATER + 1])))
                store.flush()
                assert applying.done.scheduled == 1

        for topic in ("plain", "t"):
            if missing is None:
                two_batches(topic)
            else:
                with pytest.raises(StoreRefused):
                    two_batches(topic)


@pytest.mark.parametrize("missing", [None, "~timers_ledger:*", "+smismember", "+expire"])
def test_a_run_needs_its_ledger_besides(server: RunningServer, missing: str | None) -> None:
    """What docs/how-to/pipeline.md says of a load that can be repeated, and nothing of it can be left out."""
    rules = [rule for rule in ("~timers_ledger:*", "+smismember", "+expire") if rule != missing]
    with BulkStore(BlockingServer(become(server, [*RULES, *rules]), journals=JOURNALS)) as store:
        for topic in ("plain", "t"):
            inserting = Inserting(store, "r", on_conflict=KEEP_EXISTING)
            rows = PackedRows.of(LoadRows(0, ["a"], [LATER], [b"x"], [], [LATER + 1]))
            inserting.insert(topic, rows)
            if missing is None:
                inserting.flush()
                ledger = RunLedger(store, "r")
                ledger.note_told(topic, [b"a", b"b"])
                assert ledger.is_told(topic, [b"b", b"c"]) == [True, False]
            else:
                with pytest.raises(StoreRefused):
                    inserting.flush()
