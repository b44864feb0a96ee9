"""Loops have no part in the call that needs them first."""

from __future__ import annotations

import math
from time import monotonic

import anyio

from relay.core.loop.call_ends import CallEnds, call_deadline
from relay.engine.loop_starter import LoopStarter

LATER = 1_000.0


async def test_a_task_that_works_for_others_too_has_no_deadline() -> None:
    """Race: a call is the first to need a lane, which would have its context, and write for others by the
    call's deadline. What the call starts by itself has none once the call has ended."""
    told, asked, go_on = dict[str, list[float]](), anyio.Event(), anyio.Event()

    async def work(name: str) -> None:
        told[name] = [call_deadline()]
        if len(told) == 2:
            asked.set()
        await go_on.wait()
        told[name].append(call_deadline())

    async with anyio.create_task_group() as tasks:
        loops = LoopStarter(tasks)
        with CallEnds().bound(deadline := monotonic() + LATER):
            loops.start(work, "lane")
            tasks.start_soon(work, "other")
            await asked.wait()
        go_on.set()
    assert told == {"lane": [math.inf, math.inf], "other": [deadline, math.inf]}
