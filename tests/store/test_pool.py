"""A relay's connections: who waits for one, what breaks one, and that none is missing afterwards."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from relay.store.server.connect import open_client
from relay.store.server.pool import AT_ONCE, Client, MasterPool
from tests.keyspace import Keyspace
from tests.servers import RunningServer
from tests.store.fake import Line


@asynccontextmanager
async def connected(url: str, *, connections: int, timeout: float = 20.0) -> AsyncIterator[Redis]:
    redis = open_client(url, connections=connections, timeout=timeout)
    try:
        yield redis
    finally:
        await redis.aclose()


async def until_blocked(valkey: RunningServer, clients: int) -> None:
    with valkey.client() as client, anyio.fail_after(60):
        while client.info("clients")["blocked_clients"] != clients:
            await checkpoint()


async def until_lost(connection: AbstractConnection) -> None:
    """As asyncio knows it, while the connection itself does not."""
    writer = connection._writer
    assert writer is not None
    with anyio.fail_after(60):
        while not writer.is_closing():
            await checkpoint()


async def test_who_waits_gets_a_connection_in_turn(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Nobody overtakes, not even the one who had the connection last and asks again at once."""
    answers: list[bytes] = []
    key = keyspace.topic()

    async def first(redis: Redis) -> None:
        await redis.execute_command("BLPOP", key, 0)
        answers.append(await redis.execute_command("ECHO", "first again"))

    async def then(redis: Redis, said: str) -> None:
        answers.append(await redis.execute_command("ECHO", said))

    async with connected(valkey.url, connections=1) as redis, anyio.create_task_group() as group:
        group.start_soon(first, redis)
        await until_blocked(valkey, 1)
        for n in range(3):
            group.start_soon(then, redis, f"waited {n}")
        await anyio.wait_all_tasks_blocked()
        assert answers == []
        with valkey.client() as client:
            client.rpush(key, "go")
    assert answers == [b"waited 0", b"waited 1", b"waited 2", b"first again"]


async def test_no_connection_becomes_free(valkey: RunningServer) -> None:
    """Who waited too long is told for how long; it takes nothing with it."""
    async with connected(valkey.url, connections=1) as redis:
        pool = redis.connection_pool
        assert isinstance(pool, MasterPool)
        held = await pool.get_connection()
        pool._timeout = 0.05
        for _ in range(3):
            with pytest.raises(RedisConnectionError, match=r"no connection became free within 0\.05 s"):
                await redis.ping()
        await pool.release(held)
    async with connected(valkey.url, connections=1) as redis:
        assert await redis.ping()


@pytest.mark.parametrize("granted", [False, True], ids=["in-the-queue", "as-its-turn-comes"])
async def test_who_waits_gives_up(valkey: RunningServer, granted: bool) -> None:
    """Cancelled, even in the moment between the grant and the next turn of the loop, it keeps no place."""
    async with connected(valkey.url, connections=1) as redis:
        pool = redis.connection_pool
        held = await pool.get_connection()
        async with anyio.create_task_group() as group:
            group.start_soon(redis.execute_command, "PING")
            await anyio.wait_all_tasks_blocked()
            if granted:
                await pool.release(held)
            group.cancel_scope.cancel()
        if not granted:
            await pool.release(held)
        with anyio.fail_after(60):
            assert await redis.ping()


async def test_nobody_listens() -> None:
    """Each call says so, however many there were: none of them keeps a place."""
    with socket.socket() as closed:  # bound, and not listening: nobody else gets the port
        closed.bind(("127.0.0.1", 0))
        url = f"redis://127.0.0.1:{closed.getsockname()[1]}/0"
        async with connected(url, connections=2) as redis:
            for _ in range(5):
                with pytest.raises(RedisConnectionError, match=r"refused|Connect call failed"):
                    await redis.ping()


async def test_no_connection_can_be_made(valkey: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What redis-py raises then comes each time, and later calls go through."""
    async with connected(valkey.url, connections=1) as redis:
        with monkeypatch.context() as patch:

            def broken() -> None:
                raise OSError("no file descriptor is left")

            patch.setattr(redis.connection_pool, "make_connection", broken)
            for _ in range(3):
                with pytest.raises(OSError, match="no file descriptor"):
                    await redis.ping()
        assert await redis.ping()


async def test_a_call_is_cancelled(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Nobody else reads the answer that was meant for it."""
    key = keyspace.topic()
    async with connected(valkey.url, connections=1) as redis:
        async with anyio.create_task_group() as group:
            group.start_soon(redis.execute_command, "BLPOP", key, 0)
            await until_blocked(valkey, 1)
            group.cancel_scope.cancel()
        await until_blocked(valkey, 0)
        with anyio.fail_after(60):
            assert await redis.execute_command("ECHO", "mine") == b"mine"


async def test_a_refusal_breaks_nothing(valkey: RunningServer) -> None:
    """The connection goes on."""
    async with connected(valkey.url, connections=1) as redis:
        before = await redis.client_id()
        with pytest.raises(ResponseError, match="unknown command"):
            await redis.execute_command("NONSENSE")
        assert await redis.client_id() == before


async def test_the_server_hangs_up_on_an_idle_connection(valkey: RunningServer) -> None:
    """The next call makes another one, and fails for nobody."""
    async with connected(valkey.url, connections=1) as redis:
        before = await redis.client_id()
        (idle,) = redis.connection_pool._available_connections
        with valkey.client() as client:
            client.client_kill_filter(_id=str(before))
        with anyio.fail_after(60):
            while not await idle.can_read():  # the end, as asyncio hears of it
                await checkpoint()
        assert await redis.client_id() != before


async def test_idle_connections_are_reset(valkey: RunningServer) -> None:
    """The next calls make others, and fail for nobody: asyncio knows, and redis-py doesn't ask."""
    line = Line(valkey.port)
    async with line.open() as url, connected(url, connections=2) as redis:
        pool = redis.connection_pool
        idle = [await pool.get_connection() for _ in range(2)]
        for connection in idle:
            await pool.release(connection)
        line.reset()
        for connection in idle:
            await until_lost(connection)
        for _ in range(4):
            assert await redis.ping()


async def test_a_connection_is_reset_under_a_call(valkey: RunningServer, keyspace: Keyspace) -> None:
    """Whoever waits for an answer hears of it, and the next call makes another connection."""
    line = Line(valkey.port)
    async with line.open() as url, connected(url, connections=1) as redis:

        async def wait() -> None:
            with pytest.raises(RedisConnectionError):
                await redis.execute_command("BLPOP", keyspace.topic(), 0)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await until_blocked(valkey, 1)
            line.reset()
        assert await redis.ping()


async def test_a_connection_is_lost_as_a_command_is_about_to_go(
    valkey: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the connection and the command: the call fails as any whose connection breaks."""
    line = Line(valkey.port)
    async with line.open() as url, connected(url, connections=1) as redis:
        assert await redis.ping()
        pool = redis.connection_pool
        ensured = pool.ensure_connection

        async def unlucky(connection: AbstractConnection) -> None:
            await ensured(connection)
            line.reset()
            await until_lost(connection)

        with monkeypatch.context() as patch:
            patch.setattr(pool, "ensure_connection", unlucky)
            for _ in range(3):
                with pytest.raises(RedisConnectionError):
                    await redis.ping()
        assert await redis.ping()


async def test_a_first_command_is_cancelled_as_its_connection_begins(valkey: RunningServer) -> None:
    """The server says nothing to its greeting: who gives up leaves his place to the next one."""
    line = Line(valkey.port)
    line.deaf = True
    async with line.open() as url, connected(url, connections=1) as redis:
        for _ in range(3):
            async with anyio.create_task_group() as group:
                group.start_soon(redis.execute_command, "PING")
                with anyio.fail_after(60):
                    while not line.sent:
                        await checkpoint()
                group.cancel_scope.cancel()
            line.sent = b""
        line.deaf = False
        with anyio.fail_after(60):
            assert await redis.ping()


async def test_a_server_that_no_longer_reads(valkey: RunningServer) -> None:
    """A command that it never takes is over in time, and the next one gets a connection of its own."""
    line = Line(valkey.port)
    async with line.open() as url, connected(url, connections=1) as redis:
        before = await redis.client_id()
        (connection,) = redis.connection_pool._available_connections
        connection.socket_timeout, patience = 0.5, connection.socket_timeout
        line.deaf = True
        with anyio.fail_after(60), pytest.raises(RedisTimeoutError):
            await redis.execute_command("ECHO", bytes(32 << 20))
        line.deaf = False
        connection.socket_timeout = patience
        assert await redis.client_id() != before


async def test_a_client_with_a_connection_of_its_own(valkey: RunningServer) -> None:
    """What it does to that connection, it does to no other."""
    async with connected(valkey.url, connections=2) as redis, redis.client() as own:
        await own.execute_command("SELECT", 5)
        assert b" db=5 " in await own.execute_command("CLIENT", "INFO")
        for _ in range(2):
            assert b" db=0 " in await redis.execute_command("CLIENT", "INFO")


async def test_a_pool_is_busy_between_two_users(valkey: RunningServer) -> None:
    """Who waited has no connection yet when the one before gives it back. A pool that is closed then
    would make a connection that nobody closes."""
    async with connected(valkey.url, connections=1) as redis, anyio.create_task_group() as group:
        pool = redis.connection_pool
        assert isinstance(pool, MasterPool)
        assert not pool.is_busy
        first = await pool.get_connection()

        async def then() -> None:
            await pool.release(await pool.get_connection())

        group.start_soon(then)
        await anyio.wait_all_tasks_blocked()
        await pool.release(first)
        assert pool.is_busy
        await anyio.wait_all_tasks_blocked()
        assert not pool.is_busy


async def test_many_that_only_read(valkey: RunningServer) -> None:
    """Each has its answer in its place, a refusal too, however many alarms that takes."""
    commands = [("ECHO", str(n)) if n % 50 else ("NOSUCH",) for n in range(AT_ONCE * 2 + 5)]
    async with connected(valkey.url, connections=1) as redis:
        assert isinstance(redis, Client)
        for _ in range(2):
            replies = await redis.read_all(commands)
            refused = [n for n, reply in enumerate(replies) if isinstance(reply, ResponseError)]
            assert refused == list(range(0, len(commands), 50))
            assert all(reply == str(n).encode() for n, reply in enumerate(replies) if n % 50)


async def test_many_that_nobody_answers(valkey: RunningServer) -> None:
    """They are over in time, and nobody reads another's answers: the next call gets a new connection."""
    line = Line(valkey.port)
    async with line.open() as url, connected(url, connections=1) as redis:
        assert isinstance(redis, Client)
        before = await redis.client_id()
        (connection,) = redis.connection_pool._available_connections
        connection.socket_timeout, patience = 0.2, connection.socket_timeout
        line.deaf = True
        with anyio.fail_after(60), pytest.raises(RedisTimeoutError, match=r"no answer within 0\.2 s"):
            await redis.read_all([("ECHO", "a")] * 3)
        line.deaf, connection.socket_timeout = False, patience
        with anyio.fail_after(60):
            assert await redis.read_all([("ECHO", "b")]) == [b"b"]
            assert await redis.client_id() != before
