"""The two on every real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.interop.neighbours import Neighbours, neighbours
from tests.interop.sides import SIDES, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
async def both(redis_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Neighbours]:
    async with neighbours(redis_server.url, keyspace.topic()) as found:
        yield found


@pytest.fixture
async def pair(valkey: RunningServer, keyspace: Keyspace) -> AsyncIterator[Neighbours]:
    """The two on Valkey alone, for what no server does differently."""
    async with neighbours(valkey.url, keyspace.topic()) as found:
        yield found


@pytest.fixture(params=SIDES, ids=lambda side: f"worker={side}")
def worker(request: pytest.FixtureRequest) -> Side:
    """Who handles."""
    return cast("Side", request.param)


@pytest.fixture(params=SIDES, ids=lambda side: f"publisher={side}")
def publisher(request: pytest.FixtureRequest) -> Side:
    """Who schedules."""
    return cast("Side", request.param)


@pytest.fixture(params=SIDES, ids=lambda side: f"another={side}")
def another(request: pytest.FixtureRequest) -> Side:
    """Who comes between."""
    return cast("Side", request.param)
