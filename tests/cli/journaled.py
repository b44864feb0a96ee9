"""A topic with a journal, for the commands that read one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from relay.core.journal import Journals
from relay.core.partitions import Layout
from relay.store.keys import KeyNames
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.servers import RunningServer

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method of the store, and its arguments behind the topic."""

PATIENT = {"start_timeout": 60.0, "command_timeout": 60.0}
"""Settings of `redis` by which one that stands still on a busy machine is not away."""


class Journaled:
    """A topic whose journal a store writes, and a configuration that leads to its server."""

    def __init__(self, server: RunningServer, topic: str, folder: Path) -> None:
        self.server, self.topic, self.keep = server, topic, 1000
        self.config = folder / "relay.yaml"
        self.config.write_text(json.dumps({"redis": {"url": server.url, **PATIENT}}))

    def do(self, *calls: Call) -> None:
        """Make these calls of the store, one after the other."""

        async def run() -> None:
            journals = Journals(lambda _: self.keep)
            async with Server(self.server.url, connections=1, timeout=60.0, journals=journals) as redis:
                for verb, args, options in calls:
                    await getattr(RedisStore(redis), verb)(self.topic, *args, **options)

        asyncio.run(run())

    def divide(self, count: int) -> tuple[str, ...]:
        """Give the topic this number of partitions; their names."""
        layout = Layout(self.topic, 1, count)
        with self.server.client() as client:
            for name in layout.partitions:
                client.set(KeyNames().key("layout", name), layout.text)
        return layout.partitions

    def do_at(self, partition: str, *calls: Call) -> None:
        """Make calls about one partition."""
        topic, self.topic = self.topic, partition
        try:
            self.do(*calls)
        finally:
            self.topic = topic
