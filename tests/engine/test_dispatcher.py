"""Which application gets which timer, and what happens to those that nobody takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relay.core.outcomes import ClaimRequest, Reason, Verb
from relay.core.timers import Claim, ClaimedTimer, ClaimedTimers
from relay.engine.delivery.session import Session
from tests.settlements import End
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.leased import leased
from tests.worlds.engine.world import World


def alter_claims(
    world: World, monkeypatch: pytest.MonkeyPatch, alter: Callable[[ClaimedTimers], None]
) -> None:
    """Let all claims from now on bring other timers than were stored."""
    original = world.store.inner.claim

    async def claim(topic: str, request: ClaimRequest) -> Claim:
        answer = await original(topic, request)
        alter(answer.timers)
        return answer

    monkeypatch.setattr(world.store.inner, "claim", claim)


async def test_spreads_timers_in_even_shares(world: World) -> None:
    """Three applications on one topic get a third each."""
    apps = [await world.app() for _ in range(3)]
    await world.put(*(f"{n:02}" for n in range(30)))
    world.hint(delay=0)
    await settle()
    shares = [len(app.take()) for app in apps]
    assert shares == [10, 10, 10]


async def test_takes_turns_with_single_timers(world: World) -> None:
    """Timers that come one by one do not all go to the first application."""
    apps = [await world.app() for _ in range(3)]
    for n in range(30):
        await world.schedule(f"{n}")
    assert [len(app.take()) for app in apps] == [10, 10, 10]


async def test_fills_up_the_others_when_one_has_little_room(world: World) -> None:
    """Nothing is released while anybody has room."""
    small, large = await world.app(max_outstanding=2), await world.app(max_outstanding=100)
    await world.put(*(f"{n:02}" for n in range(30)))
    world.hint(delay=0)
    await settle()
    assert len(small.take()) == 2
    assert len(large.take()) == 28
    assert world.counts.total["timers.released"] == 0


async def test_what_finds_no_place_is_released_without_an_attempt(world: World) -> None:
    """The application that had room leaves while the claim is under way; the other is full."""
    await world.put("a", "b", "c")
    stays = await world.app("other", "t", max_outstanding=1)
    claim = world.store.hold("claim", topic="t")
    leaves = await world.app(max_outstanding=10)
    assert claim.reached
    stays.take()
    await leaves.leave()
    claim.open()
    await settle()
    assert len(stays.held) + len(stays.take()) == 1
    assert len(await world.leased()) == 1
    for name in {"a", "b", "c"} - await world.leased():
        timer = await world.get(name)
        assert timer is not None
        assert timer.attempts == 0


async def test_leases_are_counted_from_when_the_claim_was_sent(world: World) -> None:
    """A slow reply must not make the relay believe in a lease for longer than the server does."""
    await world.put("a")
    claim = world.store.hold("claim", after=True)
    app = await world.app()
    await world.advance(3.0)
    claim.open()
    await settle()
    assert app.one().deadline == pytest.approx(world.clock.now() - 3.0 + 30.0)


async def test_a_timer_whose_id_is_no_text_is_dead_and_said(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can't be named to an application; it does not keep the others from going."""
    await world.put("bad", "good")

    def alter(timers: ClaimedTimers) -> None:
        timers.readable = [name != "bad" for name in timers.timer_ids]

    alter_claims(world, monkeypatch, alter)
    app = await world.app()
    assert app.names() == ["good"]
    assert "its id is not UTF-8" in caplog.text
    assert world.counts.total["timers.undeliverable"] == 1
    (aside,) = [s for s in world.store.items("settle") if isinstance(s, End)]
    assert aside.timer_id == "bad"
    assert (aside.verb, aside.reason) == (Verb.REJECT, Reason.UNREADABLE)
    assert world.counts.total["timers.dead unreadable"] == 1
    await world.advance(60.0)
    assert world.counts.total["timers.undeliverable"] == 1


async def test_a_session_that_names_a_topic_twice_has_it_once(world: World) -> None:
    """No double share, no leftover at its end."""
    app = await world.app("t", "t")
    await app.leave()
    assert world.engine._dispatcher.sessions() == set()
    assert world.engine._dispatcher.room("t") == (0, 0)


async def test_lateness_counts_first_attempts_only(world: World) -> None:
    """From the due time, by the server's clock."""
    await world.put("a")
    await world.advance(2.0)
    app = await world.app()
    app.end(app.one(), Verb.NACK, retry_after=0)
    await world.advance(6.0)
    assert app.one().timer.attempt == 2
    assert world.counts.latenesses == [2.0]


async def test_a_delivery_begins_when_it_is_sent(world: World) -> None:
    """What waits for a slow stream is late by that, too; what is never sent there was never delivered."""
    await world.put("a", "b")
    slow = await world.app()
    await world.advance(3.0)
    assert world.counts.total["timers.claimed"] == 2
    assert world.counts.total["timers.delivered"] == 0
    slow.engine.quiesce(slow.session)
    other = await world.app()
    await world.advance(2.0)
    assert other.names() == ["a", "b"]
    assert world.counts.total["timers.delivered"] == 2
    assert world.counts.latenesses == pytest.approx([5.0, 5.0])


async def test_places_that_go_while_they_are_filled(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session loses places by time alone, as its deliveries turn out to be slow. Nothing goes out twice."""
    fading, steady = await world.app(), await world.app()
    looks = iter([100, -100, -100, 0])
    real: Any = vars(Session)["free"]

    def free(self: Session) -> int:
        places: int = next(looks) if self is fading.session else real.fget(self)
        return places

    monkeypatch.setattr(Session, "free", property(free))
    dispatcher = world.engine._dispatcher
    leases = leased(*(ClaimedTimer(f"{n}", b"", {}, "", 0, 1, f"{n}") for n in range(300)))
    dispatcher._turn = 1  # the fading one comes first
    assert dispatcher._place("t", leases) == 300
    monkeypatch.undo()
    assert (fading.session.leases, len(steady.session.leases)) == ({}, 300)
    assert fading.session.take().parts == []
    steady.take()
    steady.ack(list(steady.held))


async def test_a_guess_is_no_lateness(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a foreign worker held a timer before, nobody knows when it was due."""
    await world.put("known", "guessed")

    def alter(timers: ClaimedTimers) -> None:
        timers.approximate = [name == "guessed" for name in timers.timer_ids]

    alter_claims(world, monkeypatch, alter)
    app = await world.app()
    assert len(app.names()) == 2
    assert (len(world.counts.latenesses), world.counts.total["timers.delivered"]) == (1, 2)
