"""Promise 1, never early: no delivery begins before its timer's due time, by the clock of Redis.

No other clock decides anything. So the relays of this world keep the promise although the clock of one is an
hour ahead, and that of the other an hour behind.

Each of these breaks was seen to fail here:
- `timeline/claim` takes what is due within the next hour.
- A relay turns a delay into a due time by its own clock.
- A NACK with a pause makes the timer due at once.
"""

from __future__ import annotations

import pytest

from relay.client import Delivery, Nack, RelayClient, TimerState
from tests.promises.world import Handler, World, serving

pytestmark = pytest.mark.usefixtures("one_try")


@pytest.mark.parametrize("clock", ["ahead", "behind"])
async def test_no_handler_starts_before_the_due_time(world: World, clock: str) -> None:
    """A delay is counted by the clock of Redis, and no handler starts before it is over."""
    relay = world.ahead if clock == "ahead" else world.behind
    topic, handler = world.topic(), Handler(world)
    async with serving(relay, topic, handler) as client:
        due = {}
        for delay in (0.0, 0.1, 0.2, 0.3, 0.4):
            asked = world.now()
            timer = await client.schedule(topic, b"", delay=delay)
            due[timer.timer_id] = timer.due_time.timestamp()
            assert asked + delay <= due[timer.timer_id] <= world.now() + delay
        await handler.has(due)
    for delivery, started in zip(handler.started, handler.started_at, strict=True):
        assert started >= due[delivery.timer_id] == delivery.due_time.timestamp()


async def test_a_clock_that_is_an_hour_ahead_brings_nothing_forward(world: World) -> None:
    """While both relays deliver what is due, what is due in half an hour stays where it is."""
    topic, ahead, behind = world.topic(), Handler(world, held=True), Handler(world, held=True)
    async with (
        serving(world.ahead, topic, ahead, concurrency=1) as client,
        serving(world.behind, topic, behind, concurrency=1),
    ):
        later = await client.schedule(topic, b"", delay=1800)
        for _ in range(2):
            await client.schedule(topic, b"", delay=0)
        await ahead.has(1)
        await behind.has(1)
        timer = await client.get(topic, later.timer_id)
        assert timer is not None
        assert (timer.state, timer.attempts) == (TimerState.PENDING, 0)
        assert timer.due_time == later.due_time
    assert later.timer_id not in ahead.names + behind.names


async def test_a_retry_waits_as_long_as_the_handler_asked(world: World) -> None:
    """A NACK with a pause of 0.5 s: the second attempt starts after the pause, with the due time
    unchanged."""
    failed_at = []

    async def fail_once(delivery: Delivery) -> None:
        if delivery.attempt == 1:
            failed_at.append(world.now())
            raise Nack(retry_after=0.5)

    topic, handler = world.topic(), Handler(world, end=fail_once)
    async with serving(world.ahead, topic, handler) as client:
        await client.schedule(topic, b"", delay=0)
        await handler.has(2)
    first, second = handler.started
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.due_time == second.due_time
    assert handler.started_at[1] >= failed_at[0] + 0.5


async def test_a_due_time_that_has_passed_means_now(world: World) -> None:
    """Late is allowed, and lost is not: what was due an hour ago is delivered by the relay that is an hour
    behind."""
    topic, handler = world.topic(), Handler(world)
    async with RelayClient(world.ahead.target) as producer:
        now = await producer.schedule(topic, b"", delay=0)
        old = await producer.schedule(topic, b"", due_time=now.due_time.replace(year=now.due_time.year - 1))
    async with serving(world.behind, topic, handler):
        await handler.has({now.timer_id, old.timer_id})
