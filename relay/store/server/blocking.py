"""One connection to Redis that blocks, for Spark's workers: commands are sent ahead of their replies."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from time import monotonic
from typing import Any, Self, TypeVar

import hiredis
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from relay.core.endpoints.redis_url import Address, parse
from relay.core.errors import InvalidField, UnfitServer
from relay.core.journal import NO_JOURNALS, Journals
from relay.store.keys import KeyNames
from relay.store.server.connect import Kinds, options_of
from relay.store.server.errors import NotMaster, translated_errors, words
from relay.store.server.pool import role_of, told_by
from relay.store.server.scripts import Argument, Call, OnRefusedHint, Prepared, Scripts, reply_of
from relay.store.server.sentinel import SENTINEL_TIMEOUT
from relay.store.server.server_clock import ServerClock

NAME = "relay-pipeline"
"""What CLIENT LIST shows."""

TIMEOUT = 20.0
"""Seconds within which Redis must answer: a loader is not a relay, and can wait."""

KEEP_ALL = 1 << 52
"""Records that a journal keeps where nobody told how many: trimming is left to the relays."""

WRITE_TTL = 10.0
"""Seconds after which Redis refuses what was sent to change something: a script call of a loader may stand
behind `AHEAD` others."""

NO_CLUSTER = "the pipeline can't work on a Cluster of several nodes yet; relays can"

NO_PARTITIONS = "{!r} has several partitions, and the pipeline can't work on such a topic yet; relays can"

R = TypeVar("R")

log = logging.getLogger(__name__)


@lru_cache(maxsize=16)
def log_refused_hint(reason: str) -> None:
    """Log once in this process that Redis refuses wake hints."""
    log.warning(
        "Redis refuses the wake hints of this load (%s): a relay that sleeps may be late with its timers by "
        "up to max_polling_interval; permit PUBLISH on the channels that docs/how-to/redis.md names",
        reason,
    )


class BlockingServer:
    """`Server` for one thread: a connection to the master, made when it is first needed.

    `send` puts commands on their way, `receive` reads as many replies, in the same order. What Redis
    refuses is an exception among the replies; a connection that is lost raises `StoreUnavailable`, and what
    was sent and not answered may have happened. Nothing is ever sent twice. The error comes once Redis would
    refuse the scripts that were under way.

    A topic whose journal is there has one, whatever `journals` says of it. `on_refused_hint` is called for
    each wake hint that Redis refused. `texts` replaces scripts by other text, for tests that break them on
    purpose.
    """

    def __init__(
        self,
        url: str,
        keys: KeyNames | None = None,
        *,
        timeout: float = TIMEOUT,
        journals: Journals = NO_JOURNALS,
        on_refused_hint: OnRefusedHint = log_refused_hint,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """Raises `ValueError` for a text that is not a URL, `UnfitServer` if it names a Cluster, or a file
        that can't be used."""
        where = parse(url)
        if where.cluster:
            raise UnfitServer(NO_CLUSTER)
        options = options_of(where, BLOCKING, timeout=timeout)
        made = options.pop("connection_class")
        self.keys = keys or KeyNames()
        self.on_refused_hint = on_refused_hint
        self._journals = journals
        self._kept: dict[str, int] = {}
        self._scripts = Scripts(self.keys, texts)
        self._clock = ServerClock()
        self._given_up_at = -math.inf
        """When the last script that was sent is given up (monotonic seconds)."""
        self._connection: AbstractConnection = made(redis_connect_func=self._greet, **options)
        self.waiting = 0
        """Replies that were not received yet."""

    # ------------------------------------------------------------------ scripts

    def call(self, call: Call[R]) -> R:
        """Run a script; nothing else may be under way. Raises `StoreError`."""
        prepared = self.prepare(call)
        (reply,) = self.all(prepared.command(self.until()))
        if is_unknown(reply):
            (reply,) = self.all(prepared.command(self.until(), known=False))
        return self._read(call, prepared, reply)

    def each(self, calls: Sequence[Call[R]]) -> list[R]:
        """Run scripts, all of one kind, at once; nothing else may be under way. Raises `StoreError`."""
        if not calls:
            return []
        prepared = [self.prepare(call) for call in calls]
        replies = self.all(*(each.command(self.until()) for each in prepared))
        if any(map(is_unknown, replies)):
            self.call(calls[0])  # the server knows the script then
            replies = self.all(*(each.command(self.until()) for each in prepared))
        return [
            self._read(call, made, reply) for call, made, reply in zip(calls, prepared, replies, strict=True)
        ]

    def prepare(self, call: Call[Any]) -> Prepared:
        """The call for whoever sends it ahead; `reply_to` is what came of it. The first one for a topic asks
        for its journal, and then nothing else may be under way."""
        return self._scripts.prepare(call, self.keep)

    def until(self) -> int:
        """The instant after which Redis refuses a script that is sent now (microseconds, by its own clock).
        It asks Redis for its time, if that was too long ago and no reply is waited for. Raises
        `StoreError`."""
        with translated_errors():
            self._connection.connect()  # if it isn't; the new one may lead to another server
        asked = monotonic()
        if self._clock.is_old(asked) and not self.waiting:
            self._clock.heard(told_by(self.ask("TIME")), asked, monotonic())
        self._given_up_at = monotonic() + WRITE_TTL
        return self._clock.at(self._given_up_at)

    def _read(self, call: Call[R], prepared: Prepared, reply: Any) -> R:
        answer = self.reply_to(prepared, reply)
        read: R = answer if call.read is None else call.read(answer)
        return read

    def reply_to(self, prepared: Prepared, reply: Any) -> Any:
        """The script's own reply; raises `StoreError` where it is a refusal."""
        answer = checked(reply)
        if prepared.last:
            answer, _trimmed = answer
        return reply_of(answer, self.on_refused_hint) if prepared.script.journaled else answer

    def keep(self, topic: str) -> int:
        """How many changes the topic's journal keeps; 0 if it has none. Raises `InvalidField` for a topic of
        several partitions."""
        if topic not in self._kept:
            self.require_one_partition(topic)
            there = self.ask("TYPE", self.keys.key("journal", topic)) == b"stream"
            self._kept[topic] = self._journals.keep(topic) or (KEEP_ALL if there else 0)
        return self._kept[topic]

    def require_one_partition(self, topic: str) -> None:
        """Raises `InvalidField` for a topic of several partitions, and `StoreError`."""
        if self.ask("TYPE", self.keys.key("layout", topic)) == b"string":
            raise InvalidField("topic", NO_PARTITIONS.format(topic))

    def _greet(self, connection: AbstractConnection) -> None:
        asked, self._clock = monotonic(), ServerClock()
        self._clock.heard(_greet(connection), asked, monotonic())

    # ----------------------------------------------------------------- commands

    def send(self, *commands: Sequence[Argument]) -> None:
        """Send commands."""
        with self._lost():
            self._connection.send_packed_command([_pack(command) for command in commands], check_health=False)
        self.waiting += len(commands)

    def send_packed(self, data: bytes, replies: int) -> None:
        """Send packed commands, which will have `replies` replies."""
        with self._lost():
            self._connection.send_packed_command([data], check_health=False)
        self.waiting += replies

    def receive(self, count: int) -> list[Any]:
        """Read the next replies. Raises `StoreUnavailable`."""
        return [self._receive() for _ in range(count)]

    def _receive(self) -> Any:
        with self._lost():
            try:
                reply = self._connection.read_response(disable_decoding=True)
            except ResponseError as refusal:
                reply = refusal
        self.waiting -= 1
        return reply

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """Raise what goes wrong with the connection within the block once nothing that was sent can act any
        more. Raises `StoreUnavailable`."""
        with translated_errors():
            try:
                yield
            except (RedisError, OSError):
                time.sleep(max(self._given_up_at - monotonic(), 0.0))
                raise

    def all(self, *commands: Sequence[Argument]) -> list[Any]:
        """Send commands and read their replies, refusals among them. Nothing else may be under way; otherwise
        it raises `RuntimeError`."""
        if self.waiting:
            raise RuntimeError(f"{self.waiting} replies are under way")
        self.send(*commands)
        return self.receive(len(commands))

    def ask(self, *command: Argument) -> Any:
        """Send one command and read its reply. Raises a refusal. Nothing else may be under way."""
        (reply,) = self.all(command)
        return checked(reply)

    def close(self) -> None:
        """Leave; what is under way is not waited for."""
        self.waiting = 0
        self._connection.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checked(reply: Any) -> Any:
    """The reply; raises `StoreError` if it is, or holds, a refusal."""
    for each in reply if isinstance(reply, list) else [reply]:
        if isinstance(each, RedisError):
            with translated_errors():
                raise each
    return reply


def is_unknown(reply: Any) -> bool:
    """Whether the server does not know the script by its digest."""
    return isinstance(reply, NoScriptError)


def as_arguments(*arguments: Argument) -> bytes:
    """Arguments as they go over the wire, without the number of them that stands before a command."""
    return _pack(arguments).partition(b"\r\n")[2]


def _pack(command: Sequence[Argument]) -> bytes:
    pack: Any = hiredis.pack_command  # typed for a single argument
    try:
        packed: bytes = pack(tuple(command))
    except UnicodeEncodeError:  # an id that is not UTF-8
        packed = pack(tuple(encoded(part) if isinstance(part, str) else part for part in command))
    return packed


def encoded(text: str) -> bytes:
    """A text as Redis gets it; what came from there and was no UTF-8 is its bytes again."""
    return text.encode(errors="surrogateescape")


def _greet(connection: AbstractConnection) -> int:
    """As `relay.store.server.pool.greet`: log in, give it a name, go on only if the server is a master;
    return its time."""
    connection.on_connect()
    connection.send_command("CLIENT", "SETNAME", NAME, check_health=False)
    connection.send_command("INFO", "replication", check_health=False)
    connection.send_command("TIME", check_health=False)
    with suppress(ResponseError):  # the name is for people; a user may do without the permission
        connection.read_response()
    if role_of(connection.read_response(disable_decoding=True)) not in ("", "master"):
        raise NotMaster("the server is a replica; Relay needs the master")
    return told_by(connection.read_response(disable_decoding=True))


class _Sentinels:
    """As `relay.store.server.sentinel.Sentinels`, for one connection."""

    def __init__(self, addresses: Sequence[Address], master: str, options: Mapping[str, Any]) -> None:
        self._addresses = addresses
        self._master = master
        timeouts = {"socket_timeout": SENTINEL_TIMEOUT, "socket_connect_timeout": SENTINEL_TIMEOUT}
        self._options = {**options, **timeouts}

    def master(self) -> Address:
        """The master's address; raises redis-py's `ConnectionError`."""
        reasons = []
        for host, port in self._addresses:
            try:
                reply = self._ask(host, port)
            except (RedisError, OSError) as failure:
                reasons.append(f"{host}:{port}: {words(failure)}")
                continue
            if reply:
                return reply[0].decode(), int(reply[1])
            reasons.append(f"{host}:{port}: knows no such master")
        raise RedisConnectionError(
            f"no Sentinel tells where the master {self._master!r} is ({'; '.join(reasons)})"
        )

    def _ask(self, host: str, port: int) -> Any:
        options = dict(self._options)
        connection = options.pop("connection_class")(**options, host=host, port=port)
        try:
            connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)
            return connection.read_response(disable_decoding=True)
        finally:
            connection.disconnect()


class _Master(Connection):
    """A connection that goes wherever the Sentinels say."""

    def __init__(self, *, sentinels: _Sentinels, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._sentinels = sentinels

    def _connect(self) -> Any:
        self.host, self.port = self._sentinels.master()
        return super()._connect()  # type: ignore[no-untyped-call]


class _MasterTls(_Master, SSLConnection):
    """The same over TLS."""


BLOCKING = Kinds(
    Connection, SSLConnection, UnixDomainSocketConnection, _Master, _MasterTls, _Sentinels, Retry
)
