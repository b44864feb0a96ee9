"""Promise 5, honest attempts: an attempt counts only if the application received the call.

What waited in an application that died counts nothing. A handler that kills its process runs out of attempts.

Each of these breaks was seen to fail here:
- A release counts an attempt, whether or not the call was received.
- A release counts no attempt.
- The client writes no receipt.
- A NACK counts no attempt.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relay.client import Delivery, NewTimer, RelayClient
from tests.promises.world import Handler, World, serving
from tests.worlds.waiting import until

pytestmark = pytest.mark.usefixtures("one_try")


def attempts(world: World, topic: str, timer_id: str) -> list[int]:
    """What the handlers of the killable application were told, in order."""
    starts = world.journal.starts(timer_id)
    return [event.attempt for event in starts if event.topic == topic]


async def test_a_handler_that_kills_its_process_runs_out_of_attempts(world: World) -> None:
    """It gets its 3 attempts, and then the timer is dead.

    It is alone on its stream, so the relay waits for its receipt when that comes. What has come and was not
    read yet is lost with a connection that breaks: behind other messages a receipt may be, and the attempt's
    number comes again.
    """
    topic = world.topic()
    async with RelayClient(world.ahead.target) as client:
        await client.schedule(topic, b'{"die": "start"}', delay=0, timer_id="killer")
        application = world.application(world.ahead, topic, wait=False)
        try:

            def has_died() -> bool:
                application.revive()
                return world.client.xlen(f"timers_dead:{topic}") == 1

            await until(has_died, "the killer is dead")
        finally:
            application.kill()
        (letter,) = [letter async for letter in client.topics.dead_letters(topic)]
    assert (letter.timer_id, letter.reason, letter.attempts) == ("killer", "attempts", 3)
    assert attempts(world, topic, "killer") == [1, 2, 3]


async def test_who_waits_behind_a_killer_loses_nothing(world: World, tmp_path: Path) -> None:
    """The timers that waited in the process that died each come with attempt 1, and the killer with
    attempt 2 behind them."""
    topic, gate, bystanders = world.topic(), tmp_path / "gate", [f"bystander-{n}" for n in range(5)]
    killer = json.dumps({"gate": str(gate), "die": "end"}).encode()
    async with RelayClient(world.ahead.target) as client:
        await client.schedule(topic, killer, delay=0, timer_id="killer")
        await client.schedule_batch(
            [NewTimer(topic=topic, payload=b"", delay=0, timer_id=name) for name in bystanders]
        )
        application = world.application(
            world.ahead, topic, "--concurrency", "1", "--prefetch", "5", wait=False
        )
        try:
            await until(lambda: attempts(world, topic, "killer") == [1], "the killer is at work")
            await until(lambda: world.client.hlen(f"timers_leases:{topic}") == 6, "the others wait behind it")
            gate.touch()
            await until(lambda: not application.running, "its process is dead")
            gate.unlink()
            application.revive()
            await until(lambda: world.ids(topic) == {"killer"}, "the bystanders are committed")
            await until(lambda: attempts(world, topic, "killer") == [1, 2], "the killer is at work again")
        finally:
            application.kill()
    assert [attempts(world, topic, name) for name in bystanders] == [[1]] * 5


async def test_a_failure_counts_once_and_a_success_not_at_all(world: World) -> None:
    """A handler that raises counts one attempt each time; `get` tells how many while the last one is at
    work."""
    topic = world.topic()
    counts: list[tuple[int, int]] = []

    async def fail_twice(delivery: Delivery) -> None:
        timer = await client.get(topic, delivery.timer_id)
        assert timer is not None
        counts.append((delivery.attempt, timer.attempts))
        if delivery.attempt < 3:
            raise ValueError("not yet")

    handler = Handler(world, end=fail_twice)
    async with serving(world.ahead, topic, handler) as client:
        await client.schedule(topic, b"", delay=0)
        await until(lambda: len(counts) == 3 and not world.ids(topic), "the third attempt is committed")
    assert counts == [(1, 0), (2, 1), (3, 2)]
    assert len({delivery.occurrence_id for delivery in handler.started}) == 1


async def test_an_absent_application_costs_nothing(world: World) -> None:
    """A timer waits for an application while the relays deliver another topic. It has no attempt, and no
    lease."""
    topic, busy, handler = world.topic(), world.topic(), Handler(world)
    async with serving(world.ahead, busy, handler) as client:
        waiting = await client.schedule(topic, b"", delay=0)
        await client.schedule(busy, b"", delay=0)
        await handler.has(1)
        assert world.client.hlen(f"timers_leases:{topic}") == 0
        timer = await client.get(topic, waiting.timer_id)
        assert timer is not None
        assert timer.attempts == 0
