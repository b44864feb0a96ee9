"""Wake hints over Redis pub/sub: a topic's first timer has become an earlier one."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import from_score
from relay.core.wakeup import Wakeup
from relay.store.server.errors import translated_errors, words
from relay.store.server.scripts import OnRefusedHint, ignore
from relay.store.server.server import Server

RETRY = 1.0
"""Seconds between two tries to subscribe while Redis is away."""

RETRY_REFUSED = 60.0
"""Seconds between two tries while the user lacks the permission."""

HEARTBEAT = 5.0
"""Seconds of silence after which the server is pinged; after as many again the connection is given up."""

HEARING = 2.0
"""Seconds within which a message of our own must come back when hints are tried."""

log = logging.getLogger(__name__)


class RedisHints:  # see 0009
    """`WakeHints` over one connection of its own, which only `run` touches.

    Whatever is published while the connection is down is lost. So each time that it is made,
    every watcher is woken once and looks for itself; polling covers the rest.

    A connection may look well and bring nothing: the server is frozen or cut off (`heartbeat` finds that
    out), or it was the master and is a replica now (`renew` says so; a connection to a replica is refused
    when it is made).

    `on_refused_hint` is told each time that Redis refuses to be subscribed to: why.
    """

    def __init__(
        self,
        server: Server,
        *,
        heartbeat: float = HEARTBEAT,
        on_refused_hint: OnRefusedHint = ignore,
    ) -> None:
        self._server = server
        self._heartbeat = heartbeat
        self._on_refused_hint = on_refused_hint
        server.places.changed.append(self.renew)
        self._watchers: dict[str, Callable[[int], None]] = {}
        self._changed = Wakeup()
        self._reading: anyio.CancelScope | None = None
        self._outdated = False
        self._deaf = False

    async def watch(self, topic: str, woken: Callable[[int], None]) -> None:
        """See `WakeHints.watch`."""
        self._watchers[self._server.keys.channel(topic)] = woken
        self._interrupt()

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        self._watchers.pop(self._server.keys.channel(topic), None)
        self._interrupt()

    def renew(self) -> None:
        """Leave a server that is not the master any more, and look for the new one."""
        self._outdated = True
        self._interrupt()

    def _interrupt(self) -> None:
        self._changed.set()
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            if not self._watchers:
                await self._changed.wait()
                continue
            try:
                await self._listen()
            except Exception as failure:  # noqa: BLE001  (hints are a help: whatever breaks them, polling goes on)
                refused = isinstance(failure, ResponseError)
                if refused:
                    self._on_refused_hint(words(failure))
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
        async with self._server.subscription() as pubsub:
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
        # There is no await between the caller's look at the watchers and this line, so no change is missed.
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


async def deafness(server: Server) -> list[str]:
    """What is wrong with wake hints outside of scripts: Redis does not let us subscribe, or publish; empty if
    they are heard. Raises `StoreUnavailable`."""
    channel = server.keys.channel(f"relay-doctor-{secrets.token_hex(8)}")
    problems: list[str] = []

    async def attempt(what: str, call: Callable[[], Awaitable[object]]) -> None:
        try:
            with translated_errors():
                await call()
        except StoreUnavailable:
            raise
        except StoreError as failure:
            problems.append(f"Redis does not let us {what}: {failure}")

    async def subscribe() -> None:
        await pubsub.subscribe(channel)
        await pubsub.get_message(timeout=HEARING)  # the server's word that we listen

    async def publish() -> None:
        await server.ask("PUBLISH", channel, "0")

    async def hear() -> None:
        if not await pubsub.get_message(timeout=HEARING):
            problems.append(f"a message did not come back within {HEARING:g} s")
        await pubsub.unsubscribe(channel)
        await pubsub.get_message(timeout=HEARING)

    async with server.subscription() as pubsub:
        await attempt("subscribe to them", subscribe)
        await attempt("publish them, as bulk loads do", publish)
        if not problems:
            await attempt("unsubscribe from them", hear)
    return problems
