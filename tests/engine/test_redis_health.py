"""Whether Redis answers, as all loops see it."""

from __future__ import annotations

import pytest

from relay.core.errors import GivenUp, StoreRefused, StoreUnavailable
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import World

AWAY = "Redis is away; trying again until it is back"
BACK = "Redis is back"


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


async def test_asks_for_a_sign_of_life_when_nobody_else_does(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An idle relay notices within seconds that Redis has gone, and that it is back."""
    door = world.store.fail("ping", StoreUnavailable("away"))
    await world.advance(5.0)
    assert world.engine.ready() == ["Redis is away: away"]
    await world.advance(60.0)
    assert 10 <= door.reached <= 40
    door.open()
    await world.advance(5.0)
    assert world.engine.ready() == []
    assert said(caplog) == [AWAY, BACK]


async def test_does_not_ask_while_others_get_answers(world: World) -> None:
    """Ten idle seconds must not cost commands for nothing."""
    world.tune(max_polling_interval=4.0)
    await world.app()
    await world.advance(100.0)
    assert world.store.count("ping") == 0


async def test_a_refused_ping_is_an_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An account that may not PING is no absence."""
    world.store.fail("ping", StoreRefused("NOPERM"))
    await world.advance(30.0)
    assert world.engine.ready() == []
    assert said(caplog) == []


async def test_a_replica_that_answers_pings_is_not_redis_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """After a failover the connection may end at a replica, which pings and refuses every write.

    That is one line and not two for each try, and the relay is not ready meanwhile.
    """
    door = world.store.fail("claim", StoreUnavailable("READONLY"))
    await world.app()
    for _ in range(60):
        await world.advance(1.0)
        assert world.engine.ready() == ["Redis is away: READONLY"]
    assert said(caplog) == [AWAY]
    assert door.reached < 40
    door.open()
    await world.advance(6.0)
    assert world.engine.ready() == []
    assert said(caplog) == [AWAY, BACK]


@pytest.mark.parametrize("verb", ["claim", "settle", "extend"])
async def test_a_call_that_came_too_late_says_nothing_of_redis(
    world: World, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    """The relay stood still, or the network was slow. The loop tries again at once, and the log does not say
    that Redis is away. It says once that a call came too late, until a call works; each one is counted."""
    await world.put("a")
    door = world.store.fail(verb, GivenUp("too late"), times=2)
    app = await world.app()
    await world.advance(11.0)
    (lease,) = app.take()
    if verb == "extend":
        await world.advance(11.0)
    app.end(lease)
    await settle()
    assert door.reached == 2
    assert world.engine.ready() == []
    assert await world.stored() == {}
    assert said(caplog) == ["a call was too late for Redis, and had no effect; trying again"]
    assert world.counts.total["store.errors GivenUp"] == 2


async def test_loops_that_wait_try_again_once_redis_answers(world: World) -> None:
    """All of them, promptly, and not while pings fail."""
    doors = [world.store.fail(verb, StoreUnavailable("away")) for verb in ("claim", "ping")]
    apps = [await world.app(topic) for topic in ("a", "b", "c")]
    await world.put("x", topic="a")
    await world.put("y", topic="b")
    await world.put("z", topic="c")
    await world.advance(60.0)
    tries = doors[0].reached
    await world.advance(60.0)
    assert doors[0].reached == tries
    for door in doors:
        door.open()
    await world.advance(5.0)
    assert [app.names() for app in apps] == [["x"], ["y"], ["z"]]


async def test_an_absence_is_noticed_by_the_first_call_that_fails(world: World) -> None:
    """Readiness does not wait for the next ping, nor do retries."""
    world.store.fail("claim", StoreUnavailable("away"), times=1)
    await world.put("a")
    app = await world.app()
    assert world.engine.ready() == ["Redis is away: away"]
    await world.advance(0.1)
    await settle()
    assert world.engine.ready() == []
    assert app.names() == ["a"]
