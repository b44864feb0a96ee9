"""A desk on every real server, and once more by Lua 5.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.worlds.scripts.desk import BILLING, LIST, Desk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.keyspace import Keyspace
    from tests.servers import RunningServer


@pytest.fixture
async def desk(scripted_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Desk]:
    """A topic with a ready list."""
    async with Desk(scripted_server, keyspace.topic(), LIST) as desk:
        yield desk


@pytest.fixture
async def fan(scripted_server: RunningServer, keyspace: Keyspace) -> AsyncIterator[Desk]:
    """A topic with a stream, promoted by a relay of the group `billing`."""
    async with Desk(scripted_server, keyspace.topic(), BILLING) as desk:
        yield desk
