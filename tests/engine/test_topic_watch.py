"""Whoever looks at the metrics sees how topics stand, soon and for little."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from relay.core.errors import StoreUnavailable
from relay.core.timers import TopicStats
from relay.engine.topic_watch import FRESH, MOST, NAMES_FRESH, PATIENCE
from relay.telemetry.metrics.gauges import Gauges, RelayState
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World


class Shown(Gauges):
    """What the engine last showed."""

    def __init__(self) -> None:
        self.vitals: RelayState | None = None
        self.topics: list[str] | None = None

    def show(self, vitals: RelayState, topics: Sequence[TopicStats]) -> None:
        self.vitals, self.topics = vitals, [stats.topic for stats in topics]


async def look(world: World) -> Shown:
    shown = Shown()
    looking = asyncio.create_task(world.engine.look(shown))
    await settle()
    if not looking.done():
        await world.advance(PATIENCE)
        await settle()
    assert looking.done(), "a look takes longer than PATIENCE"
    return shown


async def test_many_looks_are_one_read(world: World) -> None:
    """However many scrape, and however often: one read a second."""
    world.topics.names = ["b", "a"]
    door = world.topics.hold("overview")
    shown = [Shown() for _ in range(10)]
    looking = [asyncio.create_task(world.engine.look(each)) for each in shown]
    await settle()
    door.open()
    await asyncio.gather(*looking)
    assert [each.topics for each in shown] == [["a", "b"]] * 10
    assert (await look(world)).topics == ["a", "b"]
    assert world.topics.count("overview") == 1
    await world.advance(FRESH)
    assert (await look(world)).topics == ["a", "b"]
    assert world.topics.count("overview") == 2


async def test_own_topics_are_known_at_once_and_others_after_a_while(world: World) -> None:
    await look(world)
    await world.app("mine")
    world.topics.names.append("theirs")
    await world.advance(FRESH)
    assert (await look(world)).topics == ["mine"]
    await world.advance(NAMES_FRESH)
    assert (await look(world)).topics == ["mine", "theirs"]


async def test_a_redis_that_does_not_answer_is_not_waited_for(world: World) -> None:
    """Neither one that hangs nor one that is known to be away; the relay's own state is told all the same."""
    world.topics.names = ["a"]
    await look(world)
    await world.advance(FRESH)
    door = world.topics.hold("overview")
    shown = await look(world)
    assert shown.topics == []
    assert shown.vitals is not None
    assert world.engine.silent_places == [""]
    door.open()
    await settle()
    assert (await look(world)).topics == ["a"]
    assert world.engine.silent_places == []
    await world.advance(FRESH)
    door = world.topics.fail("overview", StoreUnavailable("away"))
    assert (await look(world)).topics == []
    assert world.engine.silent_places == [""]
    door.open()
    world.store.fail("ping", StoreUnavailable("away"))
    await world.advance(6.0)
    reads = world.topics.count("overview")
    shown = await look(world)
    assert shown.topics == []
    assert shown.vitals is not None
    assert shown.vitals.connected == {"": False}
    assert shown.vitals.last_answers[""] > 5.0
    assert world.topics.count("overview") == reads, "it was asked although it is away"
    assert world.engine.silent_places == [""]


async def test_a_read_that_breaks_does_not_end_the_loop(world: World) -> None:
    world.topics.names = ["a"]
    world.topics.fail("overview", ValueError("odd"), times=1)
    assert (await look(world)).topics == []
    await world.advance(FRESH)
    assert (await look(world)).topics == ["a"]


async def test_so_many_topics_and_no_more(world: World) -> None:
    """A relay's own come first, and what is left out is said."""
    world.topics.names = [f"t{number:04}" for number in range(MOST + 5)]
    await world.app("zzz")
    topics = (await look(world)).topics
    assert topics is not None
    assert (len(topics), topics[0]) == (MOST, "zzz")


async def test_vitals(world: World) -> None:
    """Leases, deliveries in flight, places and consumers, by topic, of one stream or of several."""
    first = await world.app(max_outstanding=10)
    await world.app("u", TOPIC, max_outstanding=5)
    await world.put("1", "2", "3")
    await world.put("4", topic="u")
    await world.advance(5.0)
    shown = (await look(world)).vitals
    assert shown is not None
    assert (shown.leased, sum(shown.in_flight.values())) == ({TOPIC: 3, "u": 1}, 0)
    assert shown.consumers == {TOPIC: 2, "u": 1}
    assert (shown.capacity, shown.free) == (15, 11)
    taken = first.take()
    shown = (await look(world)).vitals
    assert shown is not None
    assert shown.in_flight[TOPIC] == len(taken) > 0
    door = world.store.hold("settle")
    first.ack(taken)
    await settle()
    shown = (await look(world)).vitals
    assert shown is not None
    assert (shown.unwritten, shown.in_flight[TOPIC]) == (len(taken), 0)
    door.open()
    await world.advance(3.5)
    shown = (await look(world)).vitals
    assert shown is not None
    assert shown.unwritten == 0
    assert 0.0 <= shown.heartbeats["lease_keeper"] <= 1.0


async def test_a_loop_that_stands_shows(world: World) -> None:
    """The age grows while the loop does not turn."""
    world.engine._keeper.last_tick -= 100.0
    shown = (await look(world)).vitals
    assert shown is not None
    assert shown.heartbeats["lease_keeper"] >= 100.0
