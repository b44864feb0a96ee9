"""What people do to a topic of four partitions, on each real server, with hash tags and without."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pytest

from relay.core.errors import InvalidField, OtherLayout, WrongKeyType
from relay.core.instants import LATEST, SECOND
from relay.core.partitions import Layout
from relay.core.ports import OnePartition, TopicStore
from relay.core.timers import Change, DeadLetter, NewTimer, TimerState
from relay.store.keys import KeyNames
from relay.store.partitions.carrying import Carrier
from relay.store.partitions.layouts import RedisLayouts
from relay.store.partitions.timers import PartitionedTimers
from relay.store.partitions.topics import PartitionedTopics
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from relay.store.timeline.topics import RedisTopics
from tests.worlds.scripts.asking import N1, NOW, Leasing
from tests.worlds.scripts.states import Letter, written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer

HOUR = 3600 * SECOND
LATER = 4_000_000_000 * SECOND
IDS = [f"t{n}" for n in range(50)]


class Topic:
    """A topic of four partitions, and the calls about it."""

    def __init__(self, server: Server, running: RunningServer, topic: str) -> None:
        self.server, self.topic = server, topic
        self.raw = running.client()
        self.layouts = RedisLayouts(server, lambda _: 4)
        self.parts, carrier = RedisTopics(server), Carrier(server)
        self.store = PartitionedTimers(
            RedisStore(server, arrive=carrier.arrive), self.parts, self.layouts, server, carrier
        )
        self.topics = PartitionedTopics(self.parts, self.layouts, carrier)
        self.layout = Layout(topic, 1, 4)

    def key(self, name: str, partition: int) -> str:
        return self.server.keys.key(name, self.layout.partitions[partition])

    async def put(self, *timer_ids: str, due: int = LATER) -> None:
        for timer_id in timer_ids:
            await self.store.schedule(self.layout.partition(timer_id), [NewTimer(timer_id, b"x", due)])

    def bury(self, partition: int, entry: str, timer_id: str) -> None:
        """Put a dead letter into a partition, under this id."""
        letter = Letter(timer_id, "rejected", 1, 1, 1.0, NOW, N1)
        fields = {name: written(value) for name, value in letter._asdict().items()}
        self.raw.xadd(self.key("dead", partition), cast("Any", fields), id=entry)

    async def letters(self, limit: int) -> list[DeadLetter]:
        """All pages."""
        found: list[DeadLetter] = []
        cursor = ""
        while True:
            page = await self.topics.dead_page(self.topic, limit=limit, cursor=cursor)
            assert len(page.letters) <= limit
            found += page.letters
            if not page.cursor:
                return found
            cursor = page.cursor

    async def contents(self) -> dict[str, object]:
        return {str(key): self.raw.dump(key) for key in self.raw.keys("*")}


@pytest.fixture(params=[False, True], ids=["plain", "tagged"])
async def four(
    request: pytest.FixtureRequest, redis_server: RunningServer, keyspace: Keyspace
) -> AsyncIterator[Topic]:
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    names = KeyNames(hash_tags=request.param)
    async with Server(redis_server.url, names, connections=4, timeout=60.0) as server:
        four = Topic(server, redis_server, topic)
        assert await four.layouts.ask(topic) == four.layout
        yield four
        four.raw.close()


def plain(four: Topic, topics: TopicStore | None = None) -> PartitionedTopics:
    """A relay whose setting says that topics have one partition."""
    return PartitionedTopics(topics or four.parts, RedisLayouts(four.server), Carrier(four.server))


# ------------------------------------------------------------------------------- how it stands


async def test_stats(four: Topic) -> None:
    """Sums, the earliest of the firsts and of the deaths, and the topic's own name; an overview says the
    same."""
    await four.put(*IDS)
    await four.put("first", due=NOW)
    four.bury(1, "2000-0", "a")
    four.bury(3, "1000-5", "b")
    stats = await four.topics.stats(four.topic)
    assert (stats.topic, stats.partitions) == (four.topic, 4)
    assert (stats.timers, stats.due, stats.first) == (51, 1, NOW)
    assert (stats.dead, stats.oldest_death, stats.paused_until) == (2, SECOND, None)
    assert stats.now > NOW
    (seen,) = await four.topics.overview([four.topic])
    assert replace(seen, now=0) == replace(stats, now=0)


async def test_an_overview_of_many(four: Topic, keyspace: Keyspace) -> None:
    """A topic of which a partition can't be read is left out, and hides no other; the order is the
    caller's. The server knows neither of the scripts yet that topics with a layout and without one take."""
    four.raw.script_flush()
    other, single = keyspace.topic("other"), keyspace.topic("single")
    for each in (other, single):
        keyspace.allow(f"*{each}*")
    await four.store.schedule(single, [NewTimer("a", b"x", LATER)])
    found = await four.topics.overview([other, four.topic, single])
    assert [(stats.topic, stats.partitions, stats.timers) for stats in found] == [
        (other, 4, 0),
        (four.topic, 4, 0),
        (single, 1, 1),
    ]
    four.raw.set(four.key("timeline", 2), "somebody else's")
    assert [stats.topic for stats in await four.topics.overview([other, four.topic])] == [other]
    with pytest.raises(WrongKeyType):
        await four.topics.stats(four.topic)


async def test_an_overview_learns(four: Topic) -> None:
    """A relay that takes the topic for one of one partition finds that it has four."""
    await four.put(*IDS)
    relay = plain(four)
    for _ in range(2):
        (stats,) = await relay.overview([four.topic])
        assert (stats.timers, stats.partitions) == (50, 4)


# -------------------------------------------------------------------------------------- pauses


async def test_a_pause(four: Topic) -> None:
    """It holds in all partitions until one instant."""
    await four.put(*IDS, due=NOW)
    end = await four.topics.pause(four.topic, duration=HOUR)
    stats = [await four.parts.stats(name) for name in four.layout.partitions]
    assert {each.paused_until for each in stats} == {end}
    assert (await four.topics.stats(four.topic)).paused_until == end
    for name in four.layout.partitions:
        assert await Leasing(four.store, name).claimed() == []
    assert await four.topics.pause(four.topic) == LATEST
    await four.topics.resume(four.topic)
    assert (await four.topics.stats(four.topic)).paused_until is None
    claims = [await Leasing(four.store, name).claimed() for name in four.layout.partitions]
    assert sorted(chain(*claims)) == sorted(IDS)


async def test_a_pause_that_is_past(four: Topic) -> None:
    """It is refused whole, and what stands goes on."""
    before = await four.contents()
    assert await four.topics.pause(four.topic, until=NOW) is None
    assert await four.contents() == before


async def test_a_pause_of_which_a_part_fails(four: Topic) -> None:
    """It is an error, though the other partitions are paused, and the topic says so; the next one is
    whole."""
    four.raw.set(four.key("timeline", 2), "somebody else's")
    with pytest.raises(WrongKeyType):
        await four.topics.pause(four.topic)
    four.raw.delete(four.key("timeline", 2))
    assert (await four.topics.stats(four.topic)).paused_until == LATEST
    assert (await four.parts.stats(four.layout.partitions[2])).paused_until is None
    assert await four.topics.pause(four.topic) == LATEST
    assert (await four.parts.stats(four.layout.partitions[2])).paused_until == LATEST


# -------------------------------------------------------------------------------- dead letters

BURIED = [
    *((partition, "5-0") for partition in range(4)),
    *((partition, "5-1") for partition in (3, 1)),
    *((0, f"{n}-0") for n in range(6, 12)),
    (2, "4-7"),
    (1, "9-0"),
    (3, "20-0"),
]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
async def test_pages_of_dead_letters(four: Topic, limit: int) -> None:
    """In the order of their entries over all partitions, each once, where entries are equal, too."""
    order = sorted(BURIED, key=lambda each: (*map(int, each[1].split("-")), each[0]))
    for partition, entry in order:
        four.bury(partition, entry, f"{entry}/{partition}")
    letters = await four.letters(limit)
    assert [letter.dead_id for letter in letters] == [f"{entry}#{partition}" for partition, entry in order]
    assert [letter.timer_id for letter in letters] == [f"{entry}/{partition}" for partition, entry in order]


async def test_letters_that_come_and_go_between_pages(four: Topic) -> None:
    """A token goes on behind its letter, whether that is still there or not."""
    for partition in range(4):
        four.bury(partition, "5-0", "a")
    page = await four.topics.dead_page(four.topic, limit=2, cursor="")
    assert page.cursor == "5-0#1"
    four.raw.xdel(four.key("dead", 1), "5-0")
    four.bury(1, "5-1", "b")
    rest = await four.topics.dead_page(four.topic, limit=10, cursor=page.cursor)
    assert [letter.dead_id for letter in rest.letters] == ["5-0#2", "5-0#3", "5-1#1"]
    assert rest.cursor == ""


async def test_a_letter_by_its_id(four: Topic) -> None:
    four.bury(2, "5-0", "a")
    letter = await four.topics.dead_letter(four.topic, "5-0#2")
    assert letter is not None
    assert (letter.dead_id, letter.timer_id, letter.payload) == ("5-0#2", "a", b"payload")
    assert await four.topics.dead_letter(four.topic, "5-0#1") is None


async def test_redrive_and_purge(four: Topic) -> None:
    """Each where it died; the answers are in the caller's order."""
    for timer_id in IDS[:8]:
        partition = four.layout.partitions.index(four.layout.partition(timer_id))
        four.bury(partition, f"5-{timer_id[1:]}", timer_id)
    names = [letter.dead_id for letter in await four.letters(100)]
    assert {name.partition("#")[2] for name in names} >= {"0", "1"}, "some in several partitions"
    await four.put("t3")
    asked = [*names[:5], "5-99#2"][::-1]
    changes = await four.topics.redrive(four.topic, asked)
    assert changes == [Change.GONE, Change.RUN, Change.UNCHANGED, Change.RUN, Change.RUN, Change.RUN]
    for timer_id in IDS[:5]:
        assert await four.store.get(four.layout.partition(timer_id), timer_id) is not None
    assert await four.topics.purge(four.topic, names) == 4
    assert await four.letters(100) == []


@pytest.mark.parametrize("dead_id", ["5-0", "5-0#4", "5-0#01", "5-0#-1", "5#0", "x", "5-0#0#0", "٥-0#0", ""])
async def test_a_foreign_dead_id(four: Topic, dead_id: str) -> None:
    """It is refused by the field's name, and nothing of the call happens."""
    four.bury(0, "5-0", "a")
    for work in (four.topics.redrive, four.topics.purge):
        with pytest.raises(InvalidField, match=r"^dead_id: .*is not one that a listing gave"):
            await work(four.topic, ["5-0#0", dead_id])
    with pytest.raises(InvalidField, match=r"^dead_id: "):
        await four.topics.dead_letter(four.topic, dead_id)
    if dead_id:
        with pytest.raises(InvalidField, match=r"^page_token: "):
            await four.topics.dead_page(four.topic, limit=5, cursor=dead_id)
    assert [letter.dead_id for letter in await four.letters(5)] == ["5-0#0"]


async def test_trim(four: Topic) -> None:
    """Each partition keeps its share, so that all together keep no more than the bound."""
    for partition in range(4):
        for n in range(1, 6):
            four.bury(partition, f"{n}-0", "a")
    assert await four.topics.trim(four.topic, max_count=10, max_age=0) == 12
    assert [letter.dead_id for letter in await four.letters(100)] == [
        f"{n}-0#{partition}" for n in (4, 5) for partition in range(4)
    ]


# ------------------------------------------------------------------------------------- orphans


async def test_orphans(four: Topic) -> None:
    """All partitions are searched, one after the other, and an orphan goes wherever it lies."""
    await four.put(*IDS)
    for partition in range(4):
        four.raw.hset(four.key("payloads", partition), f"orphan{partition}", "x")
    four.raw.hset(four.key("leases", 0), "orphan0", "x")
    found: set[str] = set()
    done, calls = False, 0
    while not done:
        ids, done = await four.topics.orphans(four.topic, limit=1000)
        found.update(ids)
        calls += 1
    assert (found, calls) == ({f"orphan{n}" for n in range(4)}, 8)
    assert await four.topics.repair(four.topic, sorted(found)) == (4, 1)
    assert (await four.topics.stats(four.topic)).timers == 50
    assert four.raw.get(four.server.keys.key("layout", four.topic)) == b"1 4"


# ---------------------------------------------------------------------------- what is presumed


async def test_a_topic_that_is_presumed_to_have_one_partition(four: Topic) -> None:
    """Redis refuses each call, and it begins again with the partitions that there are."""
    await four.put(*IDS)
    four.bury(2, "5-0", "a")
    assert (await plain(four).stats(four.topic)).timers == 50
    assert await plain(four).pause(four.topic) == LATEST
    assert (await four.parts.stats(four.layout.partitions[3])).paused_until == LATEST
    await plain(four).resume(four.topic)
    page = await plain(four).dead_page(four.topic, limit=5, cursor="")
    assert [letter.dead_id for letter in page.letters] == ["5-0#2"]
    assert await plain(four).dead_letter(four.topic, "5-0#2") is not None
    assert await plain(four).redrive(four.topic, ["5-0#2"]) == [Change.RUN]
    assert await plain(four).purge(four.topic, ["5-0#2"]) == 0
    assert await plain(four).trim(four.topic, max_count=4, max_age=0) == 0
    assert await plain(four).orphans(four.topic, limit=1000) == ([], False)
    assert await plain(four).repair(four.topic, ["a"]) == (0, 0)


async def test_a_topic_of_one_partition(four: Topic, keyspace: Keyspace) -> None:
    """Its dead letters have the names that they always had, and its calls are not preceded by a question."""
    topic = keyspace.topic()
    keyspace.allow(f"*{topic}*")
    single, layout = plain(four), Layout(topic)
    letter = Letter("a", "rejected", 1, 1, 1.0, NOW, N1)
    fields = {name: written(value) for name, value in letter._asdict().items()}
    four.raw.xadd(four.server.keys.key("dead", topic), cast("Any", fields), id="5-0")
    four.raw.config_resetstat()
    page = await single.dead_page(topic, limit=5, cursor="")
    assert [each.dead_id for each in page.letters] == ["5-0"]
    assert (await single.stats(topic)).partitions == layout.count
    calls = cast("dict[str, dict[str, int]]", four.raw.info("commandstats"))
    scripts = sum(calls.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))
    assert scripts <= 4, "two calls, each of which may have had to bring its script"
    with pytest.raises(InvalidField, match=r"^dead_id: "):
        await single.redrive(topic, ["5-0#0"])
    assert await single.redrive(topic, ["5-0"]) == [Change.RUN]


async def test_a_layout_that_never_settles(four: Topic) -> None:
    """A call begins again twice, and then it is the caller's."""
    tries: list[str] = []

    class Elsewhere(RedisTopics):
        async def resume(self, topic: str) -> None:
            tries.append(topic)
            raise OtherLayout("1 8")

    topics = PartitionedTopics(Elsewhere(four.server), OnePartition(), Carrier(four.server))
    with pytest.raises(OtherLayout):
        await topics.resume(four.topic)
    assert tries == [four.topic] * 3


# --------------------------------------------------------------------------------------- lists


async def pages(four: Topic, limit: int, state: TimerState | None = None) -> list[list[str]]:
    found: list[list[str]] = []
    cursor = ""
    while True:
        page = await four.store.list(four.layout, state=state, limit=limit, cursor=cursor)
        found.append([timer.timer_id for timer in page.timers])
        if not page.cursor:
            return found
        cursor = page.cursor


async def test_lists(four: Topic) -> None:
    """Timers of all partitions by due time, then by id: each once, also where many have one due time."""
    for n, timer_id in enumerate(IDS):
        await four.put(timer_id, due=LATER + n % 3 * SECOND)
    order = sorted(IDS, key=lambda timer_id: (IDS.index(timer_id) % 3, timer_id))
    for limit in (1, 3, 7, 50, 500):
        found = await pages(four, limit)
        assert list(chain(*found)) == order
        assert {len(page) for page in found[:-1]} <= {limit}


async def test_lists_by_state(four: Topic) -> None:
    """A page has those of its timers that are in the state, and all pages have all of them."""
    await four.put(*IDS[:40])
    await four.put(*IDS[40:], due=NOW)
    leased: list[str] = []
    for name in four.layout.partitions:
        leased += await Leasing(four.store, name).claimed()
    assert sorted(leased) == sorted(IDS[40:])
    assert sorted(chain(*await pages(four, 3, TimerState.LEASED))) == sorted(leased)
    assert sorted(chain(*await pages(four, 3, TimerState.PENDING))) == sorted(IDS[:40])


@pytest.mark.parametrize("cursor", ["x", "1", "5-0#0"])
async def test_a_list_from_a_token_that_no_page_gave(four: Topic, cursor: str) -> None:
    with pytest.raises(InvalidField, match=r"^page_token: "):
        await four.store.list(four.layout, state=None, limit=3, cursor=cursor)


async def test_some_partitions_are_read_alone(four: Topic) -> None:
    """In their order, and no further than there are."""
    topics = plain(four)
    names = [each.topic for each in await topics.parts(four.topic)]
    assert len(names) == 4
    assert [each.topic for each in await topics.parts(four.topic, first=1, most=2)] == names[1:3]
    assert [each.topic for each in await topics.parts(four.topic, first=3, most=64)] == names[3:]
    assert await topics.parts(four.topic, first=4, most=64) == []
