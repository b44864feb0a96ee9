"""The one way to Redis: script calls, commands, wake hints. Nothing else in the daemon holds a connection."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Self, TypeVar

import anyio
from redis.asyncio.client import PubSub
from redis.exceptions import NoScriptError, RedisError, ResponseError

from relay.core.errors import StoreUnavailable
from relay.core.journal import NO_JOURNALS, Journals
from relay.store.keys import KeyNames
from relay.store.one_place import OnePlace
from relay.store.server.connect import open_client
from relay.store.server.errors import says_readonly, translated_errors
from relay.store.server.pool import Client, MasterPool
from relay.store.server.scripts import (
    Argument,
    Call,
    OnRefusedHint,
    Prepared,
    Scripts,
    ignore,
    reply_of,
)

R = TypeVar("R")

CONNECTIONS = 3
"""The connections of a relay for commands: a claim or a settle can be under way beside two batches of new
timers. An idle relay has two of them open, and one more for hints."""

WRITE_TTL = 20.0
"""Seconds after which a call that changes something is given up, if nobody says otherwise."""

FOLLOW = 1.0
"""Seconds between two questions to Sentinel, and so the longest time by which a relay is behind it."""


class ServerReports(NamedTuple):
    """Who is told what happens on the way to Redis."""

    observe: Callable[[str, float], None] = ignore
    """Told the verb of each script call that was answered, and how many seconds it took."""
    refused_hint: OnRefusedHint = ignore
    stepped_back: Callable[[], None] = ignore
    """Told that a server's clock has stepped back."""


NO_REPORTS = ServerReports()


class Server:  # see 0073
    """A Redis or Valkey server, or the master behind Sentinels.

    At most `connections` carry commands; further calls wait for a free one. None is sent twice: a claim that
    is sent again needs a fresh nonce, and what may have happened already is for the caller to judge. Names
    that are not UTF-8 come and go unharmed.

    `_route` alone decides which connection a call takes, by its keys. Today there is one server.
    """

    def __init__(
        self,
        url: str,
        keys: KeyNames | None = None,
        *,
        timeout: float,
        write_ttl: float = WRITE_TTL,
        connections: int = CONNECTIONS,
        journals: Journals = NO_JOURNALS,
        reports: ServerReports = NO_REPORTS,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """`timeout` is for connecting and for what only reads, `write_ttl` for a script that changes
        something, both in seconds. `journals` says which topics have a journal. `texts` replaces scripts by
        other text, for tests that break them on purpose.

        Raises `ValueError` for a text that is not a URL, `UnfitServer` if a file that it names can't be
        used."""
        self.keys = keys or KeyNames()
        self.places = OnePlace(self.ping)
        self._journals = journals
        self._write_ttl = write_ttl
        self._reports = reports
        self._scripts = Scripts(self.keys, texts)
        self._client = open_client(
            url, connections=connections, timeout=timeout, stepped_back=reports.stepped_back
        )
        self._hints = open_client(url, connections=1, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        try:
            await self._client.aclose()
        finally:
            await self._hints.aclose()

    # ------------------------------------------------------------------ scripts

    def load_scripts(self) -> None:
        """Read all scripts now, so that no call waits for files, and a relay that lacks one fails at its
        start."""
        self._scripts.load()

    async def call(self, call: Call[R]) -> R:
        """Run a script. Raises `StoreError`.

        One that changes something is given up when the caller's scope ends, or after `write_ttl` if that is
        sooner, or when the last of several callers gives it up. From then on Redis refuses it (`GivenUp`).
        `OpenOutcome` of one that was sent and not answered comes then, and no earlier: it can't act any more,
        and may be tried again.
        """
        began = monotonic()
        prepared = self._scripts.prepare(call, self._journals.keep)
        reply = await self._run(prepared)
        if prepared.last:
            reply, trimmed = reply
            if trimmed:
                self._journals.trimmed(call.topic, trimmed)
        self._reports.observe(call.verb, monotonic() - began)
        if prepared.script.journaled:
            reply = reply_of(reply, self._reports.refused_hint)
        return reply if call.read is None else call.read(reply)

    async def _run(self, prepared: Prepared) -> Any:
        """Plain EVALSHA, and the text only once the server does not know it: after a restart, a failover or
        SCRIPT FLUSH that is, at the next call."""
        client = self._route(prepared.keys)
        deadline = self._deadline(prepared) if prepared.script.writes else None

        async def run(*, known: bool) -> Any:
            if deadline is None:
                return await client.execute_command(*prepared.command(known=known))
            return await client.change(partial(prepared.lasting, deadline, known=known), deadline)

        try:
            with translated_errors():
                try:
                    return await run(known=True)
                except NoScriptError:
                    return await run(known=False)
        except StoreUnavailable as failure:
            if says_readonly(failure.__cause__):
                self._leave(client)
            raise

    def _deadline(self, prepared: Prepared) -> float:
        """When a call that begins now is given up (monotonic seconds)."""
        last = max(prepared.deadlines, default=math.inf)
        return min(anyio.current_effective_deadline(), monotonic() + self._write_ttl, last)

    async def each(self, calls: Sequence[Call[R]]) -> list[R | Exception]:
        """Run scripts that only read, in one pipeline. What Redis refuses of one is an exception in its
        place; raises `StoreError` where nothing came of it."""
        if not calls:
            return []
        prepared = [self._scripts.prepare(call, self._journals.keep) for call in calls]
        replies = await self._pipelined(prepared)
        unknown = next((i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)), None)
        if unknown is not None:
            first = prepared[unknown]
            with (
                translated_errors(),
                suppress(ResponseError),
            ):  # of that one; the server knows the script then
                await self._route(first.keys).execute_command(*first.command(known=False))
            replies = await self._pipelined(prepared)
        return [
            reply if isinstance(reply, Exception) or call.read is None else call.read(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def _pipelined(self, prepared: Sequence[Prepared]) -> list[Any]:
        with translated_errors():
            async with self._route(prepared[0].keys).pipeline(transaction=False) as pipe:
                for each in prepared:
                    pipe.execute_command(*each.command())
                replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies

    # ----------------------------------------------------------------- commands

    async def ask(self, *command: Argument) -> Any:
        """One command. Its first argument is the key that it is about, if it is about one: a name of two
        words is written as one, such as `XINFO GROUPS`. Raises `StoreError`."""
        with translated_errors():
            return await self._route(_keys(command)).execute_command(*command)

    async def pipeline(self, *commands: Sequence[Argument], atomic: bool = False) -> list[Any]:
        """Commands about one topic's keys, sent at once; `atomic`: nothing comes between them. Raises
        `StoreError`."""
        if not commands:
            return []
        with translated_errors():
            async with self._route(_keys(commands[0])).pipeline(transaction=atomic) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                replies: list[Any] = await pipe.execute()
        return replies

    async def ping(self) -> None:
        """Ask for a sign of life. Raises `StoreError`."""
        with translated_errors():
            await self._client.ping()

    async def info(self) -> Mapping[str, Any]:
        """Return what the server says about itself. Raises `StoreError`."""
        with translated_errors():
            told: Mapping[str, Any] = await self._client.info()
        return told

    # -------------------------------------------------------------------- hints

    def subscription(self) -> PubSub:
        """A connection of its own, for as long as it is entered."""
        return self._hints.pubsub()

    # ------------------------------------------------------------------- master

    async def follow_master(self) -> None:
        """Ask the Sentinels every `FOLLOW` seconds for the master, and tell `places.changed` when it is
        another one.

        A live master that Sentinel replaces goes on taking writes, for ten seconds or so, until it is
        made a replica; whatever is written to it then is lost. Without Sentinels this ends at once.
        """
        sentinels = self._client.connection_pool.connection_kwargs.get("sentinels")
        if sentinels is None:
            return
        known = sentinels.told
        while True:
            await anyio.sleep(FOLLOW)
            with suppress(RedisError):  # commands find out by themselves whether the master is away
                await sentinels.master()
            if sentinels.told != known:
                known = sentinels.told
                self._tell_changed()

    def _route(self, keys: Sequence[Argument]) -> Client:
        """Return the client of the server with these keys, which all belong to one topic, and so are in one
        place."""
        return self._client

    def _leave(self, client: Client) -> None:
        """A master that became a replica may keep its connections: let new ones look for the new master."""
        self._tell_changed()
        pool = client.connection_pool
        if isinstance(pool, MasterPool):
            pool.renew()

    def _tell_changed(self) -> None:
        for changed in self.places.changed:
            changed()


def _keys(command: Sequence[Argument]) -> Sequence[Argument]:
    return command[1:2]
