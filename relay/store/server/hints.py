"""Wake hints over Redis pub/sub: a topic's first timer has become an earlier one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from relay.core.instants import from_score
from relay.core.wakeup import Wakeup
from relay.store.keys import KeyNames
from relay.store.server.errors import words
from relay.store.server.scripts import OnRefusedHint, ignore_reason

RETRY = 1.0
"""Seconds between two tries to subscribe while Redis is away."""

RETRY_REFUSED = 60.0
"""Seconds between two tries while the user lacks the permission."""

HEARTBEAT = 5.0
"""Seconds of silence after which to ask for a sign of life, and again until the connection is given up."""

log = logging.getLogger(__name__)


class RedisHints:
    """`WakeHints` over one connection of its own, which only `run` touches.

    Whatever is published while the connection is down is lost. So each time that it is made,
    every watcher is woken once and looks for itself; polling covers the rest.

    A connection may be of no use and look well: the server is frozen or cut off (`heartbeat`
    finds out), or it was the master and is a replica now (`renew` says so; a connection to a
    replica is refused as it is made).

    `unheard` is told each time that Redis refuses to be subscribed to: why.
    """

    def __init__(
        self,
        redis: Redis,
        keys: KeyNames | None = None,
        *,
        heartbeat: float = HEARTBEAT,
        unheard: OnRefusedHint = ignore_reason,
    ) -> None:
        self._redis = redis
        self._keys = keys or KeyNames()
        self._heartbeat = heartbeat
        self._unheard = unheard
        self._watchers: dict[str, Callable[[int], None]] = {}
        self._changed = Wakeup()
        self._reading: anyio.CancelScope | None = None
        self._outdated = False
        self._deaf = False

    async def watch(self, topic: str, woken: Callable[[int], None]) -> None:
        """See `WakeHints.watch`."""
        self._watchers[self._keys.channel(topic)] = woken
        self._interrupt()

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        self._watchers.pop(self._keys.channel(topic), None)
        self._interrupt()

    def renew(self) -> None:
        """The server is no master any more: leave it, and look for the new one."""
        self._outdated = True
        self._interrupt()

    def _interrupt(self) -> None:
        self._changed.set()
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Listen for ever."""
        while True:
            if not self._watchers:
                await self._changed.wait()
                continue
            try:
                await self._listen()
            except Exception as failure:  # noqa: BLE001  (hints are a help: whatever breaks them, polling goes on)
                refused = isinstance(failure, ResponseError)
                if refused:
                    self._unheard(words(failure))
                elif not self._deaf:
                    log.info("wake hints are not heard; polling meanwhile", extra={"reason": words(failure)})
                self._deaf = True
                await anyio.sleep(RETRY_REFUSED if refused else RETRY)

    async def _listen(self) -> None:
        """One connection's life; ends when nothing is watched any more, or by `renew`.

        One task alone writes to it and reads from it: redis-py would connect twice when both
        found it broken.
        """
        self._outdated = False
        asked: set[str] = set()
        pinged = False
        async with self._redis.pubsub() as pubsub:
            while self._watchers and not self._outdated:
                wanted = set(self._watchers)
                if wanted != asked:
                    await _follow(pubsub, asked, wanted)
                    asked = wanted
                    continue  # there may be more by now
                message, interrupted = await self._read(pubsub)
                if message is not None:
                    self._dispatch(message)
                elif pinged and not interrupted:
                    raise RedisConnectionError("the connection is silent")
                elif not interrupted:
                    await pubsub.ping()
                pinged = message is None and (pinged or not interrupted)

    async def _read(self, pubsub: PubSub) -> tuple[dict[str, Any] | None, bool]:
        """The next message, None after a heartbeat's silence; and whether something else comes first."""
        # Not `get_message`: where the connection breaks, that makes a new one, subscribes, and raises all the
        # same. What is published to that one in the meantime is lost.
        connection = pubsub.connection
        assert connection is not None  # it has subscribed
        # Between the caller's look at the watchers and here is no await: no change goes unnoticed.
        with anyio.CancelScope() as self._reading:
            answer = await connection.read_response(
                timeout=self._heartbeat, disconnect_on_error=False, push_request=True
            )
        if self._reading.cancelled_caught:
            return None, True
        return await pubsub.handle_message(answer), False

    def _dispatch(self, message: dict[str, Any]) -> None:
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


async def _follow(pubsub: PubSub, asked: set[str], wanted: set[str]) -> None:
    if wanted - asked:
        await pubsub.subscribe(*(wanted - asked))
    if asked - wanted:
        await pubsub.unsubscribe(*(asked - wanted))
