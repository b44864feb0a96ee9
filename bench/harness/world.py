"""One run's world: its server, and how relays and applications are started in it."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.harness.plan import Plan
from bench.harness.processes import Child, application, free_port, running
from bench.harness.rows import Drain
from bench.harness.server import Server
from bench.harness.timers import TOPIC
from relay.client import RelayClient

_T = TypeVar("_T")
READY = 30.0
"""Seconds for a relay to open a stream."""


class Wrong(Exception):
    """A run lost timers or delivered them twice: its figures mean nothing."""


@dataclass(frozen=True)
class Relay:
    """A running daemon."""

    target: str
    child: Child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.child.pid


@dataclass(frozen=True)
class World:
    """What a measurement gets. `run` counts from 0."""

    plan: Plan
    server: Server
    run: int = 0
    found: dict[str, Any] = field(default_factory=dict)
    """What an earlier run found out, and later ones need not look for again."""

    def alternately(self, sides: Sequence[_T]) -> Sequence[_T]:
        """The sides in an order that the next run turns around, so that drift wrongs none."""
        return sides if self.run % 2 == 0 else sides[::-1]

    async def in_turns(self, *sides: Callable[[], Awaitable[float]]) -> list[float]:
        """The median of each side. What makes a ratio goes side by side, there and back again, and the next
        run begins at the other end: on a shared machine the next minute is another machine."""
        found: list[list[float]] = [[] for _ in sides]
        order = self.alternately(list(zip(sides, found, strict=True)))
        for _ in range(self.plan.turns):
            for side, figures in order:
                figures.append(await side())
            order = order[::-1]
        return list(map(statistics.median, found))

    @asynccontextmanager
    async def relay(self, **env: str) -> AsyncIterator[Relay]:
        """`relay serve` at its defaults, but for where it listens and these variables."""
        target = f"127.0.0.1:{free_port()}"
        async with running("relay", serve_command(), env=self.environment(target, env)) as child:
            await listening(target)
            yield Relay(target, child)

    @asynccontextmanager
    async def relays(self, count: int) -> AsyncIterator[list[Relay]]:
        """So many of them, started at once."""
        async with AsyncExitStack() as stack:
            starts = [stack.enter_async_context(self.relay()) for _ in range(count)]
            yield [await start for start in starts]

    def environment(self, target: str, more: Mapping[str, str]) -> dict[str, str]:
        """Of a daemon that listens there."""
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RELAY_"))},
            "RELAY_REDIS__URL": self.server.url,
            "RELAY_GRPC__LISTEN": target,
            "RELAY_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
            "RELAY_API__ENABLED": "false",
            "RELAY_LOG__LEVEL": "error",
            **more,
        }

    async def drained(self, child: Child, timers: int, left: int = 0) -> Drain:
        """What an application says of the timers that it handled. Raises `Wrong` if keys are left."""
        said = await child.hear()
        await child.process.wait()
        await self.check(child.name, said, timers, left)
        return Drain(timers, said["seconds"], said["cpu"], said["lateness"])

    async def check(
        self, name: str, said: Mapping[str, Any], timers: int, left: int = 0, *, patience: float = 10.0
    ) -> None:
        """Raise `Wrong` unless all were handled once, and so many keys are left, or soon will be."""
        if said["handled"] != timers or said["again"]:
            raise Wrong(f"{name}: {said} of {timers} timers")
        if not await eventually(self.server.left, left, patience):
            raise Wrong(f"{name}: {await self.server.left()} keys left of {timers} timers, expected {left}")

    @asynccontextmanager
    async def streaming(
        self, relays: Sequence[Relay], timers: int, *, topic: str = TOPIC, **options: Any
    ) -> AsyncIterator[Child]:
        """An application with an open stream to each relay, which will handle so many timers."""
        targets = [relay.target for relay in relays]
        command = application("relay_stream", targets=targets, topic=topic, timers=timers, **options)
        async with running("relay's application", command) as child:
            await child.hear()
            yield child

    async def by_stream(
        self, relays: Sequence[Relay], timers: int, *, left: int = 0, **options: Any
    ) -> Drain:
        """Start an application that drains so many due timers over a stream from each relay."""
        async with self.streaming(relays, timers, **options) as child:
            return await self.drained(child, timers, left)


def serve_command() -> list[str]:
    """The daemon's."""
    return [sys.executable, "-m", "relay.cli", "serve"]


async def listening(target: str) -> None:
    """Until somebody takes connections there."""
    host, _, port = target.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.005)
        else:
            writer.close()
            return


async def eventually(look: Callable[[], Awaitable[int]], expected: int, patience: float) -> bool:
    """Whether what is looked at becomes what is expected."""
    end = asyncio.get_running_loop().time() + patience
    while await look() != expected:
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(0.05)
    return True


@asynccontextmanager
async def client(relay: Relay) -> AsyncIterator[RelayClient]:
    """A producer in this process."""
    async with RelayClient(relay.target) as opened:
        yield opened
