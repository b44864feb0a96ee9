"""One topic with two owners: our store as it is shipped, and the peer's broker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import anyio
from faststream import Context, StreamMessage
from faststream_redis_timers import TimersBroker
from redis.asyncio import Redis

from relay.core.outcomes import nonces
from relay.core.timers import ClaimedTimer
from relay.store.keys import KeyNames
from relay.store.server.connect import open_client
from relay.store.server.server import Server
from relay.store.timeline.redis_store import RedisStore
from tests.worlds.scripts.asking import LEASE, Scheduling

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
fresh = nonces()


def moment(instant: int) -> datetime:
    """An instant as the peer's publishers take it."""
    return EPOCH + timedelta(microseconds=instant)


def now() -> int:
    """This machine's clock, which is the server's as well."""
    return time.time_ns() // 1000


class Neighbours(Scheduling):
    """Both of them; `seen` is what the peer's handlers got: timer_id, body, headers."""

    def __init__(self, url: str, topic: str, redis: Redis, store: RedisStore, broker: TimersBroker) -> None:
        super().__init__(store, topic)
        self.url, self.redis, self.broker = url, redis, broker
        self.seen: list[tuple[str, Any, dict[str, Any]]] = []

    async def schedule(self, timer_id: str, due: int = 1, payload: bytes = b"ours", **options: Any) -> None:
        await super().schedule(timer_id, due, payload, **options)

    async def publish(self, timer_id: str, body: Any = "theirs", due: int = 1, **rest: Any) -> None:
        await self.broker.publish(body, self.topic, timer_id=timer_id, activate_at=moment(due), **rest)

    async def one(self, nonce: bytes, *, lease: int = LEASE) -> ClaimedTimer:
        """The only timer that can be claimed now."""
        (timer,) = (await self.claim(nonce, lease=lease)).timers
        return timer

    async def sizes(self) -> tuple[int, int, int]:
        """How many timers, payloads and records there are."""
        timeline, payloads, leases = KeyNames().of(self.topic)[:3]
        redis: Any = self.redis
        return await redis.zcard(timeline), await redis.hlen(payloads), await redis.hlen(leases)

    @asynccontextmanager
    async def working(self, *, hold: anyio.Event | None = None, lease_ttl: int = 30) -> AsyncIterator[None]:
        """The peer's worker runs within; its handler waits for `hold`."""

        @self.broker.subscriber(
            self.topic, polling_interval=0.01, max_polling_interval=0.02, lease_ttl=lease_ttl
        )
        async def handle(body: Any, message: Annotated[StreamMessage[Any], Context()]) -> None:
            self.seen.append((message.raw_message["timer_id"], body, message.headers))
            if hold is not None:
                await hold.wait()

        await self.broker.start()
        try:
            yield
        finally:
            if hold is not None:
                hold.set()
            await self.broker.stop()


@asynccontextmanager
async def neighbours(url: str, topic: str) -> AsyncIterator[Neighbours]:
    """Each has a client of its own."""
    ours = Server(url, connections=4, timeout=60.0)
    theirs = Redis.from_url(url)
    try:
        async with open_client(url, connections=4, timeout=60.0) as redis:
            yield Neighbours(url, topic, redis, RedisStore(ours), TimersBroker(theirs))
    finally:
        await ours.aclose()
        await theirs.aclose()
