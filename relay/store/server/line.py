"""One connection to a server that blocks: commands are sent ahead of their replies."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, TypeVar

import hiredis
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from relay.core.endpoints.redis_url import Address
from relay.core.errors import UnfitServer
from relay.store.server.connect import Kinds
from relay.store.server.errors import NotMaster, words
from relay.store.server.pool import ANSWERS, role_of, told_by
from relay.store.server.scripts import Argument
from relay.store.server.sentinel import SENTINEL_TIMEOUT
from relay.store.server.server_clock import ServerClock

NAME = "relay-pipeline"
"""What CLIENT LIST shows."""

WRITE_TTL = 10.0
"""Seconds after which Redis refuses what was sent to change something: a script call of a loader may stand
behind `AHEAD` others."""

IDLE = 1.0
"""Seconds without a use after which a line is looked at before the next: its server may have closed it."""

R = TypeVar("R")


class Line:
    """A connection to a master, made when it is first needed. `options` are those of `options_of`.

    What Redis refuses is an exception among the replies. A connection that is lost raises redis-py's errors,
    and what was sent and not answered may have happened.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        rest = dict(options)
        made = rest.pop("connection_class")
        self._connection: AbstractConnection = made(redis_connect_func=self._greet, **rest)
        self._clock = ServerClock()
        self.told: set[str] = set()
        """The digests of the scripts whose text was sent."""
        self.waiting = 0
        """Replies that were not received yet."""
        self.given_up_at = -math.inf
        """When the last script that is under way is given up (monotonic seconds)."""
        self.made = 0
        """How often the connection was made."""
        self._used_at = -math.inf

    def connect(self) -> None:
        """Connect, if it isn't, or if the server has closed the line while nobody used it: what is sent then
        would be lost. Raises `NotMaster`, too."""
        now = monotonic()
        if not self.waiting and now > self._used_at + IDLE and self._is_closed():
            self._connection.disconnect()
        self._connection.connect()
        self._used_at = now

    def _is_closed(self) -> bool:
        try:
            return self._connection.is_connected and self._connection.can_read(timeout=0)
        except (RedisError, OSError):
            return True

    def until(self) -> int:
        """The instant after which Redis refuses a script that is sent now (microseconds, by its own clock).
        It asks Redis for its time, if that was too long ago and no reply is waited for."""
        self.connect()  # the new one may lead to another server
        asked = monotonic()
        if self._clock.is_old(asked) and not self.waiting:
            (told,) = self.replies(packed(("TIME",)), 1)
            if isinstance(told, RedisError):
                raise told
            self._clock.heard(told_by(told), asked, monotonic())
        self.given_up_at = monotonic() + WRITE_TTL
        return self._clock.at(self.given_up_at)

    def send(self, data: bytes, count: int) -> None:
        """Send packed commands, which will have `count` replies."""
        self.connect()
        self.waiting += count
        self._connection.send_packed_command([data], check_health=False)

    def receive(self) -> Any:
        """Read the next reply."""
        try:
            reply = self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
        except ANSWERS as refusal:
            reply = refusal
        except BaseException:
            self._connection.disconnect()
            raise
        self.waiting -= 1
        if not self.waiting:
            self.given_up_at = -math.inf
        return reply

    def replies(self, data: bytes, count: int) -> list[Any]:
        """Send packed commands and read their replies. Nothing else may be under way."""
        self.send(data, count)
        return [self.receive() for _ in range(count)]

    def close(self) -> None:
        """Leave; what is under way is not waited for."""
        self.waiting = 0
        self._connection.disconnect()

    def _greet(self, connection: AbstractConnection) -> None:
        self.made += 1
        asked, self._clock = monotonic(), ServerClock()
        self._clock.heard(_greet(connection), asked, monotonic())
        self.waiting = 0  # what was lost with the connection before does not come
        self.told.clear()


class Exchange(NamedTuple):
    """A line on which nothing is under way, for one call. `asking`: the node takes the call though its slot
    is still coming to it."""

    line: Line
    asking: bool = False

    def until(self) -> int:
        """See `Line.until`. Ask for it before `replies`: nothing may come between ASKING and the call."""
        return self.line.until()

    def replies(self, data: bytes, count: int) -> list[Any]:
        """Send packed commands and read their replies. A transaction needs no more than one ASKING, any other
        command has its own."""
        if not self.asking:
            return self.line.replies(data, count)
        said, *replies = self.line.replies(ASKING + data, 1 + count)
        return [said] * count if isinstance(said, RedisError) else replies


class OneServer:
    """The line to a server that has everything."""

    is_sharded = False

    def __init__(self, line: Line, *, hash_tags: bool) -> None:
        self.lines = [line]
        self._hash_tags = hash_tags
        self._is_checked = False

    def known(self) -> None:
        """Ask once whether the server is one of several nodes. Raises `UnfitServer` if so: what is at another
        node would look as if it did not exist."""
        if not self._is_checked and self._is_one_of_several():
            from relay.store.server.fitness import NEEDS_CLUSTER  # which loads what a daemon needs

            raise UnfitServer(f"the server is {NEEDS_CLUSTER}")
        self._is_checked = True

    def _is_one_of_several(self) -> bool:
        """As `relay.store.server.fitness.is_one_of_several`."""
        (line,) = self.lines
        (about,) = line.replies(packed(("INFO", "cluster")), 1)
        if isinstance(about, RedisError) or b"cluster_enabled:1" not in about:
            return False
        if not self._hash_tags:
            return True
        (cluster,) = line.replies(packed(("CLUSTER", "INFO")), 1)
        return isinstance(cluster, RedisError) or b"cluster_size:1\r" not in cluster

    def line(self, keys: Sequence[Argument]) -> Line:
        """The line, connected."""
        self.known()
        (line,) = self.lines
        line.connect()
        return line

    def lead(self, keys: Sequence[Argument], attempt: Callable[[Exchange], R]) -> R:
        """Let `attempt` talk to the server."""
        return attempt(Exchange(self.line(keys)))

    def doubt(self, line: Line) -> None:
        """See `BlockingNodes.doubt`. There is nowhere else to look."""


def asked(options: Mapping[str, Any], at: Address, *commands: Sequence[str]) -> list[Any]:
    """The replies of any server to commands, over a connection that is made for them. Raises what is
    refused, and redis-py's `ConnectionError`."""
    rest = dict(options)
    connection = rest.pop("connection_class")(**rest, host=at[0], port=at[1])
    try:
        for command in commands:
            connection.send_command(*command)
        return [connection.read_response(disable_decoding=True) for _ in commands]
    finally:
        connection.disconnect()


# ------------------------------------------------------------------------- what goes over the wire


def packed(command: Sequence[Argument]) -> bytes:
    """A command in Redis' protocol."""
    pack: Any = hiredis.pack_command  # typed for a single argument
    try:
        data: bytes = pack(tuple(command))
    except UnicodeEncodeError:  # an id that is not UTF-8
        data = pack(tuple(encoded(part) if isinstance(part, str) else part for part in command))
    return data


def encoded(text: str) -> bytes:
    """A text as Redis gets it; what came from there and was no UTF-8 is its bytes again."""
    return text.encode(errors="surrogateescape")


ASKING = packed(("ASKING",))


# ----------------------------------------------------------------------------- how a line begins


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
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)
        for host, port in self._addresses:
            try:
                (reply,) = asked(self._options, (host, port), question)
            except (RedisError, OSError) as failure:
                reasons.append(f"{host}:{port}: {words(failure)}")
                continue
            if reply:
                return reply[0].decode(), int(reply[1])
            reasons.append(f"{host}:{port}: knows no such master")
        raise RedisConnectionError(
            f"no Sentinel tells where the master {self._master!r} is ({'; '.join(reasons)})"
        )


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
