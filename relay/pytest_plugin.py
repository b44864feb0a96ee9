"""Fixtures for the tests of applications; pytest loads this module wherever Relay is installed.

`relay_timers` is a relay in memory with a clock that the test moves, `relay_server` a real relay on an
embedded Valkey. Neither needs a plugin for asyncio, and both work with pytest-asyncio and anyio. Nothing but
pytest is imported until a test asks for one of them.

>>> async def test_a_reminder_is_sent(relay_timers) -> None:
...     relay = relay_timers(shop.client)
...     await shop.place_order(42)
...     (delivered,) = await relay.advance(days=14)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from relay.client.testing.fixtures import JoinedRelay, TimersInMemory
    from relay.client.testing.relay_process import RelayProcess


@pytest.fixture
def relay_timers() -> Iterator[TimersInMemory]:
    """A relay in memory: `relay_timers(client)` joins the application's clients to one until the test ends,
    and returns an `InMemoryRelay`; `relay_timers.blocking(client)` returns a `SyncInMemoryRelay`."""
    from relay.client.testing.fixtures import TimersInMemory

    with TimersInMemory() as timers:
        yield timers


@pytest.fixture(scope="session")
def relay_process() -> Iterator[RelayProcess]:
    """The process behind `relay_server`: `relay dev`, which needs the extra `dev`. One for each worker of a
    parallel run."""
    from relay.client.testing.relay_process import RelayProcess

    with RelayProcess() as process:
        yield process


@pytest.fixture
def relay_server(relay_process: RelayProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[JoinedRelay]:
    """A real relay, empty when the test begins and again when it has ended.

    `RELAY_TARGET` names it, and `relay_server.join(client)` has an application's clients dial it, which were
    made before, until the test ends.
    """
    from relay.client.testing.fixtures import JoinedRelay

    monkeypatch.setenv("RELAY_TARGET", relay_process.target)
    with JoinedRelay(relay_process.target) as relay:
        yield relay
