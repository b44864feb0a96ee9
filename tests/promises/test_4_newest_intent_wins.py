"""Promise 4, the newest intent wins: a change of a timer that is being delivered is never lost.

Whichever way the race goes, what was asked for last is what stands.

Each of these breaks was seen to fail here:
- `timeline/settle` does not ask the fence.
- `timeline/cancel` leaves leased timers alone.
"""

from __future__ import annotations

import pytest

from relay.client import ChangeResult, Delivery, Nack, Reject, RelayClient, Reschedule, TimerState
from tests.promises.world import Handler, World, serving
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")


async def ack(_: Delivery) -> None:
    """Returning is ACK."""


async def nack(_: Delivery) -> None:
    raise Nack(retry_after=0)


async def reject(_: Delivery) -> None:
    raise Reject("too late")


async def reschedule(_: Delivery) -> None:
    raise Reschedule(delay=7200)


@pytest.mark.parametrize("end", [ack, nack, reject, reschedule])
async def test_moved_while_its_handler_works(world: World, end: object) -> None:
    """Somebody moves a timer through the other relay. However the handler ends after that, the new time
    stands."""
    topic, handler = world.topic(), Handler(world, held=True, end=end)  # type: ignore[arg-type]
    async with serving(world.ahead, topic, handler) as client, RelayClient(world.behind.target) as somebody:
        await client.schedule(topic, b"old", delay=0, timer_id="invoice-42")
        await until(lambda: world.received(topic) == 1, "Redis knows that the handler has started")
        moved = await somebody.schedule(topic, b"new", delay=3600, timer_id="invoice-42")
        assert moved.result is ChangeResult.REPLACED
        handler.gate.set()
        await until(lambda: world.counted("relay_timers_stale_total", topic) == 1, "its outcome is void")
        timer = await client.get(topic, "invoice-42")
    assert timer is not None
    assert (timer.payload, timer.due_time, timer.state) == (b"new", moved.due_time, TimerState.PENDING)
    assert timer.attempts == 0
    assert world.client.exists(f"timers_dead:{topic}") == 0
    assert len(handler.started) == 1


async def test_cancelled_while_its_handler_works(world: World) -> None:
    """A cancelled timer does not come back, although the handler that has it asks for a retry."""
    topic, handler = world.topic(), Handler(world, held=True, end=nack)
    async with serving(world.ahead, topic, handler) as client, RelayClient(world.behind.target) as somebody:
        await client.schedule(topic, b"", delay=0, timer_id="invoice-42")
        await until(lambda: world.received(topic) == 1, "Redis knows that the handler has started")
        assert (await somebody.cancel(topic, "invoice-42")).result is ChangeResult.CANCELLED
        assert await client.get(topic, "invoice-42") is None
        handler.gate.set()
        await until(lambda: world.counted("relay_timers_stale_total", topic) == 1, "its outcome is void")
        assert await client.get(topic, "invoice-42") is None
        assert (await somebody.cancel(topic, "invoice-42")).result is ChangeResult.NOT_FOUND
    assert len(handler.started) == 1


async def test_the_other_way_round(world: World) -> None:
    """The handler's end comes first. The change then finds no timer, says so, and stands all the same."""
    topic, handler = world.topic(), Handler(world)
    async with serving(world.ahead, topic, handler) as client, RelayClient(world.behind.target) as somebody:
        await client.schedule(topic, b"old", delay=0, timer_id="invoice-42")
        await handler.has(1)
        await until(lambda: not world.ids(topic), "it is committed")
        assert (await somebody.cancel(topic, "invoice-42")).result is ChangeResult.NOT_FOUND
        moved = await somebody.schedule(topic, b"new", delay=3600, timer_id="invoice-42")
        assert moved.result is ChangeResult.CREATED
        timer = await client.get(topic, "invoice-42")
    assert timer is not None
    assert (timer.payload, timer.due_time) == (b"new", moved.due_time)


async def test_a_handler_that_moves_its_own_timer(world: World) -> None:
    """What the handler scheduled is newer than the delivery that it ends: both its own word, the last one
    stands."""
    topic = world.topic()

    async def schedule_again(delivery: Delivery) -> None:
        await client.schedule(topic, b"again", delay=3600, timer_id=delivery.timer_id)

    handler = Handler(world, end=schedule_again)
    async with serving(world.ahead, topic, handler) as client:
        await client.schedule(topic, b"", delay=0, timer_id="invoice-42")
        # Where the call took longer than a receipt waits, the receipt was void first, and no ACK follows.
        await until(
            lambda: (
                world.counted("relay_timers_stale_total", topic) == 1
                or any(delivery.lost for delivery in handler.started)
            ),
            "the ACK is void",
        )
        timer = await client.get(topic, "invoice-42")
    assert timer is not None
    assert timer.payload == b"again"
