"""Promise 2, at least once: every Schedule that was answered OK ends delivered and committed, whatever dies.

(It may also end rejected, cancelled, replaced, expired, dead or purged, if somebody asked for that.)

Each of these breaks was seen to fail here:
- A relay acknowledges what it holds when the application's stream breaks.
- A lease that nobody renews never ends.
"""

from __future__ import annotations

import json
from contextlib import suppress

import anyio

from relay.client import CallError, NewTimer, RelayClient
from tests.promises.world import BRIEF, PATIENCE, Handler, World, serving
from tests.worlds.waiting import until


async def test_an_application_is_killed_in_the_middle_of_its_deliveries(world: World) -> None:
    """All twenty handlers are at work when their process dies. Another application gets all twenty timers."""
    topic, gate = world.topic(), world.directory / "never"
    async with RelayClient(world.ahead.target) as producer:
        work = json.dumps({"gate": str(gate)}).encode()
        accepted = await producer.schedule_batch(
            [NewTimer(topic=topic, payload=work, delay=0) for _ in range(20)]
        )
    names = {timer.timer_id for timer in accepted}
    doomed = world.application(world.ahead, topic)
    await until(lambda: {e.timer_id for e in world.journal.events("start")} >= names, "all are at work")

    doomed.kill()
    assert world.ids(topic) == names, "nothing leaves Redis before it is acknowledged"
    survivor = Handler(world)
    async with serving(world.behind, topic, survivor):
        await survivor.has(names)
        await until(lambda: not world.ids(topic), "all are committed")


async def test_a_relay_is_killed_in_the_middle_of_its_deliveries(world: World) -> None:
    """A relay dies while a producer schedules and handlers work. What was answered OK is handled by the
    other."""
    accepted: set[str] = set()

    async def produce(producer: RelayClient) -> None:
        while world.ahead.running:
            with suppress(CallError):  # it dies, or is slow; whether this one is stored is unknown
                accepted.add((await producer.schedule(BRIEF, b"", delay=0, timeout=2.0)).timer_id)

    held, survivor = Handler(world, held=True), Handler(world)
    async with serving(world.ahead, BRIEF, held, concurrency=20) as client:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce, client)
                await held.has(20)
                await until(lambda: len(accepted) >= 50, "timers wait behind those that are at work")
                world.ahead.kill()
            assert world.ids(BRIEF) >= accepted
            async with serving(world.behind, BRIEF, survivor):
                await survivor.has(accepted)
                await until(lambda: not world.ids(BRIEF), "all are committed")
        finally:
            world.ahead.kill()
            world.ahead.start()
    again = [delivery for delivery in survivor.started if delivery.timer_id in held.names]
    first = {delivery.timer_id: delivery for delivery in held.started}
    assert len(again) == 20
    assert all(each.occurrence_id == first[each.timer_id].occurrence_id for each in again)


async def test_no_application_is_there_for_a_while(world: World) -> None:
    """Timers wait for an application, through the restart of a relay, and none of the waiting counts."""
    topic, handler = world.topic(), Handler(world)
    async with RelayClient(world.behind.target, timeout=PATIENCE) as producer:
        accepted = await producer.schedule_batch(
            [NewTimer(topic=topic, payload=b"", delay=0) for _ in range(5)]
        )
    world.behind.kill()
    world.behind.start()
    async with serving(world.behind, topic, handler):
        await handler.has({timer.timer_id for timer in accepted})
    assert {delivery.attempt for delivery in handler.started} == {1}
