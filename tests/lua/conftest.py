"""The bench on every real server, and once more by Lua 5.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worlds.scripts.bench import Bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
async def bench(scripted_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Bench]:
    """A topic of its own."""
    async with Bench(scripted_server, keyspace.topic()) as bench:
        yield bench
