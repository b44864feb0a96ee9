"""One way to call a relay: open, ask, close; errors end the command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

from relay.cli.exits import client_errors
from relay.client.topics import Topics
from relay.client.wire import GrpcWire

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Door:
    """Which relay, and for how many seconds each call is tried."""

    target: str
    timeout: float

    def call(self, ask: Callable[[Topics], Coroutine[object, object, T]]) -> T:
        """Ask about topics."""

        async def run() -> T:
            wire = GrpcWire(self.target)
            try:
                return await ask(Topics(lambda: wire, self.timeout))
            finally:
                await wire.close()

        with client_errors(self.target):
            return asyncio.run(run())
