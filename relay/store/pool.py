"""Connections to a master, and never to a replica: how each begins, and when it is made anew."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import hiredis
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ResponseError

from relay.store.errors import NotMaster

NAME = "relay"
"""What CLIENT LIST shows."""

_ROLE = re.compile(rb"^role:(\w+)", re.MULTILINE)


async def greet(connection: AbstractConnection) -> None:
    """Begin a connection: log in, give it a name, and go on only if the server is a master.

    A replica answers pings, reads and subscriptions, but what it answers may be old, and a hint
    never reaches it in time. Raises `NotMaster`.
    """
    await connection.on_connect()
    await connection.send_command("CLIENT", "SETNAME", NAME, check_health=False)
    await connection.send_command("INFO", "replication", check_health=False)
    with suppress(ResponseError):  # the name is for people; a user may do without the permission
        await connection.read_response()
    if role_of(await connection.read_response()) not in ("", "master"):
        raise NotMaster("the server is a replica; Relay needs the master")


def role_of(told: bytes) -> str:
    """The role that INFO tells; empty if it tells none."""
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


class MasterPool(BlockingConnectionPool):
    """At most `max_connections`; who finds none free waits.

    A master that is made a replica may keep its connections, and take writes until it is. So
    whoever learns that the master is another one calls `renew`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(redis_connect_func=greet, **options)
        self._made: weakref.WeakSet[AbstractConnection] = weakref.WeakSet()
        self._outdated: weakref.WeakSet[AbstractConnection] = weakref.WeakSet()

    def renew(self) -> None:
        """No call that begins from now on uses a connection of before, idle or in use."""
        self._outdated.update(self._made)

    def make_connection(self) -> AbstractConnection:
        """As in redis-py."""
        connection: AbstractConnection = super().make_connection()  # type: ignore[no-untyped-call]
        connection.pack_command = partial(pack, connection.pack_command)  # type: ignore[method-assign]
        self._made.add(connection)
        return connection

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """As in redis-py: called with each connection that is handed out."""
        if connection in self._outdated:
            self._outdated.discard(connection)
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)
