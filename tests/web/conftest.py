"""The JSON API over the store in memory, and over a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.servers import RunningServer
from tests.web.rig import Api, with_api
from tests.worlds.engine.served import on_server, served


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with served() as relay, with_api(relay) as api:
        yield api


@pytest.fixture
async def api_on_valkey(valkey: RunningServer) -> AsyncIterator[Api]:
    async with on_server(valkey.url) as relay, with_api(relay) as api:
        yield api
