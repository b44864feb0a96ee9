"""The heartbeats of the relays that poll a topic, in the place of its first partition."""

from __future__ import annotations

from collections.abc import Sequence

from relay.store.server.server import Server
from relay.store.verbs import layout


class RedisHeartbeats:
    """See `relay.core.ports.Heartbeats`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def beat(self, topic: str, relay: str, *, lasts: int) -> Sequence[str]:
        """See `Heartbeats.beat`. One script call."""
        return [name.decode() for name in await self._server.call(layout.heartbeat(topic, relay, lasts))]
