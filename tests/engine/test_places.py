"""Topics in several places, one of which does not answer: the others go on."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreUnavailable
from relay.core.outcomes import Extension
from relay.core.timers import NewTimer, NewTimers
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


async def test_what_fails_at_the_old_place_says_nothing_of_the_new_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The race: a node dies with a call under way, and the topic has its new place before the call fails."""
    call = world.store.hold("claim", topic="a")
    call.error = StoreUnavailable("gone")
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    assert call.reached == 1
    world.store.places.put(a="west", a2="west")
    call.open()
    await settle()
    assert app.names() == ["x"]
    assert world.engine._redis_health.answers("b")
    assert said(caplog) == []


# ----------------------------------------------------------------------------- outcomes


async def test_outcomes_of_one_place_wait_for_no_other(world: World) -> None:
    """Neither while a call to the other place is under way, nor while that place is known to be away."""
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("1", "2", topic="b")
    await world.advance(5.0)
    held = world.store.hold("settle", topic="a")
    leases = {lease.timer.timer_id: lease for lease in app.take()}
    app.end(leases["x"])
    await settle()
    assert held.reached == 1
    app.receive(leases["2"])
    app.end(leases["1"])
    await world.advance(0.1)
    assert set(await world.stored("b")) == {"2"}
    assert world.store.items("extend") == [Extension("2", leases["2"].nonce, received=True)]
    held.error = StoreUnavailable("gone")
    world.store.fail("ping", StoreUnavailable("gone"), topic="east")
    held.open()
    await world.advance(1.0)
    assert not world.engine._redis_health.answers("a")
    app.end(leases["2"])
    await settle()
    assert await world.stored("b") == {}
    assert world.engine._settler.unwritten == 1
    world.store.open_all()
    await world.advance(10.0)
    assert await world.stored("a") == {}
    assert world.engine._settler.idle


async def test_outcomes_go_to_the_topic_s_new_place(world: World) -> None:
    """The old one does not answer any more. What waited goes at once, but behind what is under way: that
    comes first if it has to be tried again."""
    app = await world.app("a", "a2")
    await world.put("1", "2", topic="a")
    await world.put("3", topic="a2")
    await world.advance(5.0)
    leases = {lease.timer.timer_id: lease for lease in app.take()}
    held = world.store.hold("settle", topic="a")
    app.end(leases["1"])
    await settle()
    app.end(leases["2"])
    app.receive(leases["3"])
    app.end(leases["3"])
    await settle()
    assert world.store.count("settle") == 1
    world.store.places.put(a="west", a2="west")
    await settle()
    assert await world.stored("a2") == {}
    assert world.store.count("settle", "a") == 1
    held.error = StoreUnavailable("gone")
    held.open()
    await settle()
    assert [each.timer_id for each in world.store.settlements()] == ["1", "3", "1", "2"]
    assert await world.stored("a") == {}
    assert world.engine._settler.idle


async def test_receipts_go_to_the_topic_s_new_place(world: World) -> None:
    """Those that wait for their outcome, and those whose call fails."""
    app = await world.app("a")
    await world.put("1", "2", topic="a")
    await world.advance(5.0)
    first, second = app.take()
    held = world.store.hold("extend", topic="a")
    app.receive(first)
    await world.advance(0.1)
    app.receive(second)
    world.store.places.put(a="west")
    held.error = StoreUnavailable("gone")
    held.open()
    await world.advance(0.1)
    receipts = [each.timer_id for each in world.store.items("extend") if isinstance(each, Extension)]
    assert (receipts[0], sorted(receipts[1:])) == ("1", ["1", "2"])
    assert world.engine._settler.idle


async def test_a_drain_writes_what_a_place_takes_that_answers(world: World) -> None:
    """While a call to another one is under way."""
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.advance(5.0)
    held = world.store.hold("settle", topic="a")
    (x,) = [lease for lease in app.take() if lease.topic == "a"]
    app.end(x)
    await settle()
    assert held.reached == 1
    world.tasks.start_soon(world.engine.drain, 0.0)
    await settle()
    assert (await world.leased("a"), await world.leased("b")) == ({"x"}, set())
    assert world.engine.draining


# ------------------------------------------------------------------------------- leases


async def test_leases_of_one_place_are_renewed_while_another_does_not_answer(world: World) -> None:
    """A call that hangs for longer than a lease lasts would cost all leases otherwise."""
    for topic in ("a", "b"):
        world.tune(topic, lease_ttl=6.0)
    app = await world.app("a", "b")
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.advance(5.0)
    assert sorted(app.names()) == ["x", "y"]
    held = world.store.hold("extend", topic="a")
    await world.advance(30.0)
    assert held.reached == 1
    assert world.store.count("extend", "a") == 1
    assert set(app.names()) == {"x"}, "this one's lease has run out, and it alone comes again"
    assert await world.leased("b") == {"y"}
    assert world.engine.live() == []


async def test_an_extend_that_comes_during_a_call_is_not_forgotten(world: World) -> None:
    """It is renewed when that call is over, and not a tick later."""
    world.tune("a", renew=False)
    app = await world.app("a")
    await world.put("1", "2", topic="a")
    await world.advance(5.0)
    first, second = app.take()
    held = world.store.hold("extend", topic="a")
    app.extend(first)
    await settle()
    app.extend(second)
    await settle()
    assert world.store.count("extend") == 1
    held.open()
    await settle()
    assert [each.timer_id for each in world.store.items("extend") if isinstance(each, Extension)] == [
        "1",
        "2",
    ]


# ---------------------------------------------------------------------------- producers


async def test_producers_of_one_place_wait_for_no_other(world: World) -> None:
    """Though as many calls hang as a place may have."""
    held = world.store.hold("schedule", topic="a", times=9)
    for number in range(3):
        names = [f"{number}-{n}" for n in range(100)]
        many = {"a": NewTimers.of([NewTimer(name, b"", delay=0) for name in names])}
        world.tasks.start_soon(world.engine.schedule_many, many)
        await settle()
    assert held.reached == 2
    world.tasks.start_soon(world.engine.schedule, "b", NewTimer("y", b"", delay=0))
    await settle()
    assert set(await world.stored("b")) == {"y"}
    assert await world.stored("a") == {}
