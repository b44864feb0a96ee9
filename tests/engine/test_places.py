"""Topics in several places, one of which does not answer: the others go on."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreUnavailable
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import World

AWAY = "Redis is away; trying again until it is back"
BACK = "Redis is back"


@pytest.fixture(autouse=True)
def two_places(world: World) -> None:
    """Topics `a` and `a2` are in one place, `b` and `b2` in another."""
    world.store.places.put(a="east", a2="east", b="west", b2="west")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The log lines, with the node that each names."""
    return [(record.message, vars(record).get("node", "")) for record in caplog.records]


# ------------------------------------------------------------------------------- health


async def test_a_place_that_is_away_is_said_by_name(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One line for the place and change; the relay is ready while another one answers."""
    doors = [world.store.fail("claim", StoreUnavailable("gone"), topic="a")]
    doors.append(world.store.fail("ping", StoreUnavailable("gone"), topic="east"))
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.advance(10.0)
    assert app.names() == ["y"]
    assert said(caplog) == [(AWAY, "east")]
    assert world.engine.ready() == []
    for door in doors:
        door.open()
    await world.advance(10.0)
    assert app.names() == ["x"]
    assert said(caplog) == [(AWAY, "east"), (BACK, "east")]


async def test_the_relay_is_not_ready_while_all_places_are_away(world: World) -> None:
    """Those that it knows of: here two of topics, and the one of what belongs to no topic."""
    await world.app("a", "b")
    for place in ("east", "west"):
        world.store.fail("ping", StoreUnavailable(f"{place} is gone"), topic=place)
    world.store.fail("claim", StoreUnavailable("gone"))
    await world.advance(10.0)
    assert world.engine.ready() == []
    world.store.fail("ping", StoreUnavailable("the third, too"), topic="")
    await world.advance(10.0)
    (reason,) = world.engine.ready()
    assert reason.startswith("Redis is away: ")
    assert all(words in reason for words in ("east is gone", "west is gone", "the third, too"))


async def test_a_ping_that_hangs_keeps_no_other_place_from_its_pings(world: World) -> None:
    """The race: a node takes connections and says nothing, and another one goes at that time."""
    for topic in ("a", "b"):
        world.tune(topic, max_polling_interval=600.0)
    await world.app("a", "b")
    held = world.store.hold("ping", topic="east")
    await world.advance(6.0)
    assert held.reached == 1
    gone = world.store.fail("ping", StoreUnavailable("gone"), topic="west")
    await world.advance(6.0)
    assert gone.reached >= 1
    assert world.engine._redis_health.answers("a")
    assert not world.engine._redis_health.answers("b")


async def test_who_waits_for_a_place_goes_on_when_the_topic_has_another(world: World) -> None:
    """After a failover nobody waits for the node that is gone; its other topics do."""
    for verb, topic in (("claim", "a"), ("claim", "a2"), ("ping", "east")):
        world.store.fail(verb, StoreUnavailable("gone"), topic=topic)
    await world.put("x", topic="a")
    app = await world.app("a", "a2")
    await world.advance(60.0)
    assert app.names() == []
    world.store.open_all()
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    tries = world.store.count("claim", "a2")
    world.store.places.put(a="west")
    await settle()
    assert app.names() == ["x"]
    assert world.store.count("claim", "a2") == tries


async def test_a_place_without_topics_is_forgotten(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A node that was removed is not asked any more, and makes no relay unready."""
    world.store.fail("claim", StoreUnavailable("gone"), topic="a", times=1)
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    await world.app("a")
    await world.advance(5.0)
    assert said(caplog) == [(AWAY, "east")]
    world.store.places.put(a="west", a2="west")
    pings = world.store.count("ping", "east")
    await world.advance(60.0)
    assert world.store.count("ping", "east") == pings
    assert [view.place for view in world.engine._redis_health.views] == ["", "west"]
