"""The one place of all topics, where there is one server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class OnePlace:
    """`Places` of a single server, or of a store in memory. `ping` asks it for a sign of life."""

    def __init__(self, ping: Callable[[], Awaitable[None]]) -> None:
        self.changed: list[Callable[[], None]] = []
        self._ping = ping

    def of(self, topic: str) -> str:
        """See `Places.of`."""
        return ""

    def lane(self, topic: str) -> str:
        """See `Places.lane`."""
        return ""

    async def ping(self, place: str) -> None:
        """See `Places.ping`."""
        await self._ping()
