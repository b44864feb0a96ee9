"""Connections to a master, and never to a replica: how each begins, when it is made again, and how a command
goes over it."""

from __future__ import annotations

import asyncio
import math
import re
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import hiredis
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.core.errors import GivenUp, OpenOutcome
from relay.core.instants import SECOND
from relay.store.server.errors import NotMaster, words
from relay.store.server.server_clock import ServerClock

if TYPE_CHECKING:
    from relay.store.server.group_commit import DurableCalls

NAME = "relay"
"""What CLIENT LIST shows."""

GRACE = 0.1
"""Seconds beyond its deadline for which a call's answer is waited for: the server may have given it just in
time."""

AT_ONCE = 100
"""The answers that have one alarm where many are read."""

NO_ANSWER = "no answer before the call's time was over"
TOO_LATE = "the caller's time was over before the call could be sent"

ANSWERS = (ResponseError, AuthenticationError, BusyLoadingError)
"""What the server has said; redis-py takes the last two for a connection that is lost."""

_ROLE = re.compile(rb"^role:(\w+)", re.MULTILINE)


async def greet(connection: AbstractConnection) -> int:
    """Begin a connection: log in, give it a name, and go on only if the server is a master. Return the time
    by its clock, in microseconds.

    A replica answers pings, reads and subscriptions, but what it answers may be old, and a hint
    never reaches it in time. Raises `NotMaster`.
    """
    await connection.on_connect()
    await connection.send_command("CLIENT", "SETNAME", NAME, check_health=False)
    await connection.send_command("INFO", "replication", check_health=False)
    await connection.send_command("TIME", check_health=False)
    with suppress(ResponseError):  # the name is for people; a user may do without the permission
        await connection.read_response()
    if role_of(await connection.read_response()) not in ("", "master"):
        raise NotMaster("the server is a replica; Relay needs the master")
    return told_by(await connection.read_response())


def told_by(reply: Sequence[bytes]) -> int:
    """The instant in a reply to TIME, in microseconds since 1970."""
    seconds, micros = reply
    return int(seconds) * SECOND + int(micros)


def role_of(told: bytes) -> str:
    """Return the role in INFO; empty if it has none."""
    role = _ROLE.search(told)
    return role[1].decode() if role else ""


def pack(slowly: Callable[..., list[bytes]], *args: Any) -> list[bytes]:
    """A command in Redis' protocol.

    `slowly` is how redis-py does it, in Python: a settle call of a hundred timers then takes six times
    as long, and packing a tenth of the relay's time. It also knows names that are not UTF-8.
    """
    if args[0] == "EVALSHA":
        with suppress(UnicodeEncodeError):
            return [hiredis.pack_command(args)]
    return slowly(*args)


class MasterPool(ConnectionPool):  # see 0018
    """At most `max_connections` connections. A call that finds none free waits its turn, for at most
    `timeout` seconds.

    A master that is made a replica may keep its connections, and takes writes until then. So code that
    learns of another master calls `renew`.

    redis-py's own pool that waits takes two locks and counts for its metrics whenever a connection comes or
    goes, which was a quarter of what a script call cost the relay.
    """

    def __init__(
        self,
        *,
        max_connections: int,
        timeout: float,
        stepped_back: Callable[[], None],
        look: Callable[[AbstractConnection], Awaitable[None]] | None = None,
        **options: Any,
    ) -> None:
        """`stepped_back` is called when a server's clock has stepped back; `look` with each new connection,
        and raises if the server won't do."""
        super().__init__(redis_connect_func=self._greet, max_connections=max_connections, **options)
        self._free = asyncio.Semaphore(max_connections)
        self._users = 0
        self._timeout = timeout
        self._made: weakref.WeakSet[AbstractConnection] = weakref.WeakSet()
        self._outdated: weakref.WeakSet[AbstractConnection] = weakref.WeakSet()
        self._lines: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        self._clocks: weakref.WeakKeyDictionary[AbstractConnection, ServerClock] = weakref.WeakKeyDictionary()
        self._stepped_back = stepped_back
        self._look = look

    def renew(self) -> None:
        """Make every call that begins from now on use a new connection."""
        self._outdated.update(self._made)

    def make_connection(self) -> AbstractConnection:
        """As in redis-py."""
        connection: AbstractConnection = super().make_connection()  # type: ignore[no-untyped-call]
        connection.pack_command = partial(pack, connection.pack_command)  # type: ignore[method-assign]
        self._made.add(connection)
        return connection

    async def _greet(self, connection: AbstractConnection) -> None:
        """A new connection may be one to another server, whose clock nobody knows yet."""
        writer: Any = connection._writer  # noqa: SLF001  (there is no other way to know)
        self._lines.add(writer.transport)
        asked, clock = monotonic(), ServerClock()
        clock.heard(await greet(connection), asked, monotonic())
        self._clocks[connection] = clock
        if self._look is not None:
            await self._look(connection)

    async def clock(self, connection: AbstractConnection) -> ServerClock:
        """What is known of the clock of the connection's server. It asks the server if that is too long
        ago."""
        clock, asked = self._clocks[connection], monotonic()
        if clock.is_old(asked):
            await connection.send_command("TIME", check_health=False)
            if clock.heard(told_by(await connection.read_response()), asked, monotonic()):
                self._stepped_back()
        return clock

    def forget_clocks(self) -> None:
        """Have each connection ask for the server's time before it is used again."""
        for clock in self._clocks.values():
            clock.forget()

    @property
    def is_busy(self) -> bool:
        """Whether somebody has a connection, or waits for one."""
        return self._users > 0

    async def get_connection(self, *_: Any, **__: Any) -> AbstractConnection:
        """As in redis-py: one that is ready for a command, until `release`."""
        self._users += 1
        try:
            await self._place()
            try:
                connection: AbstractConnection = self.get_available_connection()  # type: ignore[no-untyped-call]
            except BaseException:
                self._free.release()
                raise
        except BaseException:
            self._users -= 1
            raise
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def _place(self) -> None:
        if not self._free.locked():
            await self._free.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError:
            raise RedisConnectionError(f"no connection became free within {self._timeout:g} s") from None

    async def release(self, connection: AbstractConnection) -> None:
        """As in redis-py: the next one may have it."""
        self._in_use_connections.remove(connection)
        self._available_connections.append(connection)
        self._users -= 1
        self._free.release()

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """As in redis-py: called with each connection that is handed out.

        redis-py finds out that a server has closed an idle one, but not that the line was reset.
        """
        writer = connection._writer  # noqa: SLF001  (there is no other way to know)
        lost = writer is not None and writer.is_closing()
        if lost or connection in self._outdated:
            self._outdated.discard(connection)
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """As in redis-py, and no line outlives it.

        After an error, such as a password that the server refuses, redis-py closes without waiting. A line by
        TLS then stays open until the server has closed its side, for up to 30 s, and the loop may end first.
        """
        await super().disconnect(inuse_connections)
        for line in list(self._lines):
            if line.is_closing():
                line.abort()


class Client(Redis):  # see 0065
    """redis-py's, with a shorter way for a command.

    Its own asks a policy about retries, of which there are none here, counts for metrics that nobody reads,
    and before Python 3.12 has a task write the command (`asyncio.wait_for`), a turn of the loop later.
    """

    durable: DurableCalls
    """The calls to this place that wait for more than the server's OK; they have connections of their own."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        pool: MasterPool = self.connection_pool  # type: ignore[assignment]
        return pool.is_busy or self.durable.is_busy

    def renew(self) -> None:
        """Make every call that begins from now on use a new connection."""
        pool: MasterPool = self.connection_pool  # type: ignore[assignment]
        pool.renew()
        self.durable.renew()

    def forget_clocks(self) -> None:
        """See `MasterPool.forget_clocks`."""
        pool: MasterPool = self.connection_pool  # type: ignore[assignment]
        pool.forget_clocks()
        self.durable.forget_clocks()

    async def close_all(self) -> None:
        """Close all connections."""
        await self.durable.aclose()
        await self.aclose()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """As in redis-py."""
        if self.single_connection_client:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        pool = self.connection_pool
        connection = await pool.get_connection()
        try:
            write(connection, args)
            return await self.parse_response(connection, args[0], **options)
        finally:
            await pool.release(connection)

    async def read_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Commands that only read, sent at once. What the server refuses of one is an exception in its place.

        redis-py's pipeline sets an alarm for each answer, which took a quarter of a look at 500 topics; here
        it is one for `AT_ONCE` of them. Raises `RedisTimeoutError`.
        """
        connection = await self.connection_pool.get_connection()
        replies: list[Any] = []
        try:
            write(connection, *commands)
            while len(replies) < len(commands):
                async with asyncio.timeout(connection.socket_timeout):
                    replies += [await _reply(connection) for _ in commands[len(replies) :][:AT_ONCE]]
        except TimeoutError:
            raise RedisTimeoutError(f"no answer within {connection.socket_timeout:g} s") from None
        finally:
            await self.connection_pool.release(connection)
        return replies

    async def change(
        self, command: Callable[[Callable[[float], int]], Sequence[Any]], deadline: float
    ) -> Any:
        """Send what changes something, until `deadline` (monotonic seconds). `command` makes it, given what
        tells the time of the server at a monotonic instant (microseconds, by its own clock).

        Raises `GivenUp` if it is too late to send it. Raises `OpenOutcome` once the server would refuse it,
        and no earlier: whoever sees it may try again.
        """
        pool: MasterPool = self.connection_pool  # type: ignore[assignment]
        connection = await pool.get_connection()
        try:
            clock = await pool.clock(connection)
            sent = monotonic()
            left = deadline - sent
            if left <= 0:
                raise GivenUp(TOO_LATE)
            write(connection, command(clock.at))
            try:
                async with asyncio.timeout(left + GRACE):
                    return await connection.read_response(timeout=math.inf)
            except ANSWERS as refusal:
                if str(refusal).startswith("GIVENUP"):
                    clock.forget()  # the machine may have slept, and its monotonic clock with it
                raise
            except (RedisError, OSError) as failure:
                lost = RedisTimeoutError(NO_ANSWER) if isinstance(failure, TimeoutError) else failure
                since, until = clock.at(sent), clock.at(deadline)
        finally:
            await pool.release(connection)
        await asyncio.sleep(deadline - monotonic())
        raise OpenOutcome(words(lost), since=since, until=until) from lost


async def _reply(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(timeout=math.inf)
    except ResponseError as refusal:
        return refusal


def write(connection: AbstractConnection, *commands: Sequence[Any]) -> None:
    """Send commands, all at once. What the kernel does not take at once lies with asyncio, since nobody waits
    until it is written, but for the answer. `write` says nothing of a line that is lost, and reading does;
    `writelines` of Python 3.12 fails in ways of its own."""
    writer: Any = connection._writer  # noqa: SLF001  (it has no other way in)
    writer.write(b"".join(part for command in commands for part in connection.pack_command(*command)))
