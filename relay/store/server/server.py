"""The one way to Redis: script calls, commands, wake hints. Nothing else in the daemon holds a connection."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Self, TypeVar

import anyio
from redis.asyncio.client import PubSub
from redis.exceptions import NoScriptError, RedisError, ResponseError

from relay.core.durability import Durability, needed
from relay.core.endpoints.redis_url import Address, parse
from relay.core.errors import OtherLayout, StoreUnavailable
from relay.core.journal import NO_JOURNALS, Journals
from relay.core.loop.call_ends import call_deadline
from relay.core.partitions import topic_of
from relay.core.ports import Places
from relay.store.keys import KeyNames
from relay.store.one_place import OnePlace
from relay.store.server.cluster.nodes import Cluster, Node
from relay.store.server.cluster.slot_map import slot_of
from relay.store.server.connect import open_client, open_to_ask
from relay.store.server.durable.offer import Replicas
from relay.store.server.errors import says_readonly, translated_errors
from relay.store.server.group_commit import MARGIN
from relay.store.server.pool import Client, told_by
from relay.store.server.probing.commands import PROBE, Feature, Lack, lacks_in, trials
from relay.store.server.scripts import (
    Argument,
    Call,
    OnRefusedHint,
    Prepared,
    Scripts,
    ignore,
    publish_command,
    reply_of,
)

R = TypeVar("R")

CONNECTIONS = 3
"""The connections of a relay for commands: a claim or a settle can be under way beside two batches of new
timers. An idle relay has two of them open, and one more for hints."""

WRITE_TTL = 20.0
"""Seconds after which a call that changes something is given up, if nobody says otherwise."""

DURABLE_TTL = 10.0
"""Seconds for which a change's durability is waited for at most."""

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
    """A Redis or Valkey server, the master behind Sentinels, or a Cluster.

    At most `connections` carry commands, to each node of a Cluster; further calls wait for a free one. None
    is sent twice: a claim that is sent again needs a fresh nonce, and what may have happened already is for
    the caller to judge. Names that are not UTF-8 come and go unharmed.

    Whether there is one server or a Cluster is known here and to nobody who calls. In a Cluster the keys of a
    call say which node it goes to, and hash tags are always on.
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
        name: str = "",
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """`timeout` is for connecting and for what only reads, `write_ttl` for a script that changes
        something, both in seconds. `journals` says which topics have a journal, and `name`
        is what they call this relay: without spaces, empty if nobody. `texts` replaces scripts by
        other text, for tests that break them on purpose.

        Raises `ValueError` for a text that is not a URL, `UnfitServer` if a file that it names can't be
        used."""
        where = parse(url)
        self.keys = replace(keys or KeyNames(), hash_tags=True) if where.cluster else keys or KeyNames()
        self._timeout = timeout
        self._journals = journals
        self._write_ttl = write_ttl
        self._reports = reports
        self._scripts = Scripts(self.keys, texts, guarded=where.cluster, relay=name)
        self.other_layout: Callable[[str, str], None] = ignore
        """Told the topic of a call that Redis refused because the topic has other partitions, and its
        layout."""
        self.share: Callable[[str, int], int] = lambda _, total: total
        """Says which part of a bound for a topic is that of a partition."""

        replicas = Replicas()

        def commands(at: Address | None = None) -> Client:
            told = reports.stepped_back
            return open_client(
                url, connections=connections, timeout=timeout, stepped_back=told, replicas=replicas, at=at
            )

        def hints(at: Address | None = None) -> Client:
            return open_client(url, connections=1, timeout=timeout, at=at)

        self._client, self._hints = commands(), hints()
        self._cluster: Cluster | None = None
        if where.cluster:  # those two lead nowhere then, and are never used
            nodes = partial(open_to_ask, url), lambda at: Node(commands(at), hints(at))
            self._cluster = Cluster(where, self.keys, *nodes)
        self.places: Places = self._cluster or OnePlace(self.ping)
        self.places.changed.append(self._choose_hints)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def is_cluster(self) -> bool:
        """Whether the URL names a Cluster."""
        return self._cluster is not None

    async def aclose(self) -> None:
        """Close all connections."""
        try:
            if self._cluster is not None:
                await self._cluster.aclose()
            await self._client.close_all()
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

        Within `needing` one that changes something is answered once all that it has changed, or found
        changed, has that durability. Otherwise it raises `DurabilityMissed`, or `NotOffered` if the server
        can't give it, and `TooMany` if too many wait.
        """
        began = monotonic()
        prepared = self._scripts.prepare(call, self._keep)
        try:
            reply, answered = await self._run(prepared, call.topic)
        except OtherLayout as told:
            self.other_layout(topic_of(call.topic), told.layout)
            raise
        if prepared.journaled:
            reply, trimmed = reply
            if trimmed:
                self._journals.trimmed(topic_of(call.topic), trimmed)
        self._reports.observe(call.verb, answered - began)
        if prepared.script.journaled:
            reply = reply_of(reply, self._reports.refused_hint)
        return reply if call.read is None else call.read(reply)

    def _keep(self, name: str) -> int:
        """How many records the journal of a topic or partition keeps; 0 if it has none."""
        keeps = self._journals.keep(name)
        return self.share(name, keeps) if keeps and "#" in name else keeps

    async def _run(self, prepared: Prepared, topic: str) -> tuple[Any, float]:
        """Plain EVALSHA, and the text only once the server does not know it: after a restart, a failover or
        SCRIPT FLUSH that is, at the next call. Return the reply, and when it came (monotonic seconds)."""
        deadline = self._deadline(prepared) if prepared.script.writes else None
        attempt = self._attempt(prepared, topic, deadline)
        try:
            with translated_errors():
                if self._cluster is None:
                    return await attempt(self._client)
                until = self._patience() if deadline is None else deadline
                return await self._cluster.lead(prepared.keys, attempt, until)
        except StoreUnavailable as failure:
            if says_readonly(failure.__cause__):
                self._leave()
            raise

    def _attempt(
        self, prepared: Prepared, topic: str, deadline: float | None
    ) -> Callable[[Client], Awaitable[tuple[Any, float]]]:
        """How a call is made at a place; `deadline` is that of a script that changes something."""
        level = needed()
        if deadline is None or not level.waits:

            async def plainly(client: Client) -> tuple[Any, float]:
                return await _run_at(client, prepared, deadline), monotonic()

            return plainly
        key = self.keys.key("written", topic)
        end = self._end(prepared, DURABLE_TTL) - MARGIN

        async def durably(client: Client) -> tuple[Any, float]:
            commit = client.durable[level]

            async def sent(*, known: bool) -> tuple[Any, float]:
                return await commit.change(
                    partial(prepared.lasting, deadline, known=known), key, deadline, end
                )

            try:
                return await sent(known=True)
            except NoScriptError:
                return await sent(known=False)

        return durably

    def _deadline(self, prepared: Prepared) -> float:
        """When a call that begins now is given up (monotonic seconds)."""
        return self._end(prepared, self._write_ttl)

    def _end(self, prepared: Prepared, most: float) -> float:
        """When all callers of a call that begins now have gone, or after `most` seconds if that is sooner
        (monotonic seconds)."""
        last = max(prepared.deadlines, default=math.inf)
        scope = anyio.current_effective_deadline()
        return min(call_deadline(), scope, monotonic() + most, last)

    def _patience(self) -> float:
        """Until when a Cluster may send on what only reads (monotonic seconds)."""
        return monotonic() + self._timeout

    async def each(self, calls: Sequence[Call[R]]) -> list[R | Exception]:
        """Run scripts that only read, in one pipeline for each node. What Redis refuses of one is an
        exception in its place, as is in a Cluster a node that can't be reached; raises `StoreError` where
        nothing came of it."""
        if not calls:
            return []
        prepared = [self._scripts.prepare(call, self._keep) for call in calls]
        with translated_errors():
            if self._cluster is None:
                replies = await _run_all_at(self._client, prepared)
            else:
                replies = await self._cluster.spread(
                    [each.keys for each in prepared],
                    lambda client, numbers: _run_all_at(client, [prepared[n] for n in numbers]),
                    self._patience(),
                )
        return [
            reply if isinstance(reply, Exception) or call.read is None else call.read(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    async def all(self, calls: Sequence[Call[R]]) -> list[R]:
        """Run scripts that only read, and need the replies of all. Raises `StoreError`."""
        if len(calls) == 1:
            return [await self.call(calls[0])]
        replies: list[R] = []
        for reply in await self.each(calls):
            if isinstance(reply, Exception):
                with translated_errors():
                    raise reply
            replies.append(reply)
        return replies

    # ----------------------------------------------------------------- commands

    async def ask(self, *command: Argument) -> Any:
        """One command. Its first argument is the key that it is about, if it is about one: a name of two
        words is written as one, such as `XINFO GROUPS`. Raises `StoreError`."""
        with translated_errors():
            if self._cluster is None:
                return await self._client.execute_command(*command)
            return await self._cluster.lead(
                command[1:2], lambda client: client.execute_command(*command), self._patience()
            )

    async def pipeline(self, *commands: Sequence[Argument], atomic: bool = False) -> list[Any]:
        """Commands that only read one topic's keys, sent at once; `atomic`: nothing comes between them.
        Raises `StoreError`."""
        if not commands:
            return []
        with translated_errors():
            if self._cluster is None:
                return await _all_at(self._client, commands, atomic=atomic)
            keys = next((command[1:2] for command in commands if len(command) > 1), ())
            if atomic:
                return await self._cluster.lead(
                    keys, lambda client: _all_at(client, commands, atomic=True), self._patience()
                )
            replies = await self._cluster.spread(
                [keys] * len(commands),
                lambda client, numbers: _all_at(client, [commands[n] for n in numbers], told=True),
                self._patience(),
            )
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
            return replies

    async def ping(self) -> None:
        """Ask for a sign of life; in a Cluster, one of its nodes. Raises `StoreError`."""
        if self._cluster is not None:
            await self._cluster.ping("")
            return
        with translated_errors():
            await self._client.ping()

    async def time(self, place: str) -> int:
        """Return what the clock of a place shows, in microseconds since 1970. Raises `StoreError`, also for a
        place that no slot is at: that of a slot without a node has no name."""
        with translated_errors():
            if self._cluster is None:
                return told_by(await self._client.execute_command("TIME"))
            await self._cluster.topology.known()
            if place not in self._cluster.topology.places:
                raise StoreUnavailable(f"no node of the Cluster is at {place!r}")
            return told_by(await self._cluster.node(place).client.execute_command("TIME"))

    def forget_clocks(self, place: str) -> None:
        """Have each connection to a place ask for the time again before it says until when a call may act."""
        client = self._client if self._cluster is None else self._cluster.node(place).client
        client.forget_clocks()

    async def info(self) -> dict[str, Mapping[str, Any]]:
        """Return what the server says about itself, by its place; in a Cluster what each node says that
        answers. Raises `StoreError` if no node answers, `UnfitServer` if no server at the URL of a Cluster
        belongs to one."""
        with translated_errors():
            if self._cluster is None:
                return {"": await self._client.info()}
            return await self._cluster.each_node(Client.info)

    async def lacks(self, level: Durability) -> dict[str, str]:
        """Return why the server can't give a durability, by its place, empty if it can; in a Cluster what is
        so of each node that answers. Raises `StoreError`."""
        with translated_errors():
            if self._cluster is None:
                return {"": await self._client.durable[level].lacks()}
            return await self._cluster.each_node(lambda client: client.durable[level].lacks())

    async def lacking(self, features: Iterable[Feature], name: str) -> list[Lack]:
        """Return which of the commands for these features the server does not give, in a Cluster any node
        that answers and takes calls at present. `name` is of no lock that anybody takes. Raises
        `StoreError`."""
        key, tried = self.keys.lock(name), trials(features)
        if self._cluster is None:
            return list(lacks_in(await self.ask("EVAL", PROBE, 1, key, *tried)))
        slots = self._cluster.topology
        with translated_errors():
            await slots.known()
        found: list[Lack] = []
        for place in slots.places:
            names = (f"{key}{n}" for n in range(100_000))
            here = next((each for each in names if slots.where(slot_of(each)) == place), None)
            if here is None:  # it has a handful of slots, and no name was found for one
                continue

            async def ask(client: Client, here: str = here) -> Any:
                return await client.execute_command("EVAL", PROBE, 1, here, *tried)

            with suppress(StoreUnavailable), translated_errors():
                found += lacks_in(await self._cluster.lead([here], ask, monotonic()))  # now or not at all
        return found

    @property
    def slots(self) -> Mapping[str, int]:
        """How many slots each place of a Cluster has, as far as is known. One server has none."""
        return {} if self._cluster is None else self._cluster.topology.shares()

    # -------------------------------------------------------------------- hints

    async def subscription(self, place: str) -> PubSub:
        """A connection of its own to a place, for as long as it is entered. Raises redis-py's
        `ConnectionError` where a Cluster does not tell its places."""
        if self._cluster is None:
            return self._hints.pubsub()
        await self._cluster.topology.known()
        return self._cluster.node(place or self._cluster.topology.anywhere).hints.pubsub()

    @property
    def hints_are_sharded(self) -> bool:
        """Whether a hint is heard at the node with the topic, and nowhere else: in a Cluster from Redis 7 on.
        In an older one the nodes pass all messages on to each other."""
        return self._cluster is not None and self._cluster.topology.is_sharded

    @property
    def _publish(self) -> str:
        return publish_command(is_sharded=self.hints_are_sharded)

    def _choose_hints(self) -> None:
        self._scripts.publish_by(self._publish)

    async def hint(self, topic: str, text: bytes) -> None:
        """Publish a hint by itself, such as `LOOK`. Raises `StoreError`."""
        await self.ask(self._publish, self.keys.channel(topic), text)

    def doubt(self) -> None:
        """Have a Cluster looked at, without a wait: topics may have moved."""
        if self._cluster is not None:
            self._cluster.topology.doubt()

    # ------------------------------------------------------------------- moves

    async def follow(self) -> None:
        """Learn where the master is now, or what has moved in a Cluster, and tell `places.changed`. On one
        server this ends at once.

        The Sentinels are asked every `FOLLOW` seconds. A live master that they replace goes on taking writes,
        for ten seconds or so, until it is made a replica; whatever is written to it then is lost. A Cluster
        says by itself that something has moved, and is looked at once a minute besides.
        """
        if self._cluster is not None:
            return await self._cluster.topology.watch()
        sentinels = self._client.connection_pool.connection_kwargs.get("sentinels")
        if sentinels is None:
            return None
        known = sentinels.told
        while True:
            await anyio.sleep(FOLLOW)
            with suppress(RedisError):  # commands find out by themselves whether the master is away
                await sentinels.master()
            if sentinels.told != known:
                known = sentinels.told
                self._tell_changed()

    def _leave(self) -> None:
        """A master that became a replica may keep its connections: let new ones look for the new master. In a
        Cluster such a node says MOVED."""
        self._tell_changed()
        self._client.renew()

    def _tell_changed(self) -> None:
        for changed in self.places.changed:
            changed()


async def _run_at(client: Client, prepared: Prepared, deadline: float | None) -> Any:
    """`deadline` is that of a script that changes something."""

    def sent(*, known: bool) -> Awaitable[Any]:
        if deadline is None:
            return client.execute_command(*prepared.command(known=known))
        return client.change(partial(prepared.lasting, deadline, known=known), deadline)

    try:
        return await sent(known=True)
    except NoScriptError:
        return await sent(known=False)


async def _run_all_at(client: Client, prepared: Sequence[Prepared]) -> list[Any]:
    """Scripts that only read; refusals are among the replies."""
    commands = [each.command() for each in prepared]
    replies = await client.read_all(commands)
    unknown = {
        each.script.sha: each
        for each, reply in zip(prepared, replies, strict=True)
        if isinstance(reply, NoScriptError)
    }
    if not unknown:
        return replies
    for each in unknown.values():
        with suppress(ResponseError):  # of that one; the server knows its script then
            await client.execute_command(*each.command(known=False))
    return await client.read_all(commands)


async def _all_at(
    client: Client, commands: Sequence[Sequence[Argument]], *, atomic: bool = False, told: bool = False
) -> list[Any]:
    """One pipeline. The first refusal is raised, or, with `told`, all are among the replies."""
    async with client.pipeline(transaction=atomic) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        replies: list[Any] = await pipe.execute(raise_on_error=not told)
    return replies
