"""What becomes of deliveries that fail: waits, deaths, new due times; and topics that are paused or full."""

from __future__ import annotations

import logging

import pytest

from relay.core.errors import StoreUnavailable, TopicFull
from relay.core.outcomes import Again, ClaimRequest, Extension, Reason, Verb
from relay.core.policy import DeadLetterPolicy, RetryPolicy
from relay.core.timers import (
    Change,
    Changed,
    Claim,
    ClaimedTimers,
    Condition,
    Content,
    NewTimer,
    NewTimers,
    Scheduled,
)
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World

POLICY = RetryPolicy(max_attempts=4, initial=10.0, multiplier=3.0, max=40.0)


@pytest.fixture(autouse=True)
def no_jitter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest waits, always: drawn at the end of [0, 1)."""
    monkeypatch.setattr(world.engine._dispatcher, "_jitter", lambda: 1.0)
    world.tune(retry=POLICY)


# ------------------------------------------------------------------------------- waits


@pytest.mark.parametrize(
    ("attempts", "jitter", "wait"),
    [(1, 1.0, 10.0), (2, 1.0, 30.0), (3, 1.0, 40.0), (1_000_000, 1.0, 40.0), (2, 0.5, 15.0), (3, 0.0, 0.0)],
)
async def test_the_wait_grows_and_is_drawn_from_all_of_it(attempts: int, jitter: float, wait: float) -> None:
    assert POLICY.delay(attempts, jitter) == round(wait * 1e6)


async def test_no_wait_is_none_however_often() -> None:
    """Also where the power is beyond all numbers."""
    assert RetryPolicy(initial=0.0, multiplier=100.0).delay(1_000, 0.5) == 0


async def test_a_nack_without_a_wish_waits_as_the_policy_says(world: World) -> None:
    """Longer after each attempt, and dead after the last, at once."""
    await world.put("a")
    app = await world.app()
    for attempt, wait in ((1, 10.0), (2, 30.0), (3, 40.0)):
        lease = app.one()
        assert lease.timer.attempt == attempt
        app.end(lease, Verb.NACK, error="busy")
        await world.advance(wait - 0.01)
        assert app.take() == [], f"too soon after attempt {attempt}"
        await world.advance(0.1)
    app.end(app.one(), Verb.NACK, error="busy")
    await settle()
    assert await world.stored() == {}
    assert world.counts.total["timers.dead attempts"] == 1
    assert app.complaints() == []


async def test_a_nack_with_a_wish_has_it(world: World) -> None:
    await world.put("a")
    app = await world.app()
    app.end(app.one(), Verb.NACK, retry_after=500_000)
    await settle()
    assert [each.retry_after for each in world.store.settlements()] == [500_000]
    world.hint(0.5)  # as timeline/settle.lua does
    await world.advance(0.49)
    assert app.take() == []
    await world.advance(0.02)
    assert app.one().timer.attempt == 2


async def test_an_application_that_dies_of_its_timers_slows_them_down(world: World) -> None:
    """Attempts that end with the stream wait like any other; what was not received goes on at once."""
    await world.put("received", "waiting")
    app = await world.app()
    first, _ = app.take()
    assert first.timer.timer_id == "received"
    app.receive(first)
    await app.leave(broken=True)
    again = await world.app()
    assert again.names() == ["waiting"]
    again.end(again.held[0])
    await world.advance(9.9)
    assert again.take() == []
    await world.advance(0.2)
    assert again.one().timer.attempt == 2


async def test_a_drain_costs_neither_attempt_nor_claim(world: World) -> None:
    """What was never sent is as if it had not been claimed."""
    world.tune(max_claims=2)
    await world.put("a")
    for _ in range(5):
        app = await world.app()
        world.engine.quiesce(app.session)
        await app.leave()
    (aside,) = {(each.verb, each.unsent, each.received) for each in world.store.settlements()}
    assert aside == (Verb.RELEASE, True, False)
    app = await world.app()
    assert app.one().timer.attempt == 1


async def test_claims_are_bounded_by_themselves(world: World) -> None:
    """Sent again and again and never received: it dies too, in the end."""
    world.tune(max_claims=3)
    await world.put("a")
    for _ in range(3):
        app = await world.app()
        assert app.one().timer.attempt == 1
        await app.leave(broken=True)
    app = await world.app()
    assert app.take() == []
    assert await world.stored() == {}
    assert world.counts.total["timers.dead claims"] == 1


# ------------------------------------------------------------------------------- deaths


async def test_a_rejected_timer_is_dead_and_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.put(*(f"n{n}" for n in range(30)))
    app = await world.app()
    with caplog.at_level(logging.WARNING):
        for lease in app.take():
            app.end(lease, Verb.REJECT, reason=Reason.FAILED, error="no such customer")
        await settle()
    assert world.counts.total["timers.dead failed"] == 30
    said = [record for record in caplog.records if record.message == "timers are dead"]
    assert sum(vars(record)["count"] for record in said) == 30
    assert len(said) <= 2, "a line for each batch, not for each timer"
    assert all(len(vars(record)["timer_ids"]) <= 10 for record in said)
    assert {each.error for each in world.store.settlements()} == {"no such customer"}


async def test_deaths_at_the_claim_do_not_hold_up_the_living(world: World) -> None:
    """A relay that died with the last attempts leaves them to the next claim, a full batch of them."""
    world.tune(claim_batch=10, lease_ttl=5.0, delivery_timeout=5.0)
    await world.put(*(f"n{n:02}" for n in range(10)))
    for attempt in range(1, 5):
        claim = await world.store.inner.claim(
            TOPIC, ClaimRequest(limit=10, lease=1_000_000, nonce=bytes([attempt]) * 16, max_bytes=1 << 20)
        )
        assert len(claim.timers) == 10
        receipts = [Extension(timer.timer_id, bytes([attempt]) * 16, received=True) for timer in claim.timers]
        await world.store.inner.extend(TOPIC, receipts, lease=1_000_000)
        await world.advance(1.1)
    await world.put("living")
    app = await world.app(max_outstanding=10)
    await world.advance(0.2)
    assert app.names() == ["living"]
    assert world.counts.total["timers.dead attempts"] == 10


async def test_a_timer_that_has_expired_is_never_delivered(world: World) -> None:
    now = world.clock.server()
    await world.engine.schedule(TOPIC, NewTimer("late", b"", due=now, expires=now + 1_000_000))
    await world.engine.schedule(TOPIC, NewTimer("fresh", b"", due=now, expires_after=60_000_000))
    await world.advance(1.0)
    app = await world.app()
    assert app.names() == ["fresh"]
    assert world.counts.total["timers.expired"] == 1


# ---------------------------------------------------------------------- other due times


async def test_reschedule_is_a_new_occurrence(world: World) -> None:
    """In one step with the end of the delivery; attempts begin anew, the payload may be another."""
    await world.put("a", payload=b"first")
    app = await world.app()
    first = app.one()
    app.end(first, Verb.NACK, retry_after=0)
    await settle()
    world.hint(0)
    await settle()
    second = app.one()
    app.end(second, Verb.RESCHEDULE, again=Again(delay=60_000_000, content=Content(b"second")))
    await settle()
    assert [each.verb for each in world.store.settlements()] == [Verb.NACK, Verb.RESCHEDULE]
    await world.advance(59.9)
    assert app.take() == []
    await world.advance(0.2)
    third = app.one()
    assert (third.timer.attempt, third.timer.payload) == (1, b"second")
    assert third.timer.occurrence_id != second.timer.occurrence_id
    app.end(third, Verb.RESCHEDULE, again=Again(due=world.clock.server()))
    await settle()
    world.hint(0)
    await settle()
    assert app.one().timer.payload == b"second"


async def test_run_wakes_the_poller(world: World) -> None:
    app = await world.app()
    await world.schedule("a", delay=3_600.0)
    assert await world.engine.run_timer(TOPIC, "a") == Changed(Change.RUN)
    await settle()
    assert app.names() == ["a"]
    assert await world.engine.run_timer(TOPIC, "a") == Changed(Change.IN_FLIGHT, delivery_under_way=True)
    assert await world.engine.run_timer(TOPIC, "b") == Changed(Change.GONE)


async def test_conditions_come_to_the_store(world: World) -> None:
    due = world.clock.server() + 1_000_000
    await world.engine.schedule(TOPIC, NewTimer("a", b"", due=due))
    other = Condition(due=due + 1)
    assert await world.engine.cancel(TOPIC, "a", other) == Changed(Change.UNCHANGED)
    moved = NewTimer("a", b"", due=due + 5, condition=other)
    assert await world.engine.schedule(TOPIC, moved) == Scheduled(due, Change.UNCHANGED)
    missing = NewTimer("b", b"", due=due, condition=other)
    assert await world.engine.schedule(TOPIC, missing) == Scheduled(None, Change.GONE)
    assert await world.engine.cancel(TOPIC, "a", Condition(due=due)) == Changed(Change.CANCELLED)


async def test_a_full_topic_refuses_new_timers_only(world: World) -> None:
    world.tune(max_waiting=2)
    await world.schedule("a", delay=60.0)
    await world.schedule("b", delay=60.0)
    with pytest.raises(TopicFull, match="max_waiting"):
        await world.schedule("c", delay=60.0)
    await world.schedule("b", delay=30.0)
    known, new = NewTimer("a", b"", delay=0), NewTimer("d", b"", delay=0)
    results = await world.engine.schedule_many(
        {TOPIC: NewTimers.of([known, new]), "other": NewTimers.of([new])}
    )
    assert [type(result) for result in results[TOPIC]] == [Scheduled, TopicFull]
    assert [type(result) for result in results["other"]] == [Scheduled]
    assert set(await world.stored()) == {"a", "b"}


# ------------------------------------------------------------------------------- pauses


async def test_a_paused_topic_is_looked_at_every_second(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a resume is seen within a second though its hint is lost; and it is no race that was lost."""
    until: int | None = world.clock.server() + 3_600_000_000
    original = world.store.inner.claim

    async def claim(topic: str, request: ClaimRequest) -> Claim:
        if until is None:
            return await original(topic, request)
        now = world.clock.server()
        return Claim(ClaimedTimers.of([]), now, now - 5, now + 1, paused_until=until)

    monkeypatch.setattr(world.store.inner, "claim", claim)
    await world.put("a")
    app = await world.app()
    before = world.store.count("claim")
    await world.advance(10.0)
    assert 10 <= world.store.count("claim") - before <= 13
    assert app.take() == []
    until = None
    await world.advance(1.0)
    assert app.names() == ["a"]


# ----------------------------------------------------------------------------- registry


async def test_topics_are_registered_once(world: World) -> None:
    await world.schedule("a", delay=60.0)
    await world.schedule("b", delay=60.0)
    await world.app("t", "u")
    assert sorted(world.topics.names) == ["t", "u"]


async def test_a_topic_that_could_not_be_registered_is_later(
    world: World,
) -> None:
    """Nobody waits for it, and it is not forgotten."""
    world.topics.error = StoreUnavailable("away")
    await world.schedule("a", delay=60.0)
    assert world.topics.names == []
    world.topics.error = None
    await world.advance(5.0)
    assert world.topics.names == ["t"]


async def test_dead_letters_off_is_the_plain_reject(world: World) -> None:
    """The store is told so; whether it keeps them is its contract."""
    world.tune(dead_letters=DeadLetterPolicy(keep=False))
    assert world.engine._policies(TOPIC).limits.keep is False
    await world.put("a")
    app = await world.app()
    app.end(app.one(), Verb.REJECT)
    await settle()
    assert await world.stored() == {}
