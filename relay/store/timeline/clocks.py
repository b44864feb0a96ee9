"""The clocks of Redis, and what has to be set right when one of them has stepped back."""

from __future__ import annotations

from collections.abc import Mapping

from relay.core.outcomes import Limits
from relay.store.codec.lease_record import text_of
from relay.store.server.server import Server
from relay.store.verbs import stream, timeline

PART = 500
"""Lease records, or pending entries, that one script call looks at."""


class RedisClocks:  # see 0088
    """See `relay.core.ports.ServerClocks`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def time(self, place: str) -> int:
        """See `ServerClocks.time`. One TIME."""
        return await self._server.time(place)

    def stepped(self, place: str) -> None:
        """See `ServerClocks.stepped`."""
        self._server.forget_clocks(place)

    async def leases_ahead(self, topic: str, *, lease: int) -> list[str]:
        """See `ServerClocks.leases_ahead`. A script call for each 500 lease records or so."""
        found, cursor = dict[str, None](), b""
        while cursor != b"0":
            cursor, *names = await self._server.call(timeline.ahead(topic, lease, cursor or "0", PART))
            found |= dict.fromkeys(text_of(name)[0] for name in names)
        return list(found)

    async def recall(
        self, topic: str, scores: Mapping[str, float | None], *, lease: int, back: int, limits: Limits
    ) -> tuple[int, dict[str, float]]:
        """See `ServerClocks.recall`. One script call."""
        args: list[str] = []
        for timer_id, score in scores.items():
            args += (timer_id, "" if score is None else repr(score))
        reply = await self._server.call(timeline.recall(topic, lease, back, limits, args))
        told = zip(scores, reply.scores, strict=True)
        return int(reply.now), {timer_id: float(score) for timer_id, score in told if score}

    async def begin_idle_times(self, topic: str, group: str) -> None:
        """See `ServerClocks.begin_idle_times`. A script call for each 500 pending entries."""
        first = b"-"
        while first:
            first = await self._server.call(stream.recall(topic, group, first, PART))
