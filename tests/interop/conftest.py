"""The two on every real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.interop.neighbours import Neighbours, neighbours

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
async def both(redis_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Neighbours]:
    async with neighbours(redis_server.url, keyspace.topic()) as found:
        yield found
