"""A relay over the in-memory store, one over a real server, and each of them in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.rpc.handler import Handler, Server, Wire, serve
from tests.servers import RunningServer
from tests.worlds.engine.served import Served, on_server, served


@pytest.fixture
async def relay() -> AsyncIterator[Served]:
    async with served() as relay:
        yield relay


@pytest.fixture
async def relay_on_valkey(valkey: RunningServer) -> AsyncIterator[Served]:
    """Its `store` is not in use; look at the server instead."""
    async with on_server(valkey.url) as relay:
        yield relay


@pytest.fixture(params=["memory", "valkey"])
async def any_relay(request: pytest.FixtureRequest, valkey: RunningServer) -> AsyncIterator[Served]:
    async with served() if request.param == "memory" else on_server(valkey.url) as relay:
        yield relay


@pytest.fixture
async def application(handler: Handler) -> AsyncIterator[Server]:
    """Serves the test's own `handler`, and says that it is well."""
    server = await serve(handler, healthy=True)
    yield server
    await server.stop()


@pytest.fixture
async def wire(application: Server) -> AsyncIterator[Wire]:
    """A way to the application that can be cut."""
    wire = Wire(application.address)
    await wire.lay()
    yield wire
    await wire.cut()
