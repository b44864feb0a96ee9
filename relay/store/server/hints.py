"""Wake hints over Redis pub/sub: a topic's first timer has become an earlier one."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import anyio
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, ResponseError

from relay.core.errors import StoreError, StoreUnavailable
from relay.core.instants import from_score
from relay.core.loop.wakeup import Wakeup
from relay.core.ports import ignore_call
from relay.store.server.cluster.redirects import REFUSALS
from relay.store.server.cluster.slot_map import slot_of
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

LOOK = b"0"
"""The hint that says: look now."""

HELP = b"help "
"""What a call for help begins with; the rank that is called follows. Any other hint is a score."""

SHARDED = ("ssubscribe", "sunsubscribe", "smessage")
"""What a Cluster calls the messages of pub/sub."""

log = logging.getLogger(__name__)


class RedisHints:  # see 0009
    """`WakeHints` over a connection of its own to each place with watched topics.

    Whatever is published while a connection is down is lost. So each time that it is made, the watchers of
    its topics are woken once and look for themselves; polling covers the rest.

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
        self.server = server
        self.heartbeat = heartbeat
        self.on_refused_hint = on_refused_hint
        # The nodes of a Cluster say by themselves which topics they have no more; no connection is outdated.
        server.places.changed.append(self._interrupt if server.is_cluster else self.renew)
        self._watchers: dict[str, _Watcher] = {}
        self._changed = Wakeup()
        self._ears: dict[str, _Ear] = {}

    async def watch(
        self, topic: str, woken: Callable[[int], None], called: Callable[[int], None] = ignore_call
    ) -> None:
        """See `WakeHints.watch`."""
        self._watchers[self.server.keys.channel(topic)] = _Watcher(topic, woken, called)
        self._interrupt()

    async def unwatch(self, topic: str) -> None:
        """See `WakeHints.unwatch`."""
        self._watchers.pop(self.server.keys.channel(topic), None)
        self._interrupt()

    async def call_for_help(self, topic: str, rank: int) -> None:
        """See `WakeHints.call_for_help`. Where Redis refuses, others find out by themselves."""
        with suppress(StoreError):
            await self.server.hint(topic, HELP + str(rank).encode())

    def renew(self) -> None:
        """Leave a server that is not the master any more, and look for the new one."""
        for ear in self._ears.values():
            ear.outdated = True
        self._interrupt()

    def _interrupt(self) -> None:
        self._changed.set()
        for ear in self._ears.values():
            ear.interrupt()

    async def run(self) -> None:
        """Listen until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                for place in self._places() - self._ears.keys():
                    self._ears[place] = _Ear(self, place)
                    tasks.start_soon(self._listen, self._ears[place])
                await self._changed.wait()

    async def _listen(self, ear: _Ear) -> None:
        while ear.place in self._places():
            await ear.try_to_listen()
        del self._ears[ear.place]

    def _places(self) -> set[str]:
        return {self.server.places.of(watcher.topic) for watcher in self._watchers.values()}

    @property
    def is_deaf(self) -> bool:
        """Whether hints from some place are not heard."""
        return any(ear.is_deaf for ear in self._ears.values())

    def wanted(self, place: str) -> set[str]:
        """The channels of the watched topics that a place has."""
        watched = self._watchers.items()
        return {channel for channel, watcher in watched if self.server.places.of(watcher.topic) == place}

    def heard(self, channel: str, text: bytes) -> None:
        """Tell the channel's watcher, if there still is one. Raises `ValueError` if it is not a hint."""
        if channel not in self._watchers:
            return
        watcher = self._watchers[channel]
        if text.startswith(HELP):
            watcher.called(int(text.removeprefix(HELP)))
        else:
            watcher.woken(from_score(float(text)))


class _Watcher(NamedTuple):
    """Who is told what is heard about a topic."""

    topic: str
    woken: Callable[[int], None]
    called: Callable[[int], None]


class _Ear:
    """The connection of wake hints to one place, which only `try_to_listen` touches."""

    def __init__(self, hints: RedisHints, place: str) -> None:
        self.place = place
        self.outdated = False
        self.is_deaf = False
        self._hints = hints
        self._reading: anyio.CancelScope | None = None
        self._wanted: set[str] | None = None
        """The channels of the topics that are here; None if they have to be looked for again."""
        self._asked: set[str] = set()
        self._lost: set[str] = set()
        """Channels that have left the place, as the server says; the Cluster has yet to be looked at."""

    def interrupt(self) -> None:
        """Have it look at what is wanted of it: the watchers or the places have changed."""
        self._wanted = None
        self._lost.clear()
        if self._reading is not None:
            self._reading.cancel()

    async def try_to_listen(self) -> None:
        """Listen as long as it goes well, and wait a while if it does not."""
        try:
            await self._listen()
        except Exception as failure:  # noqa: BLE001  (hints are a help: whatever breaks them, polling goes on)
            refused = isinstance(failure, ResponseError) and not isinstance(failure, REFUSALS)
            self._hints.server.doubt()
            if refused:
                self._hints.on_refused_hint(words(failure))
            elif not self.is_deaf:
                log.info("wake hints are not heard; polling meanwhile", extra={"reason": words(failure)})
            self.is_deaf = True
            await anyio.sleep(RETRY_REFUSED if refused else RETRY)

    async def _listen(self) -> None:
        """One connection's life; ends when nothing is watched there any more, or by `renew`.

        One task alone writes to it and reads from it: redis-py would connect twice when both
        found it broken.
        """
        self.outdated = False
        self._asked.clear()
        pinged = False
        async with await self._hints.server.subscription(self.place) as pubsub:
            while (wanted := self._channels()) and not self.outdated:
                wanted = wanted - self._lost
                if wanted != self._asked:
                    await self._follow(pubsub, wanted)
                    continue  # there may be more by now
                message, interrupted = await self._read(pubsub)
                if message is not None:
                    self._take(message)
                elif pinged and not interrupted:
                    raise RedisConnectionError("the connection is silent")
                elif not interrupted:
                    self._lost.clear()
                    await pubsub.ping()
                pinged = message is None and (pinged or not interrupted)

    def _channels(self) -> set[str]:
        if self._wanted is None:  # not for each message: there may be many topics
            self._wanted = self._hints.wanted(self.place)
        return self._wanted

    async def _follow(self, pubsub: PubSub, wanted: set[str]) -> None:
        more, fewer = wanted - self._asked, self._asked - wanted
        self._asked = wanted
        if self._hints.server.hints_are_sharded:
            for channel in more:  # one command may name channels of one slot only
                await pubsub.ssubscribe(channel)
            for channel in fewer:
                await pubsub.sunsubscribe(channel)
            return
        if more:
            await pubsub.subscribe(*more)
        if fewer:
            await pubsub.unsubscribe(*fewer)

    async def _read(self, pubsub: PubSub) -> tuple[dict[str, Any] | None, bool]:
        """The next message, None after a heartbeat's silence; and whether something else comes first."""
        # Not `get_message`: where the connection breaks, that makes a new one, subscribes, and raises all the
        # same. What is published to that one in the meantime is lost.
        connection = pubsub.connection
        if connection is None:  # nothing is asked of it as long as all that is wanted has left it
            with anyio.move_on_after(self._hints.heartbeat) as self._reading:
                await anyio.sleep_forever()
            self._lost.clear()
            return None, True
        # There is no await between the caller's look at the watchers and this line, so no change is missed.
        try:
            with anyio.CancelScope() as self._reading:
                answer = await connection.read_response(
                    timeout=self._hints.heartbeat, disconnect_on_error=False, push_request=True
                )
        except MovedError as moved:
            self._lose(*(channel for channel in self._asked if slot_of(channel) == moved.slot_id))
            return None, True
        if self._reading.cancelled_caught:
            return None, True
        return await pubsub.handle_message(answer), False

    def _lose(self, *channels: str) -> None:
        self._asked.difference_update(channels)
        self._lost.update(channels)
        self._hints.server.doubt()

    def _take(self, message: dict[str, Any]) -> None:
        channel = message["channel"]
        name = channel.decode() if isinstance(channel, bytes) else str(channel)
        kind = message["type"].removeprefix("s") if message["type"] in SHARDED else message["type"]
        if kind == "subscribe":
            self.is_deaf = False
            self._hints.heard(name, LOOK)
        elif message["type"] == "sunsubscribe" and name in self._asked:
            self._lose(name)
        elif kind == "message" and isinstance(message["data"], bytes):
            with suppress(ValueError):
                self._hints.heard(name, message["data"])


async def deafness(server: Server) -> list[str]:
    """What is wrong with wake hints outside of scripts: Redis does not let us subscribe, or publish; empty if
    they are heard. Raises `StoreUnavailable`."""
    topic = f"relay-doctor-{secrets.token_hex(8)}"
    channel, sharded = server.keys.channel(topic), server.hints_are_sharded
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
        await (pubsub.ssubscribe(channel) if sharded else pubsub.subscribe(channel))
        await pubsub.get_message(timeout=HEARING)  # the server's word that we listen

    async def hear() -> None:
        if not await pubsub.get_message(timeout=HEARING):
            problems.append(f"a message did not come back within {HEARING:g} s")
        await (pubsub.sunsubscribe(channel) if sharded else pubsub.unsubscribe(channel))
        await pubsub.get_message(timeout=HEARING)

    async with await server.subscription(server.places.of(topic)) as pubsub:
        await attempt("subscribe to them", subscribe)
        await attempt("publish them, as bulk loads do", partial(server.hint, topic, LOOK))
        if not problems:
            await attempt("unsubscribe from them", hear)
    return problems
