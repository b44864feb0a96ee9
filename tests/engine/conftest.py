"""A world with one relay in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from tests.worlds.engine.fake_clock import settle
from tests.worlds.engine.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with anyio.create_task_group() as tasks:
        world = World(tasks)
        world.engine = await world.relay(world.hints)
        yield world
        world.store.open_all()
        world.hints.open_all()
        await settle()
        for session in world.engine._dispatcher.sessions():
            assert session.reserved == 0, "places are kept for a claim that is over"
        tasks.cancel_scope.cancel()
