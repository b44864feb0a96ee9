"""What a handler asks for holds for the deliveries of its own stream, within what its topic allows."""

from __future__ import annotations

import pytest

from relay.core.outcomes import Verb
from relay.core.policy import HandlerPolicy, RetryPolicy, TopicPolicy
from relay.engine.delivery.session import GRACE
from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import TOPIC, App, World

BACKOFF = RetryPolicy(initial=10.0, multiplier=5.0, max=40.0)


@pytest.fixture(autouse=True)
def no_jitter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest waits, always."""
    monkeypatch.setattr(world.engine._dispatcher, "_jitter", lambda: 1.0)
    world.tune(retry=RetryPolicy(max_attempts=4, initial=100.0))


async def asking(world: World, **asked: object) -> App:
    """An application whose handler asks for this."""
    handlers = {TOPIC: world.engine.narrowed(TOPIC, HandlerPolicy(**asked))}  # type: ignore[arg-type]
    session = world.engine.open([TOPIC], 10, handlers=handlers)
    world.engine.attach(session)
    await settle()
    return App(world.engine, session)


@pytest.mark.parametrize(("asked", "topic", "held"), [(3, 4, 3), (9, 4, 4), (9, 0, 9), (0, 4, 0)])
async def test_a_topic_bounds_the_attempts(asked: int, topic: int, held: int) -> None:
    policy = TopicPolicy(retry=RetryPolicy(max_attempts=topic))
    assert policy.narrowed(HandlerPolicy(max_attempts=asked)).max_attempts == held


async def test_a_topic_bounds_the_time() -> None:
    policy = TopicPolicy(delivery_timeout=10.0)
    assert [policy.narrowed(HandlerPolicy(timeout=asked)).timeout for asked in (0.0, 4.0, 40.0)] == [0, 4, 10]


async def test_a_lease_that_nobody_renews_bounds_it_too() -> None:
    policy = TopicPolicy(delivery_timeout=600.0, lease_ttl=30.0, renew=False)
    assert policy.narrowed(HandlerPolicy(timeout=40.0)).timeout == 30.0


async def test_the_last_attempt_that_a_handler_allows_is_the_last(world: World) -> None:
    """Its own back-off lies before it, and the topic's policy would have allowed two more."""
    await world.put("a")
    app = await asking(world, max_attempts=2, backoff=BACKOFF)
    app.end(app.one(), Verb.NACK, error="busy")
    await world.advance(9.99)
    assert app.take() == []
    await world.advance(0.1)
    app.end(app.one(), Verb.NACK, error="busy")
    await settle()
    assert await world.stored() == {}
    assert world.counts.total["timers.dead attempts"] == 1
    assert app.complaints() == []


async def test_two_applications_have_what_each_of_them_asked_for(world: World) -> None:
    """One topic, two streams: the one that asks for nothing has the topic's policy."""
    plain, eager = await world.app(max_outstanding=1), await asking(world, max_attempts=1, backoff=BACKOFF)
    await world.schedule("a")
    await world.schedule("b")
    plain.end(plain.one(), Verb.NACK)
    eager.end(eager.one(), Verb.NACK)
    await settle()
    assert len(await world.stored()) == 1
    assert world.counts.total["timers.dead attempts"] == 1
    await world.advance(99.0)
    assert plain.take() + eager.take() == []


async def test_a_handler_that_kills_its_process_uses_its_attempts_up(world: World) -> None:
    """Its stream breaks, and the receipt had come."""
    await world.put("a")
    app = await asking(world, max_attempts=1)
    app.receive(app.one())
    await app.leave(broken=True)
    assert await world.stored() == {}
    assert world.counts.total["timers.dead attempts"] == 1


async def test_without_a_receipt_nothing_is_used_up(world: World) -> None:
    await world.put("a")
    app = await asking(world, max_attempts=1)
    app.one()
    await app.leave(broken=True)
    assert list(await world.stored()) == ["a"]


async def test_a_handler_that_says_nothing_within_its_time_has_failed(world: World) -> None:
    """The application did not even say that it was too slow: its event loop hangs, perhaps. The timer dies
    where this was its last attempt, before its lease is over."""
    await world.put("a")
    app = await asking(world, max_attempts=1, timeout=20.0)
    app.receive(app.one())
    await world.advance(20.0 + GRACE - 2.0)
    assert list(await world.stored()) == ["a"]
    await world.advance(4.0)
    assert await world.stored() == {}
    assert world.counts.total["timers.dead attempts"] == 1


async def test_its_time_begins_with_the_receipt_and_again_with_extend(world: World) -> None:
    """What waits in the application's own queue uses none of it."""
    await world.put("a")
    app = await asking(world, max_attempts=1, timeout=20.0)
    lease = app.one()
    await world.advance(100.0)
    app.receive(lease)
    await world.advance(20.0)
    app.extend(lease)
    await world.advance(20.0)
    app.end(lease)
    await settle()
    assert app.complaints() == []
    assert await world.stored() == {}
    assert world.counts.total["timers.dead attempts"] == 0


async def test_extend_gives_no_more_than_its_time(world: World) -> None:
    """And not the topic's ten minutes."""
    await world.put("a")
    app = await asking(world, max_attempts=1, timeout=20.0)
    lease = app.one()
    app.receive(lease)
    app.extend(lease)
    await world.advance(20.0 + GRACE + 2.0)
    assert await world.stored() == {}


async def test_silence_before_the_last_attempt_costs_one(world: World) -> None:
    """Renewals end with the handler's time, long before the topic's, and the timer comes again."""
    await world.put("a")
    app = await asking(world, max_attempts=3, timeout=20.0)
    app.receive(app.one())
    await world.advance(20.0 + GRACE + 31.0)
    assert app.one().timer.attempt == 2
