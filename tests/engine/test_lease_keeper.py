"""Leases last as long as their deliveries, and no longer."""

from __future__ import annotations

import pytest

from relay.core.errors import StoreRefused, StoreUnavailable
from relay.core.outcomes import Extension
from relay.engine.delivery.session import Problem
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World


async def test_renews_at_a_third_of_the_lease(world: World) -> None:
    """Not before, and many in one call."""
    await world.put("a", "b", "c")
    app = await world.app()
    app.take()
    await world.advance(10.0)
    assert world.store.count("extend") == 0
    await world.advance(1.0)
    assert world.store.count("extend") == 1
    assert len(world.store.items("extend")) == 3
    await world.advance(289.0)
    assert 26 <= world.store.count("extend") <= 30
    assert await world.leased() == {"a", "b", "c"}
    assert app.complaints() == []


async def test_short_leases_are_renewed_in_time_too(world: World) -> None:
    """The keeper looks often enough for the shortest lease among the topics served."""
    world.tune("fast", lease_ttl=0.3, max_polling_interval=0.1)
    await world.put("a", topic="fast")
    app = await world.app("fast", "slow")
    lease = app.one()
    for _ in range(100):
        await world.advance(0.1)
        assert app.names() == []
    app.end(lease)
    await settle()
    assert await world.stored("fast") == {}


async def test_two_topics_are_renewed_by_their_own_policies(world: World) -> None:
    """Each in calls of its own."""
    world.tune("short", lease_ttl=6.0)
    await world.put("a", topic="short")
    await world.put("b", topic="long")
    app = await world.app("short", "long")
    app.take()
    await world.advance(30.0)
    assert world.store.count("extend", "short") >= 10
    assert 2 <= world.store.count("extend", "long") <= 3
    assert app.names() == []


async def test_a_silent_delivery_is_given_up_and_comes_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """After delivery_timeout it is renewed no more; when its lease has run out, its place is free."""
    world.tune(delivery_timeout=60.0)
    await world.put("a")
    app = await world.app(max_outstanding=1)
    first = app.one()
    await world.advance(60.0)
    assert await world.leased() == {"a"}
    assert app.session.free == 0
    await world.advance(40.0)
    second = app.one()
    assert second.nonce != first.nonce
    assert world.counts.total["timers.silent"] == 1
    assert [r.message for r in caplog.records] == ["deliveries given up: no outcome within delivery_timeout"]
    app.end(first)
    assert app.complaints() == [Problem.STALE]
    app.end(second)
    await settle()
    assert await world.stored() == {}


async def test_a_silent_delivery_that_was_received_costs_an_attempt(world: World) -> None:
    """It had its chance."""
    world.tune(delivery_timeout=60.0)
    await world.put("a")
    app = await world.app()
    app.receive(app.one())
    await world.advance(100.0)
    assert app.one().timer.attempt == 2


async def test_extend_lets_the_delivery_timeout_begin_anew(world: World) -> None:
    """A handler that says so may work for ever."""
    world.tune(delivery_timeout=60.0)
    await world.put("a")
    app = await world.app()
    lease = app.one()
    for _ in range(10):
        await world.advance(50.0)
        app.extend(lease)
    await world.advance(50.0)
    assert app.names() == []
    app.end(lease)
    await settle()
    assert await world.stored() == {}
    assert app.complaints() == []


async def test_extend_renews_at_once(world: World) -> None:
    """Not when a third of the lease is over."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await world.advance(1.0)
    app.extend(lease)
    await settle()
    assert world.store.items("extend") == [Extension("a", lease.nonce, received=True)]


async def test_without_renewal_the_lease_is_the_handler_s_limit(world: World) -> None:
    """`renew: off`: nothing is renewed unless the application says EXTEND."""
    world.tune(renew=False)
    await world.put("a", "b")
    app = await world.app()
    a, b = app.take()
    await world.advance(20.0)
    assert world.store.count("extend") == 0
    app.extend(a)
    await world.advance(15.0)
    (again,) = app.take()
    assert again.timer.timer_id == "b"
    app.ack([a, b, again])
    await settle()
    assert app.complaints() == [Problem.STALE]
    assert await world.stored() == {}


async def test_an_extend_while_redis_is_away_is_repeated(world: World) -> None:
    """With renewal off nothing else would renew the lease that the application relies on."""
    world.tune(renew=False)
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await world.advance(10.0)
    away = world.store.fail("extend", StoreUnavailable("away"))
    app.extend(lease)
    await world.advance(2.0)
    away.open()
    await world.advance(25.0)
    assert app.names() == []
    app.end(lease)
    await settle()
    assert await world.stored() == {}
    assert app.complaints() == []


async def test_an_extend_on_a_second_lease_of_the_same_timer_is_not_forgotten(world: World) -> None:
    """The store takes one operation per timer and call; the second lease is the live one."""
    world.tune(renew=False)
    await world.put("a")
    app = await world.app()
    old = app.one()
    await world.put("a")
    await world.advance(5.0)
    new = app.one()
    await world.advance(20.0)
    app.extend(old)
    app.extend(new)
    await world.advance(28.0)
    assert app.names() == []
    app.end(new)
    await settle()
    assert await world.stored() == {}


async def test_a_lost_lease_is_told_when_it_is_noticed(world: World) -> None:
    """By the next renewal; a cancelled timer is gone, a rescheduled one stale. Told once, renewed no more."""
    await world.put("a", "b", "c")
    app = await world.app()
    app.take()
    await world.engine.cancel(TOPIC, "a")
    await world.put("b", delay=500.0)
    await world.advance(11.0)
    assert app.complaints() == [Problem.GONE, Problem.STALE]
    calls = len(world.store.items("extend"))
    await world.advance(11.0)
    assert app.complaints() == []
    assert len(world.store.items("extend")) == calls + 1
    assert world.counts.total["timers.silent"] == 0
    await world.advance(20.0)
    assert len(app.session.leases) == 1, "lost deliveries keep their places until their leases' end"


async def test_one_that_is_given_up_unsent_leaves_those_beside_it_alive(world: World) -> None:
    """They are renewed in the very step that gives up one of their claim. The race: what the renewal brings
    has to reach them where they are then, or the relay takes them for lapsed."""
    world.tune(lease_ttl=6.0)
    await world.put("a", "b", "c", "d")
    app = await world.app()  # whose stream is stuck: it takes nothing
    await world.put("b", delay=500.0)
    await world.put("d", delay=500.0)
    await world.advance(5.9)
    assert [lease.lost for lease in app.session.leases.values()] == [False, True, False, True]
    await world.advance(0.2)
    left = list(app.session.leases.values())
    assert [lease.timer_id for lease in left] == ["a", "c"]
    assert {lease.deadline - world.clock.now() > 5.5 for lease in left} == {True}, "renewed in this step"
    await world.advance(200.0)
    assert await world.leased() == {"a", "c"}
    assert app.names() == ["a", "c"], "the others are not sent without a lease"
    assert world.counts.total["timers.claimed"] == 4


async def test_renews_again_once_redis_is_back(world: World) -> None:
    """A short absence costs no lease."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    doors = [world.store.fail(verb, StoreUnavailable("away")) for verb in ("extend", "claim", "ping")]
    await world.advance(20.0)
    for door in doors:
        door.open()
    await world.advance(40.0)
    assert app.names() == []
    app.end(lease)
    await settle()
    assert app.complaints() == []


async def test_redis_away_is_no_reason_to_restart_the_process(world: World) -> None:
    """Whether calls fail, or hang for as long as the longest command_timeout."""
    await world.put("a")
    app = await world.app()
    app.take()
    away = world.store.fail("extend", StoreUnavailable("away"))
    await world.advance(200.0)
    assert away.reached > 5
    assert world.engine.live() == []
    away.open()
    app = await world.app("u")
    await world.put("b", topic="u")
    await world.advance(10.0)
    hangs = world.store.hold("extend")
    await world.advance(200.0)
    assert hangs.reached
    assert world.engine.live() == []


async def test_a_keeper_that_does_not_run_is_noticed(world: World) -> None:
    """A process whose loops stand still had better be restarted."""
    world.clock._now += 61.0  # time passes, and nothing runs
    assert world.engine.live() == ["the lease keeper has not run for 61 s"]


async def test_a_refused_renewal_keeps_others_going(world: World) -> None:
    """Nor does an error that nobody thought of end the keeper."""
    await world.put("a", topic="bad")
    await world.put("b", topic="worse")
    await world.put("c", topic="good")
    app = await world.app("bad", "worse", "good")
    app.take()
    world.store.fail("extend", StoreRefused("no"), topic="bad")
    world.store.fail("extend", RuntimeError("what is this"), topic="worse")
    await world.advance(25.0)
    assert world.store.count("extend", "good") >= 2
    assert await world.leased("good") == {"c"}


async def test_a_delivery_that_is_moved_goes_on(world: World) -> None:
    """Nearly all that was claimed with it has ended, so it moves. The race: a renewal is under way then; and
    EXTEND, a lost lease and the end find it where it is."""
    await world.put(*"abcdefghi")
    app = await world.app()
    leases = app.take()
    call = world.store.hold("extend")
    app.receive(leases[0])
    app.extend(leases[1])
    await world.advance(1.0)
    assert call.reached
    app.ack(leases[2:])
    app.extend(leases[0])
    call.open()
    await world.advance(1.0)
    assert {lease.leases for lease in app.session.leases.values()} != {leases[0].leases}
    moved = app.session.leases[leases[0].token]
    assert (len(moved.leases), moved.received) == (2, True)
    await world.advance(60.0)
    assert await world.leased() == {"a", "b"}
    await world.put("b", delay=500.0)
    await world.advance(11.0)
    assert app.complaints() == [Problem.STALE]
    app.end(leases[0])
    await settle()
    assert (await world.stored()).keys() == {"b"}
