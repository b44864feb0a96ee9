"""One world for all promises: a Valkey, two relays whose clocks are wrong, and handlers that wait at a gate.

A test takes a topic of its own with `world.topic()`, or one of the topics below, which have a policy of their
own.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import anyio

from relay.client import Delivery, RelayClient
from tests.ghosts.slow_line import SlowLine
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage
from tests.worlds.waiting import until

HOUR = 3600.0
PATIENCE = 60.0
"""Seconds within which anything must happen, on however busy a machine."""

BRIEF = "brief"
"""A topic whose lease lasts 8 s: the time until another relay delivers what a dead one held."""
CAPPED = "capped"
"""A topic that keeps 3 dead letters."""
FULL = "full"
"""A topic that holds 3 timers."""
SETTINGS = {
    "RELAY_DEFAULTS__LEASE_TTL": "600",  # nothing lapses because the machine is busy
    "RELAY_DEFAULTS__RETRY__MAX_ATTEMPTS": "3",
    "RELAY_DEFAULTS__RETRY__INITIAL": "0",
    f"RELAY_TOPICS__{BRIEF}__LEASE_TTL": "8",  # a busy machine renews it in time
    f"RELAY_TOPICS__{CAPPED}__DEAD_LETTERS__MAX_COUNT": "3",
    f"RELAY_TOPICS__{FULL}__MAX_WAITING": "3",
}


class World(Stage):
    """A Valkey, a relay whose clock is an hour ahead, another whose clock is an hour behind."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ahead = self._start("ahead", HOUR)
        self.behind = self._start("behind", -HOUR)
        self.relays = (self.ahead, self.behind)

    def _start(self, name: str, ahead: float, url: str | None = None) -> Relay:
        relay = self.relay(name, {**SETTINGS, "WALL_CLOCK_AHEAD": str(ahead)}, url=url, start=False)
        relay.arguments[2] = "tests.promises.relay_process"
        relay.start()
        return relay

    # ---------------------------------------------------------------------- what a test asks for

    @contextmanager
    def slow(self) -> Iterator[tuple[Relay, SlowLine]]:
        """Another relay whose clock is ahead, and the line that can hold back its bytes to Redis."""
        with SlowLine(self.server.port) as line:
            relay = self._start(f"slow-{secrets.token_hex(4)}", HOUR, line.url)
            try:
                yield relay, line
            finally:
                relay.kill()

    def topic(self, name: str = "orders") -> str:
        """A topic that nobody else uses."""
        return f"{name}-{secrets.token_hex(4)}"

    # ------------------------------------------------------------------------ what a test reads

    def now(self) -> float:
        """The time by the clock of Redis, in seconds since 1970."""
        seconds, micros = self.client.time()
        return seconds + micros / 1e6

    def ids(self, topic: str) -> set[str]:
        """The timers of a topic. Its timeline and its payloads hold the same ids whenever this is asked."""
        with self.client.pipeline(transaction=True) as both:
            both.zrange(f"timers_timeline:{topic}", 0, -1)
            both.hkeys(f"timers_payloads:{topic}")
            timeline, payloads = cast("list[list[bytes]]", both.execute())
        assert set(timeline) == set(payloads)
        return {name.decode() for name in timeline}

    def counted(self, metric: str, topic: str) -> float:
        """The sum of a counter of this topic over both relays."""
        line = re.compile(rf'^{metric}{{[^}}]*topic="{topic}"[^}}]*}} (\S+)$', re.MULTILINE)
        texts = [relay.metrics() for relay in self.relays if relay.running]
        return sum(float(value) for text in texts for value in line.findall(text))

    def logged(self, message: str, topic: str) -> list[dict[str, Any]]:
        """The lines of both relays' logs that say this of the topic."""
        lines = [line for relay in self.relays for line in relay.lines()]
        return [line for line in lines if message in line["message"] and line.get("topic") == topic]


class Handler:
    """Notes each delivery as it starts. A held handler then waits for `gate`; `end` says how a delivery
    ends."""

    def __init__(
        self, world: World, *, held: bool = False, end: Callable[[Delivery], Awaitable[None]] | None = None
    ) -> None:
        self._world = world
        self._end = end
        self.gate = anyio.Event()
        self.started: list[Delivery] = []
        self.started_at: list[float] = []
        """When each started, by the clock of Redis."""
        self.ended = 0
        if not held:
            self.gate.set()

    async def __call__(self, delivery: Delivery) -> None:
        self.started_at.append(self._world.now())
        self.started.append(delivery)
        await self.gate.wait()
        self.ended += 1
        if self._end is not None:
            await self._end(delivery)

    @property
    def names(self) -> list[str]:
        """The timers in the order in which they came."""
        return [delivery.timer_id for delivery in self.started]

    async def has(self, timers: int | Iterable[str]) -> None:
        """Wait until this many deliveries have started, or one of each of these timers."""
        if isinstance(timers, int):
            await until(lambda: len(self.started) >= timers, f"{timers} deliveries have started")
        else:
            wanted = set(timers)
            await until(lambda: wanted <= set(self.names), "each of the timers was delivered")


@asynccontextmanager
async def serving(
    relay: Relay, topic: str, handler: Handler, *, concurrency: int = 100
) -> AsyncIterator[RelayClient]:
    """An application beside the relay; its gate opens at the latest when it leaves."""
    client = RelayClient(relay.target, timeout=PATIENCE)
    client.on(topic, concurrency=concurrency, prefetch=0)(handler)
    async with client:
        try:
            await client.wait_ready(PATIENCE)
            yield client
        finally:
            handler.gate.set()
