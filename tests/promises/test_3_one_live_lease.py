"""Promise 3, one live lease: a timer has at most one valid token, and a stale token changes nothing.

Each of these breaks was seen to fail here:
- A lease is over as soon as it begins.
- The fence (`holds` in lua/lib) compares no nonce.
"""

from __future__ import annotations

import signal

import pytest

from relay.client import NewTimer, RelayClient, TimerState
from tests.promises.world import BRIEF, Handler, World, serving
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")


async def test_two_relays_share_what_is_due_and_no_timer_is_at_both(world: World) -> None:
    """Both relays deliver what is due in one topic at once. All 200 handlers are at work; no timer is there
    twice."""
    topic, one, two = world.topic(), Handler(world, held=True), Handler(world, held=True)
    async with serving(world.ahead, topic, one) as client, serving(world.behind, topic, two):
        timers = await client.schedule_batch(
            [NewTimer(topic=topic, payload=b"", delay=0) for _ in range(200)]
        )
        await until(lambda: len(one.started) + len(two.started) == 200, "all are at work")
        assert (len(one.started), len(two.started)) == (100, 100)
        assert sorted(one.names + two.names) == sorted(timer.timer_id for timer in timers)
        one.gate.set()
        two.gate.set()
        await until(lambda: not world.ids(topic), "all are committed")
    assert world.counted("relay_timers_stale_total", topic) == 0


async def test_a_token_that_lost_its_lease_changes_nothing_and_is_counted(world: World) -> None:
    """A relay stands still until its lease is over, and the other relay delivers the timer again. The first
    handler's ACK comes while the second handler works. It is void, and the second handler's ACK counts."""
    stale = world.counted("relay_timers_stale_total", BRIEF)
    first, second = Handler(world, held=True), Handler(world, held=True)
    async with RelayClient(world.behind.target) as producer, serving(world.ahead, BRIEF, first):
        timer = await producer.schedule(BRIEF, b"", delay=0)
        await first.has(1)
        await until(lambda: world.received(BRIEF) == 1, "Redis knows that the handler has started")
        world.ahead.signal(signal.SIGSTOP)
        try:
            async with serving(world.behind, BRIEF, second):
                await second.has(1)
                # The ACK is on its way when the relay wakes: a client that knows of the loss sends none.
                first.gate.set()
                await until(lambda: first.ended == 1, "the first handler has ended")
                world.ahead.signal(signal.SIGCONT)
                await until(
                    lambda: world.counted("relay_timers_stale_total", BRIEF) > stale,
                    "the ACK is counted as stale",
                )
                held = await producer.get(BRIEF, timer.timer_id)
                assert held is not None, "the stale ACK has not removed the timer"
                assert held.state is TimerState.LEASED
                assert not second.started[0].lost
                second.gate.set()
                await until(lambda: not world.ids(BRIEF), "the second ACK counts")
        finally:
            world.ahead.signal(signal.SIGCONT)
    assert [delivery.attempt for delivery in first.started + second.started] == [1, 2]
    assert first.started[0].occurrence_id == second.started[0].occurrence_id
