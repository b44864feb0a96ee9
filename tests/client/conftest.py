"""A scripted relay on a Unix socket, and a client that knows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.client import PushHandlers, RelayClient
from tests.client.scripted_relay import ScriptedRelay, serve, socket_target
from tests.worlds.waiting import PATIENCE


@pytest.fixture
def target(tmp_path: Path) -> str:
    return socket_target(tmp_path)


@pytest.fixture
def columns() -> bool:
    """Whether the relay knows columns of deliveries. A module may ask for both."""
    return False


@pytest.fixture
async def relay(target: str, columns: bool) -> AsyncIterator[ScriptedRelay]:
    async with serve(target, ScriptedRelay(columns=columns)) as relay:
        yield relay
        leftover = {task.get_name() for task in asyncio.all_tasks() if task.get_name()[:6] == "relay "}
        assert not leftover, "the client left tasks behind"


@pytest.fixture
def client(target: str) -> RelayClient:
    return RelayClient(target, timeout=60.0, shutdown_timeout=60.0)


@pytest.fixture
def push() -> PushHandlers:
    return PushHandlers(shutdown_timeout=PATIENCE)


@pytest.fixture
def listen(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/push.sock"
