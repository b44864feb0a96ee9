"""Wake hints over Redis pub/sub: a topic's first timer has become an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from relay.core.instants import from_score
from relay.store.keys import KeyNames

RETRY = 1.0
"""Seconds between two tries to subscribe while Redis is away."""

GOING_DOWN = (RedisError, OSError, AttributeError)
"""What redis-py raises in a subscriber whose connection `run` is closing: it has no writer any more."""


class RedisHints:
    """`WakeHints` over one connection of its own.

    Whatever is published while the connection is down is lost. So each time that it is made,
    every watcher is woken once and looks for itself; polling covers the rest.
    """

    def __init__(self, redis: Redis, keys: KeyNames | None = None) -> None:
        self._redis = redis
        self._keys = keys or KeyNames()
        self._watchers: dict[str, Callable[[int], None]] = {}
        self._pubsub: PubSub | None = None
        self._some = anyio.Event()

    async def watch(self, topic: str, woken: Callable[[int], None]) -> None:
        """See `WakeHints.watch`."""
        channel = self._keys.channel(topic)
        self._watchers[channel] = woken
        self._some.set()
        if self._pubsub is not None:
            with suppress(*GOING_DOWN):  # `run` sees it too, and subscribes anew
                await self._pubsub.subscribe(channel)

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        channel = self._keys.channel(topic)
        self._watchers.pop(channel, None)
        if self._pubsub is not None:
            with suppress(*GOING_DOWN):
                await self._pubsub.unsubscribe(channel)

    async def run(self) -> None:
        """Listen for ever."""
        while True:
            await self._some.wait()
            with suppress(RedisError, OSError):
                await self._listen()
                continue
            await anyio.sleep(RETRY)

    async def _listen(self) -> None:
        """One connection's life; ends when nothing is watched any more."""
        async with self._redis.pubsub() as pubsub:
            await pubsub.subscribe(*self._watchers)
            self._pubsub = pubsub
            try:
                while pubsub.subscribed:
                    # No timeout: an idle subscription is silent.
                    self._dispatch(await pubsub.get_message(timeout=None))
            finally:
                self._pubsub = None
        if not self._watchers:
            self._some = anyio.Event()

    def _dispatch(self, message: dict[str, object] | None) -> None:
        if message is None:
            return
        channel = message["channel"]
        woken = self._watchers.get(channel.decode() if isinstance(channel, bytes) else str(channel))
        if woken is None:
            return
        if message["type"] == "subscribe":
            woken(0)
        elif message["type"] == "message" and isinstance(message["data"], bytes):
            with suppress(ValueError):
                woken(from_score(float(message["data"])))
