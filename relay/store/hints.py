"""Wake hints over Redis pub/sub: a topic's first timer has become an earlier one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import anyio
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from relay.core.instants import from_score
from relay.core.wakeup import Wakeup
from relay.store.keys import KeyNames

RETRY = 1.0
"""Seconds between two tries to subscribe while Redis is away."""

log = logging.getLogger(__name__)


class RedisHints:
    """`WakeHints` over one connection of its own, which only `run` touches.

    Whatever is published while the connection is down is lost. So each time that it is made,
    every watcher is woken once and looks for itself; polling covers the rest.
    """

    def __init__(self, redis: Redis, keys: KeyNames | None = None) -> None:
        self._redis = redis
        self._keys = keys or KeyNames()
        self._watchers: dict[str, Callable[[int], None]] = {}
        self._changed = Wakeup()
        self._deaf = False

    async def watch(self, topic: str, woken: Callable[[int], None]) -> None:
        """See `WakeHints.watch`."""
        self._watchers[self._keys.channel(topic)] = woken
        self._changed.set()

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        self._watchers.pop(self._keys.channel(topic), None)
        self._changed.set()

    async def run(self) -> None:
        """Listen for ever."""
        while True:
            if not self._watchers:
                await self._changed.wait()
                continue
            try:
                await self._listen()
            except Exception as failure:  # noqa: BLE001  (hints are a help: whatever breaks them, polling goes on)
                if not self._deaf:
                    log.info("wake hints are not heard; polling meanwhile", extra={"reason": repr(failure)})
                    self._deaf = True
                await anyio.sleep(RETRY)

    async def _listen(self) -> None:
        """One connection's life; ends when nothing is watched any more."""
        async with self._redis.pubsub() as pubsub:
            # Before the first await: what is watched or no more from here on, `_follow` makes good.
            asked = set(self._watchers)
            await pubsub.subscribe(*asked)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, pubsub, asked)
                while pubsub.subscribed:
                    # No timeout: an idle subscription is silent.
                    self._dispatch(await pubsub.get_message(timeout=None))
                tasks.cancel_scope.cancel()

    async def _follow(self, pubsub: PubSub, asked: set[str]) -> None:
        """Subscribe to what is watched, as that changes."""
        while True:
            wanted = set(self._watchers)
            if wanted - asked:
                await pubsub.subscribe(*(wanted - asked))
            if asked - wanted:
                await pubsub.unsubscribe(*(asked - wanted))
            asked = wanted
            if wanted == set(self._watchers):
                await self._changed.wait()

    def _dispatch(self, message: dict[str, object] | None) -> None:
        if message is None:
            return
        channel = message["channel"]
        woken = self._watchers.get(channel.decode() if isinstance(channel, bytes) else str(channel))
        if woken is None:
            return
        if message["type"] == "subscribe":
            self._deaf = False
            woken(0)
        elif message["type"] == "message" and isinstance(message["data"], bytes):
            with suppress(ValueError):
                woken(from_score(float(message["data"])))
