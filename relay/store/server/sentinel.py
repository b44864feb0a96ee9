"""Sentinel: where the master is, which is asked again for every connection that is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from relay.core.endpoints.redis_url import Address
from relay.store.server.errors import words

SENTINEL_TIMEOUT = 1.0
"""Seconds for one Sentinel to connect, and again to answer; then the next one is asked."""


class Sentinels:  # see 0019
    """Those that watch one master. `options` are redis-py's for a connection to any of them."""

    def __init__(self, addresses: Sequence[Address], master: str, options: Mapping[str, Any]) -> None:
        self._addresses = list(addresses)
        self._master = master
        timeouts = {"socket_timeout": SENTINEL_TIMEOUT, "socket_connect_timeout": SENTINEL_TIMEOUT}
        self._options = {**options, **timeouts}
        self.told: Address | None = None
        """Their last answer."""
        self.moved: Callable[[], None] = lambda: None
        """Called when they name another master than before."""

    async def master(self) -> Address:
        """The master's address, by the first Sentinel that knows it; that one is asked first from then on.

        Raises redis-py's `ConnectionError` (`RedisConnectionError` here). A Sentinel that is behind may name
        an earlier master, so each new connection asks the server for its role.
        """
        reasons = []
        for address in tuple(self._addresses):
            try:
                found = await self._ask(address)
            except (RedisError, OSError) as failure:
                reasons.append(f"{address[0]}:{address[1]}: {words(failure)}")
                continue
            if found is None:
                reasons.append(f"{address[0]}:{address[1]}: knows no such master")
                continue
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            before, self.told = self.told, found
            if before not in (None, found):
                self.moved()
            return found
        raise RedisConnectionError(
            f"no Sentinel tells where the master {self._master!r} is ({'; '.join(reasons)})"
        )

    async def _ask(self, address: Address) -> Address | None:
        # A connection for each question: there is one only when a master is looked for.
        host, port = address
        pool: ConnectionPool = ConnectionPool(**self._options, host=host, port=port)
        async with Redis.from_pool(pool) as sentinel:
            reply = await sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._master)
        return (reply[0].decode(), int(reply[1])) if reply else None


class MasterConnection(Connection):
    """A connection that goes wherever the Sentinels say, each time that it is made."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        super().__init__(**options)
        self._sentinels = sentinels

    async def _connect(self) -> None:
        self.host, self.port = await self._sentinels.master()
        await super()._connect()  # type: ignore[no-untyped-call]


class MasterTlsConnection(MasterConnection, SSLConnection):
    """The same over TLS; the master's certificate has to be for the address that the Sentinels tell."""
