"""How commands call a relay: try to connect, open a client, call, close. Errors end the command."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TypeVar

from relay.cli.terminal.exits import BAD_INPUT, UNAVAILABLE, client_errors, fail
from relay.client import RelayClient
from relay.client.arguments import check_target
from relay.client.calls.topics import Topics
from relay.client.credentials import Credentials
from relay.client.errors import InvalidArgument
from relay.core.endpoints import addresses

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds for which each call is tried, unless --timeout says otherwise."""

PATIENCE = 1.0
"""Seconds for which an address of this machine may refuse connections, unless --timeout says otherwise."""

PAUSE = 0.05
"""Seconds between two tries to connect."""


@dataclass(frozen=True, slots=True)
class RelayConnection:
    """Which relay to call, and for how many seconds each call is tried; None means `TIMEOUT` and
    `PATIENCE`."""

    target: str
    timeout: float | None

    def call(self, ask: Callable[[Topics], Coroutine[object, object, T]]) -> T:
        """Make calls about topics."""
        return self.ask(lambda client: ask(client.topics))

    def ask(self, ask: Callable[[RelayClient], Coroutine[object, object, T]]) -> T:
        """Make any calls."""
        self._knock()
        try:
            credentials = Credentials.from_environment().check(self.target)
        except InvalidArgument as error:
            fail(error.message, BAD_INPUT)

        async def run() -> T:
            async with RelayClient(
                self.target, timeout=self.timeout or TIMEOUT, credentials=credentials
            ) as client:
                return await ask(client)

        with client_errors(self.target):
            return asyncio.run(run())

    def _knock(self) -> None:
        """End the command if the address is on this machine and nothing listens there: gRPC would go on
        trying."""
        try:
            check_target(self.target)
        except InvalidArgument as error:
            fail(f"--target: {error.message}", BAD_INPUT)
        patience = self.timeout or PATIENCE
        deadline = monotonic() + patience
        while why := _refusal(self.target, patience):
            if monotonic() + PAUSE >= deadline:
                silence = f"no connection within {patience:g} s ({why})"
                advice = "start one (relay dev, relay serve), or name another by --target or RELAY_TARGET"
                fail(f"the relay at {self.target} is not available: {silence}; {advice}", UNAVAILABLE)
            sleep(PAUSE)


def _refusal(target: str, timeout: float) -> str:
    """Say why an address of this machine takes no connection; empty if it does, or if it is elsewhere."""
    try:
        if target.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as unix:
                unix.settimeout(timeout)
                unix.connect(target.removeprefix("unix:").removeprefix("//"))
        elif _is_local(target):
            socket.create_connection(addresses.split(target), timeout).close()
    except TimeoutError:
        return ""  # a process listens there, and is too busy to take a connection: gRPC waits for it
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_local(target: str) -> bool:
    """Whether it is `host:port` on this machine, without a name lookup."""
    try:
        host, _ = addresses.split(target)
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, or what gRPC resolves
