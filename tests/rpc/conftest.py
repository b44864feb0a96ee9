"""A relay over the in-memory store, one over a real server, and each of them in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.one_loop import one_loop
from tests.rpc.rig import Relay, on_server, served
from tests.servers import RunningServer

__all__ = ["one_loop"]


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    async with served() as relay:
        yield relay


@pytest.fixture
async def relay_on_valkey(valkey: RunningServer) -> AsyncIterator[Relay]:
    """Its `store` is not in use; look at the server instead."""
    async with on_server(valkey) as relay:
        yield relay


@pytest.fixture(params=["memory", "valkey"])
async def any_relay(request: pytest.FixtureRequest, valkey: RunningServer) -> AsyncIterator[Relay]:
    async with served() if request.param == "memory" else on_server(valkey) as relay:
        yield relay
