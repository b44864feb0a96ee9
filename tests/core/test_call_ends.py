"""Calls end at their deadlines, with one timer for all."""

from __future__ import annotations

import asyncio
import math
from time import monotonic

import anyio
import pytest

from relay.core.errors import OutOfTime, TimerNotFound
from relay.core.loop import call_ends
from relay.core.loop.call_ends import BoundedCall, CallEnds, call_deadline
from tests.worlds.waiting import until

pytestmark = pytest.mark.anyio

LATER = 1_000.0


async def run(ends: CallEnds, seconds: float, ended: list[float]) -> None:
    """A call that would take for ever; its length is noted at its end, which is not early."""
    deadline = monotonic() + seconds
    with pytest.raises(OutOfTime), ends.bound(deadline):
        await anyio.sleep(math.inf)
    assert monotonic() >= deadline
    ended.append(seconds)


async def test_each_call_ends_at_its_own_deadline() -> None:
    """Whichever began first, and however many end at once."""
    ends, ended = CallEnds(), list[float]()
    async with anyio.create_task_group() as calls:
        for seconds in (LATER, 0.08, 0.04, *[0.02] * 100):
            calls.start_soon(run, ends, seconds, ended)
        await until(lambda: len(ended) == 102)
        assert sorted(ended) == [*[0.02] * 100, 0.04, 0.08]
        calls.cancel_scope.cancel()
    assert ends._running == set()


async def test_there_is_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls whose deadlines come one after the other don't set it anew; one that has ended costs nothing."""
    loop, timers = asyncio.get_running_loop(), list[float]()
    at = loop.call_at

    def call_at(when: float, *rest: object) -> asyncio.TimerHandle:
        timers.append(when)
        return at(when, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_at", call_at)
    ends = CallEnds()
    for second in range(1_000):
        with ends.bound(monotonic() + LATER + second):
            pass
    assert len(timers) == 1
    assert ends._running == set()
    with ends.bound(monotonic() + 1.0):
        pass
    assert len(timers) == 2, "a call that ends before all others"


async def test_a_call_within_another_task_has_its_own() -> None:
    """So have two calls that a connection makes one after the other."""
    ends, told = CallEnds(), list[float]()
    for deadline in (monotonic() + LATER, monotonic() + 2 * LATER):
        with ends.bound(deadline):
            told.append(call_deadline() - deadline)
        told.append(call_deadline())
    assert told == [0.0, math.inf] * 2


async def test_whoever_else_cancels_it_is_heard() -> None:
    """At the deadline, too: the caller has gone, and is not told anything."""
    calls: list[BoundedCall] = []

    async def call() -> None:
        with CallEnds().bound(monotonic() + LATER) as bound:
            calls.append(bound)
            await anyio.sleep(math.inf)

    task = asyncio.create_task(call())
    await until(lambda: bool(calls))
    task.cancel()
    calls[0].give_up()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_that_goes_on_is_ended_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody in it takes the end for one of his own, and waits for something else."""
    monkeypatch.setattr(call_ends, "AGAIN", 0.02)
    ends, ended = CallEnds(), list[str]()

    async def call() -> None:
        with ends.bound(monotonic() + 0.01):
            for name in ("first", "second"):
                try:
                    await anyio.sleep(math.inf)
                except asyncio.CancelledError:
                    ended.append(name)
            await anyio.sleep(math.inf)

    with anyio.fail_after(60), pytest.raises(OutOfTime):
        await call()
    assert ended == ["first", "second"]
    assert ends._running == set()
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_an_error_at_the_deadline_goes_on_its_way() -> None:
    """What the call meets as it is cancelled says more than that it was."""

    async def call() -> None:
        with CallEnds().bound(monotonic() + 0.01):
            try:
                await anyio.sleep(math.inf)
            except asyncio.CancelledError as cancelled:
                raise TimerNotFound from cancelled

    with pytest.raises(TimerNotFound):
        await call()
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0
