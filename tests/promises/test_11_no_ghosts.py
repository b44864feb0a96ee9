"""Promise 11, no ghosts: a call that was given up never acts afterwards, and an answer is not followed by an
effect of an earlier try.

A network that is merely slow is enough for a ghost: the bytes of a call arrive after its caller has gone on,
and would undo what it asked for since. Redis refuses them, by its own clock, so that the relay here whose
clock is an hour ahead keeps the promise too.

Each of these breaks was seen to fail here:
- No script refuses a late call (`lib/given_up`).
- A relay tells its scripts until when they may act by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anyio import create_task_group
from anyio.to_thread import run_sync

from relay.client import CallError, RelayClient
from relay.client.calls import timer_calls
from tests.ghosts.slow_line import SlowLine
from tests.promises.world import Handler, World, serving
from tests.worlds.relay.processes import Relay
from tests.worlds.waiting import PATIENCE, until

BRIEFLY = 5.0
"""Seconds that a caller waits whose call is held up."""


@pytest.fixture(scope="module")
def slow(world: World) -> Iterator[tuple[Relay, SlowLine]]:
    """A relay, and the line between it and Redis."""
    with world.slow() as slow:
        yield slow


@pytest.mark.slow
async def test_a_timer_that_was_moved_stays_where_it_is(world: World, slow: tuple[Relay, SlowLine]) -> None:
    """A Schedule has no answer. It is repeated elsewhere, and the timer is moved. Then the first arrives."""
    relay, line = slow
    topic = world.topic()
    async with RelayClient(relay.target) as unlucky, RelayClient(world.behind.target) as somebody:
        line.hold("invoice-42")
        with pytest.raises(CallError):
            await unlucky.schedule(topic, b"old", delay=60, timer_id="invoice-42", timeout=BRIEFLY)
        assert line.holds
        await somebody.schedule(topic, b"old", delay=60, timer_id="invoice-42")
        moved = await somebody.schedule(topic, b"new", delay=3600, timer_id="invoice-42")
        await run_sync(line.deliver)
        timer = await somebody.get(topic, "invoice-42")
    assert timer is not None
    assert (timer.payload, timer.due_time) == (b"new", moved.due_time)


@pytest.mark.slow
@pytest.mark.usefixtures("one_try")
async def test_a_cancel_of_before_takes_nothing_away(world: World, slow: tuple[Relay, SlowLine]) -> None:
    """A Cancel has no answer. It is repeated elsewhere, and the id is scheduled again. Then the first Cancel
    arrives, and the new timer is delivered all the same."""
    relay, line = slow
    topic, handler = world.topic(), Handler(world)
    async with RelayClient(relay.target) as unlucky, RelayClient(world.behind.target) as somebody:
        await somebody.schedule(topic, b"old", delay=3600, timer_id="invoice-42")
        line.hold("invoice-42")
        with pytest.raises(CallError):
            await unlucky.cancel(topic, "invoice-42", timeout=BRIEFLY)
        assert line.holds
        assert await somebody.cancel(topic, "invoice-42")
        await somebody.schedule(topic, b"new", delay=0, timer_id="invoice-42")
        await run_sync(line.deliver)
    async with serving(world.ahead, topic, handler):
        await handler.has({"invoice-42"})
    assert [delivery.payload for delivery in handler.started] == [b"new"]


async def test_a_call_that_was_given_up_for_good(world: World, slow: tuple[Relay, SlowLine]) -> None:
    """Nobody repeats it: what its caller could not have stored is not there an hour later either."""
    relay, line = slow
    topic = world.topic()
    async with RelayClient(relay.target) as unlucky:
        line.hold("invoice-42")
        with pytest.raises(CallError):
            await unlucky.schedule(topic, b"", delay=60, timer_id="invoice-42", timeout=BRIEFLY)
        assert line.holds
        await run_sync(line.deliver)
    assert world.ids(topic) == set()


async def test_an_answer_is_final(
    world: World, slow: tuple[Relay, SlowLine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats a call whose first try is held up, and has an answer. The timer is cancelled then,
    and the first try does not bring it back."""
    relay, line = slow
    topic = world.topic()

    async def let_the_next_try_pass() -> None:
        await until(lambda: line.holds, "the first try is held")
        line.let_pass()

    async with RelayClient(relay.target) as unlucky, create_task_group() as tasks:
        line.hold("invoice-42")
        tasks.start_soon(let_the_next_try_pass)
        await unlucky.schedule(topic, b"", delay=60, timer_id="invoice-42", timeout=60)
        # A second try of this one would find nothing to cancel.
        monkeypatch.setattr(timer_calls, "TRY_TIMEOUT", PATIENCE)
        assert await unlucky.cancel(topic, "invoice-42")
        await run_sync(line.deliver)
        assert await unlucky.get(topic, "invoice-42") is None
