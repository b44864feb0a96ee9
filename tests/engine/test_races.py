"""Races, each looked at in its middle: while the other attempt runs, not when all is over."""

from __future__ import annotations

import pytest

from relay.core.outcomes import Verb
from relay.core.timers import Change, Changed, NewTimer, TimerState
from relay.engine.delivery.session import Problem
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World


async def attempts(world: World, name: str = "a") -> int:
    timer = await world.get(name)
    assert timer is not None, f"{name} is not there"
    return timer.attempts


async def test_a_late_ack_after_takeover_changes_nothing(world: World) -> None:
    """While the second relay's application works, the first one's ACK arrives: the lease stays.

    The second ACK is the one that counts.
    """
    world.tune(renew=False)
    await world.put("a")
    first = await world.app()
    late = first.one()
    world.engine.quiesce(first.session)  # so that its relay does not take the timer again
    call = world.store.hold("settle")
    first.end(late)
    await settle()
    assert call.reached, "the ACK is on its way"
    await world.advance(31.0)
    second = await world.app(engine=await world.relay())
    lease = second.one()
    call.open()
    await settle()
    assert first.complaints() == [Problem.STALE]
    assert await world.leased() == {"a"}
    assert second.session.leases == {lease.token: lease}
    second.extend(lease)
    await settle()
    assert not lease.lost
    second.end(lease)
    await settle()
    assert second.complaints() == []
    assert await world.stored() == {}
    assert world.counts.total["timers.settled ack"] == 1


@pytest.mark.parametrize("verb", list(Verb), ids=lambda verb: verb.value)
async def test_no_late_outcome_touches_the_next_attempt(world: World, verb: Verb) -> None:
    """Whatever it is."""
    world.tune(renew=False)
    await world.put("a")
    app = await world.app()
    late = app.one()
    call = world.store.hold("settle")
    app.end(late, verb)
    await world.advance(36.0)
    lease = app.one()
    before = await world.get("a")
    call.open()
    await settle()
    assert await world.get("a") == before
    assert app.complaints() == [Problem.STALE]
    app.end(lease)
    await settle()
    assert await world.stored() == {}


async def test_an_ack_after_a_nack_is_a_duplicate(world: World) -> None:
    """While attempt 2 runs, the ACK of attempt 1 neither ends it nor frees its place."""
    await world.put("a")
    app = await world.app(max_outstanding=1)
    first = app.one()
    app.end(first, Verb.NACK, retry_after=0)
    await settle()
    world.hint(delay=0)
    await settle()
    second = app.one()
    assert second.timer.attempt == 2
    app.end(first)
    await settle()
    assert app.complaints() == [Problem.DUPLICATE]
    assert await world.leased() == {"a"}
    assert app.session.free == 0
    app.end(second)
    await settle()
    assert await world.stored() == {}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_renewal_that_races_an_ack_is_harmless(world: World, after: bool) -> None:
    """Whichever of the two Redis sees first; and nobody is told of a problem that is none."""
    await world.put("a", "b")
    app = await world.app()
    a, b = app.take()
    renewal = world.store.hold("extend", after=after)
    await world.advance(11.0)
    assert renewal.reached
    app.end(a)
    await settle()
    assert set(await world.stored()) == {"b"}
    renewal.open()
    await settle()
    assert app.complaints() == []
    assert not b.lost
    app.end(b)
    await settle()
    assert await world.stored() == {}


async def test_a_renewal_that_races_a_nack_does_not_hold_the_timer_back(world: World) -> None:
    """The NACK frees it; the renewal that arrives later finds its token void."""
    await world.put("a")
    app = await world.app()
    renewal = world.store.hold("extend")
    await world.advance(11.0)
    app.end(app.one(), Verb.NACK, retry_after=0)
    await settle()
    world.hint(delay=0)
    await settle()
    second = app.one()
    renewal.open()
    await settle()
    assert not second.lost
    assert app.complaints() == []
    stored = await world.get("a")
    assert stored is not None
    assert stored.next_claim == world.clock.server() + 30_000_000
    app.end(second)


async def test_a_reschedule_in_flight_wins_over_the_ack(world: World) -> None:
    """The timer is given a new time while its handler runs: the ACK is void, the new time stands."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    await world.schedule("a", delay=20.0)
    assert await world.stored() == {"a": TimerState.PENDING}
    app.end(lease)
    await settle()
    assert app.complaints() == [Problem.STALE]
    assert await world.stored() == {"a": TimerState.PENDING}
    await world.advance(19.9)
    assert app.names() == []
    await world.advance(0.101)
    assert app.one().timer.attempt == 1


async def test_a_settlement_answered_stale_leaves_the_new_intent_s_attempt_alone(world: World) -> None:
    """The ACK is on its way while the timer is scheduled anew and delivered: that delivery goes on."""
    await world.put("a")
    app = await world.app()
    first = app.one()
    call = world.store.hold("settle")
    app.end(first)
    await settle()
    await world.schedule("a")
    second = app.one()
    assert second.timer.attempt == 1
    assert second.timer.occurrence_id != first.timer.occurrence_id
    call.open()
    await settle()
    assert app.complaints() == [Problem.STALE]
    assert await world.leased() == {"a"}
    app.receive(second)
    await settle()
    assert not second.lost
    app.end(second)
    await settle()
    assert await world.stored() == {}


async def test_a_handler_may_schedule_its_own_timer_again(world: World) -> None:
    """It schedules the next run under its own id, then answers ACK: the next run is not lost."""
    await world.put("a")
    app = await world.app()
    for n in range(5):
        lease = app.one()
        app.receive(lease)
        await world.schedule("a", delay=1.0)
        app.end(lease)
        await settle()
        assert app.complaints() == [Problem.STALE], f"run {n}"
        assert await attempts(world) == 0
        await world.advance(1.0)
    assert app.one().timer.attempt == 1


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.NACK, Verb.REJECT])
async def test_a_cancel_in_flight_voids_the_delivery(world: World, verb: Verb) -> None:
    """Whatever its outcome, the timer is gone and stays gone."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    assert await world.engine.cancel(TOPIC, "a") == Changed(Change.CANCELLED, delivery_under_way=True)
    app.end(lease, verb)
    await settle()
    assert app.complaints() == [Problem.GONE]
    await world.advance(100.0)
    assert app.names() == []
    assert await world.stored() == {}


async def test_a_cancel_between_two_attempts_is_not_undone_by_a_release(world: World) -> None:
    """The stream breaks, and while the release is on its way somebody cancels."""
    await world.put("a")
    app = await world.app()
    app.take()
    call = world.store.hold("settle")
    await app.leave(broken=True)
    assert call.reached
    assert await world.engine.cancel(TOPIC, "a") == Changed(Change.CANCELLED, delivery_under_way=True)
    call.open()
    await settle()
    assert await world.stored() == {}


async def test_a_release_that_races_a_reschedule_leaves_the_new_time(world: World) -> None:
    """A release means now; the new intent means later."""
    await world.put("a")
    app = await world.app()
    app.take()
    call = world.store.hold("settle")
    await app.leave(broken=True)
    await world.schedule("a", delay=50.0)
    call.open()
    await settle()
    stored = await world.get("a")
    assert stored is not None
    assert stored.next_claim == world.clock.server() + 50_000_000


async def test_a_receipt_that_races_a_broken_stream_counts_once(world: World) -> None:
    """Written as a renewal and again with the release: one attempt."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    receipt = world.store.hold("extend", after=True)
    app.receive(lease)
    await settle()
    await app.leave(broken=True)
    receipt.open()
    await settle()
    assert await attempts(world) == 1


async def test_two_relays_never_hold_one_timer(world: World) -> None:
    """Both poll for the same due times; every timer goes to exactly one of them."""
    one, two = await world.app(), await world.app(engine=await world.relay())
    for n in range(50):
        await world.store.schedule(TOPIC, [NewTimer(f"{n}", b"x", delay=100_000)])
        world.hint(delay=0.1)
        await world.advance(0.1)
    await world.advance(6.0)
    names = [*one.names(), *two.names()]
    assert sorted(names) == sorted(f"{n}" for n in range(50))


async def test_a_server_clock_that_steps_back_makes_nothing_early(world: World) -> None:
    """A released timer is not delivered before its due time, however wrong the clock is by then."""
    await world.put("a", delay=1.0)
    app = await world.app()
    await world.advance(1.0)
    app.end(app.one(), Verb.NACK, retry_after=0)
    world.clock.skew = -10_000_000
    await settle()
    await world.advance(9.0)
    assert app.names() == []
    await world.advance(6.0)
    assert app.one().timer.attempt == 2
