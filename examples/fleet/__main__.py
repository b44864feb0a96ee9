"""Runs in about 20 s; exit 0 if everything went as promised."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress

from examples.demo.processes import daemon, exit_after
from examples.fleet.nodes import Fleet, Node, fleet
from relay.client import Delivery, NewTimer, RelayClient
from relay.client.errors import Unavailable

TOPIC = "orders"
TIMERS = 2_000
SPREAD = 14.0
"""Seconds over which the timers fall due."""

PATIENCE = 180.0
"""Seconds within which all of it must end."""


class Story:
    """What happens, and what the applications saw of it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._began = time.monotonic()
        self._handled: Counter[str] = Counter()
        self._latest = 0.0
        self._early = 0

    def say(self, words: str) -> None:
        """Print a line with its time."""
        print(f"{time.monotonic() - self._began:5.1f} s  {words}", flush=True)

    async def handle(self, delivery: Delivery) -> None:
        """Work on a timer: note when it came. Returning acknowledges it."""
        lateness = time.time() - delivery.due_time.timestamp()
        self._latest, self._early = max(self._latest, lateness), self._early + (lateness < 0)
        self._handled[delivery.timer_id] += 1

    async def run(self, client: RelayClient) -> None:
        """Schedule the timers, kill a node and start it again, and double the partitions."""
        await client.schedule(TOPIC, b"", timer_id="first", delay=0)
        await self._until(1)
        self.say(f"{TOPIC} has 4 partitions: {self._where(4)}")
        new = [
            NewTimer(topic=TOPIC, payload=b"", timer_id=f"order-{n}", delay=2 + SPREAD * n / TIMERS)
            for n in range(TIMERS)
        ]
        results = await client.schedule_batch(new)
        if any(result.error is not None for result in results):
            raise RuntimeError("a timer was refused")
        self.say(f"{TIMERS:,} timers are scheduled, due over the next {2 + SPREAD:.0f} s")
        await asyncio.sleep(4)
        dying = self._fleet.node_of(f"{TOPIC}#1")
        await self._lose(dying)
        self.say(f"relay topics reshard {TOPIC} --partitions 8")
        await self._reshard(client, 8)
        self.say(f"{TOPIC} has 8 partitions: {self._where(8)}")
        await self._until(TIMERS + 1)
        self.say("all timers have been handled")

    async def _lose(self, node: Node) -> None:
        node.kill()
        before = sum(self._handled.values())
        self.say(f"{node.name} is killed")
        await asyncio.sleep(3)
        meanwhile = sum(self._handled.values()) - before
        self.say(f"{meanwhile} timers of the other nodes were handled without it")
        await node.start()
        self.say(f"{node.name} is back, with its timers")

    async def _reshard(self, client: RelayClient, partitions: int) -> None:
        while True:
            with suppress(Unavailable):  # the relays may not have found the node again yet
                if (await client.topics.reshard(TOPIC, partitions)).partitions == partitions:
                    return
            await asyncio.sleep(0.1)

    async def _until(self, count: int) -> None:
        while len(self._handled) < count:
            await asyncio.sleep(0.05)

    def _where(self, partitions: int) -> str:
        names = [TOPIC, *(f"{TOPIC}#{n}" for n in range(1, partitions))]
        nodes = Counter(self._fleet.node_of(name).name for name in names)
        return ", ".join(f"{count} on {name}" for name, count in sorted(nodes.items()))

    def summary(self) -> int:
        """Say what was promised, and whether it held; return the exit code."""
        checks = {
            "every timer was handled": len(self._handled) == TIMERS + 1,
            "none was early": self._early == 0,
        }
        print()
        for promise, held in checks.items():
            print(f"{'  ✓' if held else '  ✗ BROKEN:'} {promise}")
        again = sum(self._handled.values()) - len(self._handled)
        print(f"\n{again} timers were handled twice. The latest came {self._latest:.1f} s late.")
        return 0 if all(checks.values()) else 1


async def main() -> int:
    """Start everything, play the story, and check it."""
    settings = {f"RELAY_TOPICS__{TOPIC}__PARTITIONS": "4", "RELAY_LOG__LEVEL": "error"}
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(fleet())
        story = Story(nodes)
        targets = [await stack.enter_async_context(daemon(nodes.url, **settings)) for _ in range(2)]
        story.say("three Valkey nodes share the slots, and two relays are connected to them")
        clients = [RelayClient(target) for target in targets]
        for client in clients:
            client.on(TOPIC)(story.handle)
            await stack.enter_async_context(client)
            await client.wait_ready(60)
        await story.run(clients[0])
    return story.summary()


if __name__ == "__main__":
    exit_after(main(), PATIENCE)
