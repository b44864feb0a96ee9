"""When a topic is polled: at due times, upon hints, and never without room."""

from __future__ import annotations

import logging

import pytest

from relay.core.errors import StoreUnavailable, WrongKeyType
from relay.core.outcomes import ClaimRequest, Verb
from relay.engine.claiming.poller import GATHER
from relay.engine.clock import COMPANY, MANY, TOGETHER, SystemClock
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, World


async def test_sleeps_until_the_next_timer_is_due(world: World) -> None:
    """One claim at the start, one at the due time; nothing in between, and never early."""
    await world.put("a", delay=3.0)
    app = await world.app()
    assert world.store.count("claim") == 1
    await world.advance(2.999)
    assert app.names() == []
    assert world.store.count("claim") == 1
    await world.advance(0.001)
    assert app.names() == ["a"]
    assert world.counts.latenesses == [0.0]


async def test_polls_an_idle_topic_once_in_each_longest_interval(world: World) -> None:
    """An idle topic costs at most one call in 0.9 × max_polling_interval."""
    world.tune(max_polling_interval=10.0)
    await world.app()
    for _ in range(100):
        before = world.store.count("claim")
        await world.advance(10.0)
        assert 1 <= world.store.count("claim") - before <= 2
    assert world.store.count("claim") <= 1 + 1000 / 9


async def test_idle_topics_are_polled_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system's clock has it: each wakes at an instant that the others have too, and none later."""
    monkeypatch.setattr(world.clock, "together", SystemClock().together)
    for n in range(40):
        await world.app(f"idle-{n}")
        await world.advance(0.11)
    wakes = []
    for _ in range(2_000):
        before = world.store.count("claim")
        await world.advance(0.01)
        wakes.append(world.store.count("claim") - before)
    assert sum(wakes) >= 40 * 20 / 5
    assert sum(map(bool, wakes)) <= sum(wakes) / 2


async def test_the_relays_of_a_machine_wake_apart() -> None:
    """Each has instants of its own, and what is moved comes less than `TOGETHER` earlier."""
    clocks = [SystemClock() for _ in range(20)]
    assert len({clock.together(1_000.0) for clock in clocks}) > 1
    for clock in clocks:
        assert 1_000.0 - TOGETHER < clock.together(1_000.0) <= 1_000.0
        assert clock.together(1_000.0 + TOGETHER) - clock.together(1_000.0) == pytest.approx(TOGETHER)


def test_no_crowd_wakes_at_one_instant() -> None:
    """A thousand idle topics would keep a busy one's claim waiting; and what is past is forgotten."""
    clock = SystemClock()
    soon = clock.now() + 5.0
    moved = [clock.together(soon) for _ in range(1_000)]
    assert moved.count(soon) >= 1_000 - COMPANY
    assert len(set(moved)) <= 2
    long_ago = clock.now() - 10 * MANY * TOGETHER
    for n in range(10 * MANY):
        clock.together(long_ago + n * TOGETHER)
    assert len(clock._company) <= MANY + 1


async def test_finds_what_a_foreign_publisher_wrote(world: World) -> None:
    """Without any hint, within max_polling_interval."""
    app = await world.app()
    await world.put("a")
    await world.advance(5.0)
    assert app.names() == ["a"]


async def test_is_woken_by_an_earlier_timer_through_the_same_relay(world: World) -> None:
    """Whatever it was sleeping for."""
    world.tune(max_polling_interval=60.0)
    await world.put("late", delay=50.0)
    app = await world.app()
    await world.schedule("soon", delay=1.0)
    await world.schedule("now")
    assert app.names() == ["now"]
    await world.advance(1.0)
    assert app.names() == ["soon"]
    await world.advance(49.0)
    assert app.names() == ["late"]


async def test_is_woken_by_a_hint(world: World) -> None:
    """What another relay schedules comes in time although the poller sleeps for long."""
    world.tune(max_polling_interval=60.0)
    app = await world.app()
    await world.put("a", delay=2.0)
    world.hint(delay=2.0)
    await world.advance(1.999)
    assert app.names() == []
    await world.advance(0.001)
    assert app.names() == ["a"]


async def test_a_hint_without_an_instant_polls_at_once(world: World) -> None:
    """That is what a fresh subscription says: hints may have been missed."""
    app = await world.app()
    await world.put("a")
    world.hints.watchers[TOPIC](0)
    await settle()
    assert app.names() == ["a"]


async def test_a_later_timer_does_not_wake_it(world: World) -> None:
    """Only earlier ones matter."""
    await world.put("a", delay=1.0)
    await world.app()
    before = world.store.count("claim")
    await world.schedule("b", delay=2.0)
    world.hint(delay=3.0)
    await settle()
    assert world.store.count("claim") == before


@pytest.mark.parametrize("after", [False, True], ids=["claim-not-done", "reply-under-way"])
async def test_a_timer_scheduled_during_a_claim_is_not_forgotten(world: World, after: bool) -> None:
    """The reply of the claim tells of a next timer that is no longer the next one."""
    world.tune(max_polling_interval=60.0)
    await world.put("late", delay=50.0)
    app = await world.app()
    claim = world.store.hold("claim", after=after)
    world.hint(delay=0.0)
    await settle()
    assert claim.reached
    await world.schedule("a", delay=0.0)
    await world.schedule("b", delay=2.0)
    claim.open()
    await settle()
    assert app.names() == ["a"]
    await world.advance(2.0)
    assert app.names() == ["b"]


async def test_a_timer_scheduled_during_the_very_first_claim_is_not_forgotten(world: World) -> None:
    """No server time is known then: the poller asks again at once."""
    world.tune(max_polling_interval=60.0)
    claim = world.store.hold("claim", after=True)
    app = await world.app()
    assert claim.reached
    await world.schedule("a", delay=1.0)
    claim.open()
    await world.advance(1.0)
    assert app.names() == ["a"]


async def test_a_timer_scheduled_during_a_claim_that_fails_is_not_forgotten(world: World) -> None:
    """A failed claim is repeated, and its repetition sees everything."""
    world.tune(max_polling_interval=60.0)
    world.store.fail("claim", StoreUnavailable("away"), times=1)
    app = await world.app()
    await world.schedule("a", delay=1.0)
    await world.advance(1.001)
    assert app.names() == ["a"]


async def test_never_claims_without_room(world: World) -> None:
    """A full application holds no leases beyond what it asked for, and costs no calls."""
    await world.put("a", "b", "c")
    app = await world.app(max_outstanding=2)
    (first, second) = app.take()
    before = world.store.count("claim")
    await world.advance(20.0)
    assert world.store.count("claim") == before
    assert await world.leased() == {"a", "b"}
    app.end(first)
    await settle()
    assert app.names() == ["c"]
    app.end(second)


async def test_gathers_room_while_there_is_more_due_than_room(world: World) -> None:
    """A quarter of all places is claimed for at once; less has to wait, since each claim costs the same."""
    await world.put(*"abcdefghijklm")
    app = await world.app(max_outstanding=8)
    first = app.take()
    app.ack(first[:1])
    await settle()
    assert world.store.count("claim") == 1
    await world.advance(GATHER)
    assert app.names() == ["i"]
    app.ack(first[1:3])
    await settle()
    assert app.names() == ["j", "k"]


async def test_an_empty_backlog_waits_for_no_room(world: World) -> None:
    """A timer that falls due when all that was due is taken is claimed at once, whatever room there is."""
    await world.put(*"abc")
    app = await world.app(max_outstanding=4)
    await world.schedule("d")
    assert app.names() == ["a", "b", "c", "d"]


async def test_never_claims_for_an_application_that_drains(world: World) -> None:
    """What falls due after its Drain stays for others."""
    app = await world.app()
    world.engine.quiesce(app.session)
    await world.schedule("a")
    await world.advance(30.0)
    assert await world.leased() == set()


async def test_limits_a_claim_to_its_batch(world: World) -> None:
    """`claim_batch` timers a call, however much room there is."""
    world.tune(claim_batch=10)
    await world.put(*(f"{n:03}" for n in range(25)))
    app = await world.app()
    assert len(app.take()) == 25
    assert [call.items for call in world.store.calls if call.verb == "claim"][:3] == [(10,)] * 3


async def test_two_topics_of_one_session_never_claim_more_than_it_can_take(world: World) -> None:
    """While one topic's claim is under way, its places are not there for the other."""
    await world.put("a1", "a2", topic="a")
    await world.put("b1", "b2", topic="b")
    claim = world.store.hold("claim", topic="a", after=True)
    app = await world.app("a", "b", max_outstanding=2)
    assert await world.leased("b") == set()
    claim.open()
    await settle()
    assert app.names() == ["a1", "a2"]
    assert await world.leased("b") == set()
    app.ack(app.held)
    await settle()
    assert app.names() == ["b1", "b2"]


async def test_places_that_a_claim_did_not_use_go_to_the_other_topic(world: World) -> None:
    """A topic without timers must not leave a second one asleep: nobody else would wake it."""
    await world.put("b1", topic="b")
    app = await world.app("a", "b", max_outstanding=1)
    assert app.names() == ["b1"]


async def test_a_backlog_of_one_topic_does_not_starve_the_other(world: World) -> None:
    """With one place for two topics, they take turns."""
    await world.put(*(f"a{n}" for n in range(20)), topic="a")
    await world.put(*(f"b{n}" for n in range(20)), topic="b")
    app = await world.app("a", "b", max_outstanding=1)
    seen = []
    for _ in range(20):
        lease = app.one()
        seen.append(lease.topic)
        app.end(lease)
        await settle()
    assert seen.count("a") == seen.count("b") == 10


async def test_a_claim_under_way_when_the_last_session_leaves_is_released_at_once(world: World) -> None:
    """Nobody else would know these timers to be leased: they would wait for their leases' end."""
    await world.put("a", "b")
    claim = world.store.hold("claim", after=True)
    app = await world.app()
    assert await world.leased() == {"a", "b"}
    await app.leave(broken=True)
    claim.open()
    await settle()
    assert await world.leased() == set()
    for name in ("a", "b"):
        timer = await world.get(name)
        assert timer is not None
        assert timer.attempts == 0
    again = await world.app()
    assert again.names() == ["a", "b"], "they were never sent, so they come together"


async def test_backs_off_when_others_win(world: World) -> None:
    """A poller that keeps finding its timers taken asks less and less often, up to a limit."""
    await world.put("0")
    door = world.store.hold("claim")
    await world.app()
    waits = []
    for n in range(6):
        taken = await world.store.inner.claim(
            TOPIC, ClaimRequest(limit=9, lease=10**9, nonce=bytes(16), max_bytes=999)
        )
        await world.store.inner.cancel(TOPIC, [timer.timer_id for timer in taken.timers])
        await world.put(f"{n + 1}", delay=0.001)
        following = world.store.hold("claim")
        door.open()
        before = world.clock.now()
        while not following.reached:
            await world.advance(0.001)
        waits.append(world.clock.now() - before)
        door = following
    assert waits[0] < 0.01, "the first claim was not made for any timer, so nobody won"
    for wait, least in zip(waits[1:], (0.025, 0.05, 0.1, 0.2, 0.2), strict=True):
        assert least - 1e-6 <= wait <= 3 * least + 0.01


async def test_a_poll_that_came_too_early_is_no_defeat(world: World) -> None:
    """The poller's idea of the server's clock is a guess; where it is a little ahead, the timer
    comes in time all the same, and not after a back-off."""
    world.tune(max_polling_interval=60.0)
    app = await world.app()
    for _ in range(5):
        await world.put("a", delay=1.0)
        world.hint(delay=1.0)
        world.clock.skew -= 2_000  # the server's clock is slewed back by 2 ms
        await world.advance(1.0)
        assert app.names() == []
        await world.advance(0.002)
        lease = app.one()
        app.end(lease)
        await settle()


async def test_waits_between_tries_while_redis_is_away_and_says_so_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Growing pauses, one line when it goes, one when it comes back."""
    caplog.set_level(logging.INFO)
    away = world.store.fail("claim", StoreUnavailable("connection refused"))
    ping = world.store.fail("ping", StoreUnavailable("connection refused"))
    app = await world.app()
    await world.advance(60.0)
    assert away.reached < 120
    before = away.reached
    await world.advance(60.0)
    assert away.reached - before <= 120 / 2.5
    assert world.engine.ready() == ["Redis is away: connection refused"]
    assert [record.message for record in caplog.records] == ["Redis is away; trying again until it is back"]
    await world.put("a")
    away.open()
    ping.open()
    await world.advance(5.0)
    assert app.names() == ["a"]
    assert world.engine.ready() == []
    assert [record.message for record in caplog.records][1:] == ["Redis is back"]


async def test_a_refused_claim_stops_nothing_else_and_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong type under one topic's key: that topic waits, the others go on."""
    refused = world.store.fail("claim", WrongKeyType("a key holds a list"), topic="bad")
    await world.put("a", topic="bad")
    await world.put("b", topic="good")
    app = await world.app("bad", "good")
    assert app.names() == ["b"]
    await world.advance(60.0)
    assert 5 < refused.reached < 20
    assert [r.message for r in caplog.records] == ["Redis refuses to claim"]
    assert world.engine.ready() == []
    refused.open()
    await world.advance(5.0)
    assert app.names() == ["a"]


async def test_an_error_that_nobody_thought_of_stops_no_loop(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A claim whose reply can't be read is said with its traceback and tried again later."""
    broken = world.store.fail("claim", RuntimeError("what is this"), topic="bad", after=True)
    app = await world.app("bad", "good")
    assert "what is this" in caplog.text
    await world.schedule("b", topic="good")
    assert app.names() == ["b"]
    broken.open()
    await world.put("a", topic="bad")
    await world.advance(60.0)
    assert app.names() == ["a"]


async def test_redeliveries_come_when_their_back_off_ends(world: World) -> None:
    """NACK with retry_after wakes the poller by the store's hint or by the claim's next score."""
    await world.put("a")
    app = await world.app()
    lease = app.one()
    app.end(lease, Verb.NACK, retry_after=2_000_000)
    await settle()
    await world.advance(2.0 + 5.0)
    assert app.one().timer.attempt == 2
