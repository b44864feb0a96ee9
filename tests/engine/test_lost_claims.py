"""Claims whose reply is lost: what they took is asked for, once Redis answers again, and delivered."""

from __future__ import annotations

import logging

import pytest

from relay.core.errors import GivenUp, OpenOutcome, StoreUnavailable, WrongKeyType
from relay.core.instants import SECOND
from tests.worlds.engine.doubles import Door
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World

LEASE = 30.0
"""Seconds, as by default."""


def lose(world: World, topic: str = TOPIC) -> Door:
    """Let the next claim run, and its reply be lost."""
    now = world.clock.server()
    lost = OpenOutcome("no answer", since=now, until=now + SECOND)
    return world.store.fail("claim", lost, topic=topic, after=True, times=1)


async def test_a_claim_whose_reply_is_lost_is_found_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A moment later, and not when its lease ends; under the lease that it has; and no attempt is lost."""
    began, server_began = world.clock.now(), world.clock.server()
    await world.put("a", "b")
    lose(world)
    ping = world.store.fail("ping", StoreUnavailable("connection refused"))
    app = await world.app()
    await world.advance(1.0)
    ping.open()
    await world.advance(5.0)
    assert app.names() == ["a", "b"]
    for lease in app.held:
        assert lease.timer.attempt == 1
        assert lease.deadline_time == server_began + LEASE * SECOND
        assert lease.deadline == pytest.approx(began + LEASE)
    assert "its timers are found again" in caplog.text
    app.ack(app.held)
    await settle()
    assert await world.stored() == {}
    assert world.store.count("claimed") == 1
    assert world.counts.total["timers.claimed"] == 2


async def test_nothing_is_claimed_before_it_was_asked(world: World) -> None:
    """While Redis is away, it is asked again and again; an answer that fails is none."""
    await world.put("a")
    lose(world)
    away = world.store.fail("claimed", StoreUnavailable("connection refused"))
    app = await world.app()
    await world.put("b")
    await world.advance(20.0)
    assert away.reached > 2
    assert (app.names(), world.store.count("claim")) == ([], 1)
    away.open()
    await world.advance(5.0)
    assert app.names() == ["a", "b"]


@pytest.mark.parametrize("failure", [GivenUp(), StoreUnavailable("connection refused")], ids=["late", "away"])
async def test_a_claim_that_did_nothing_is_not_asked_for(world: World, failure: StoreUnavailable) -> None:
    """Redis refused it, or never had it."""
    await world.put("a")
    world.store.fail("claim", failure, times=1)
    app = await world.app()
    await world.advance(1.0)
    assert app.names() == ["a"]
    assert world.store.count("claimed") == 0


async def test_a_refused_question_is_not_repeated(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The timers wait for their lease's end then, and the topic's others do not."""
    caplog.set_level(logging.ERROR)
    await world.put("a")
    lose(world)
    world.store.fail("claimed", WrongKeyType("a key holds a list"))
    app = await world.app()
    await world.put("b")
    await world.advance(6.0)
    assert app.names() == ["b"]
    assert "Redis refuses to claim" in caplog.text
    await world.advance(LEASE)
    assert app.names() == ["a"]
    assert world.store.count("claimed") == 1


async def test_its_places_are_kept_while_it_is_asked(world: World) -> None:
    """Race: another topic of the session claims for the places before the answer is there."""
    await world.put("a1", "a2", topic="a")
    lose(world, "a")
    question = world.store.hold("claimed", after=True)
    app = await world.app("a", "b", max_outstanding=2)
    await world.advance(1.0)
    assert question.reached
    await world.put("b1", topic="b")
    world.hint(0, topic="b")
    await settle()
    assert await world.leased("b") == set()
    question.open()
    await settle()
    assert app.names() == ["a1", "a2"]
    app.ack(app.held)
    await settle()
    assert app.names() == ["b1"]


async def test_what_became_of_a_timer_meanwhile_stands(world: World) -> None:
    """Race: another relay replaces and cancels timers of the lost claim before Redis is asked."""
    await world.put("cancelled", "kept", "moved")
    lose(world)
    ping = world.store.fail("ping", StoreUnavailable("connection refused"))
    app = await world.app()
    assert await world.leased() == {"cancelled", "kept", "moved"}
    await world.put("moved", delay=100.0)
    await world.store.inner.cancel(TOPIC, ["cancelled"])
    ping.open()
    await world.advance(10.0)
    assert app.names() == ["kept"]
    await world.advance(91.0)
    assert app.names() == ["moved"]


async def test_a_lease_that_ran_out_meanwhile_is_taken_anew(world: World) -> None:
    """Redis was away for longer than the lease: the next claim takes the timer, under a nonce of its own."""
    await world.put("a")
    lose(world)
    ping = world.store.fail("ping", StoreUnavailable("connection refused"))
    app = await world.app()
    await world.advance(LEASE + 1.0)
    before = world.clock.now()
    ping.open()
    await world.advance(10.0)
    lease = app.one()
    assert lease.timer.attempt == 1
    assert lease.deadline > before + LEASE
    app.end(lease)
    await settle()
    assert await world.stored() == {}


async def test_a_timer_of_the_lost_claim_is_not_delivered_twice(world: World) -> None:
    """Race: its lease runs out while it is asked for, and another relay takes it. This relay's delivery is
    void, since Redis says so before an outcome is written."""
    await world.put("a")
    lose(world)
    question = world.store.hold("claimed")
    first = await world.app()
    await world.advance(LEASE + 1.0)
    assert question.reached
    second = await world.app(engine=await world.relay())
    (lease,) = second.take()
    question.open()
    await settle()
    assert first.names() == []
    second.end(lease)
    await settle()
    assert await world.stored() == {}


@pytest.mark.parametrize("broken", [False, True])
async def test_a_question_under_way_when_the_last_session_leaves(world: World, broken: bool) -> None:
    """What it finds is released at once, without an attempt."""
    await world.put("a")
    lose(world)
    question = world.store.hold("claimed", after=True)
    app = await world.app()
    await world.advance(1.0)
    assert question.reached
    await app.leave(broken=broken)
    question.open()
    await settle()
    assert await world.leased() == set()
    assert (await world.app()).one().timer.attempt == 1


async def test_room_is_not_waited_for(world: World) -> None:
    """An application that has filled up meanwhile is given nothing, and others need not wait for the
    lease."""
    await world.put("a")
    lose(world)
    away = world.store.fail("claimed", StoreUnavailable("connection refused"))
    app = await world.app(TOPIC, "other", max_outstanding=1)
    await world.schedule("o", topic="other")
    other = app.one()
    assert (other.timer_id, await world.leased()) == ("o", {"a"})
    away.open()
    await world.advance(6.0)
    assert await world.leased() == set()
    app.end(other)
    await settle()
    assert app.names() == ["a"]


async def test_the_topic_gets_other_partitions_before_it_was_asked(world: World) -> None:
    """The race: a claim's reply is lost, and its poller is replaced. Nobody else knows of the claim."""
    layout = world.layouts.put(TOPIC, 2)
    await world.put("a", topic=layout.partitions[0])
    lose(world, layout.partitions[0])
    away = world.store.fail("claimed", StoreUnavailable("connection refused"))
    ping = world.store.fail("ping", StoreUnavailable("connection refused"))
    app = await world.app()
    await world.advance(1.0)
    world.layouts.put(TOPIC, 4)
    await world.advance(1.0)
    assert app.names() == []
    away.open()
    ping.open()
    await world.advance(5.0)
    assert app.names() == ["a"]
