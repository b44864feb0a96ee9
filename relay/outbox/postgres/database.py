"""An outbox in PostgreSQL, by one connection of psycopg."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg
import sqlalchemy
import sqlalchemy.exc
from psycopg import AsyncConnection
from psycopg.rows import class_row

from relay.client.errors import InvalidArgument
from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.ports import LANES_THERE, DatabaseAway, DatabaseFailure, OutboxMissing, require_lanes
from relay.outbox.postgres import statements
from relay.outbox.postgres.intents import SPELLING
from relay.outbox.postgres.tables import CHANNEL, create_in_postgres
from relay.outbox.status import OutboxStatus, RefusedRow
from relay.outbox.where import execute

BOUNDS = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""Parameters of libpq, unless the URL has them: a server that vanished in a failover is known
to be lost after 20 seconds. Linux by itself would wait for a quarter of an hour, and so would SIGTERM."""


class PostgresOutbox:
    """`rest` is what follows the scheme in a URL of libpq."""

    def __init__(self, rest: str) -> None:
        """Raises `InvalidArgument`."""
        self._conninfo = conninfo(rest)
        self._connection: AsyncConnection[Any] | None = None
        self._listens = False
        self._has_lanes = False

    async def take(self, *, holder: UUID, lease: timedelta, most: int) -> list[int]:
        """Hold lanes that have rows."""
        asked = {"holder": holder, "lease": lease, "most": most}
        with failures():
            connection = await self.connected()
            if not self._has_lanes:
                ((there,),) = await (await connection.execute(LANES_THERE)).fetchall()
                require_lanes(there)
                self._has_lanes = True
            found = await self._planned(statements.TAKE, asked)
        return [lane for (lane,) in found]

    async def read(self, lanes: Sequence[int], *, rows: int, size: int) -> list[OutboxRow]:
        """Read the oldest rows of lanes.

        Race    A lane is taken as another mover gives it back. Rows that it has deleted must not be seen
        again, so they are read by another statement than the one that takes the lane: its snapshot is from
        before.
        """
        asked = {"rows": rows, "bytes": size}
        with failures():
            found = await self._planned(statements.read(lanes), asked)
        return [OutboxRow(*row) for row in found]

    async def _planned(self, statement: str, asked: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """The rows of a statement that is a transaction of its own, by the indexes."""
        async with self._transaction() as connection:
            await connection.execute(statements.PLANNED)
            cursor = await connection.execute(statement, asked)
        return await cursor.fetchall()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Run the block's statements as one transaction, in one round trip. After an error the transaction is
        still open, and the caller has to close the connection, as a mover does."""
        connection = await self.connected()
        async with connection.pipeline():
            await connection.execute("BEGIN")
            yield connection
            await connection.execute("COMMIT")

    async def settle(self, done: HandedOver, *, holder: UUID, lanes: Sequence[int]) -> None:
        """Delete what was taken, put aside what was not, and give the lanes back."""
        with failures():
            async with self._transaction() as connection:
                if done.taken:
                    await connection.execute(statements.DELETE, {"ids": done.taken})
                for each in done.not_taken:
                    put_aside = statements.REFUSE if each.pause is None else statements.HOLD
                    asked = {"id": each.id, "reason": each.reason, "pause": each.pause}
                    await connection.execute(put_aside, asked)
                await connection.execute(statements.FREE, {"lanes": list(lanes), "holder": holder})

    async def changed(self) -> None:
        """Wait for a notification, on a connection that does nothing else."""
        with failures():
            connection = await self.connected()
            if not self._listens:
                await connection.execute(f"LISTEN {CHANNEL}")
                self._listens = True  # what was committed before was not notified of
                return
            async for _ in connection.notifies(stop_after=1):
                pass

    async def status(self) -> OutboxStatus:
        """Count the rows."""
        with failures():
            connection = await self.connected()
            async with connection.cursor(row_factory=class_row(OutboxStatus)) as cursor:
                found = await (await cursor.execute(statements.STATUS)).fetchone()
        assert found is not None
        return found

    async def refused(self, most: int) -> list[RefusedRow]:
        """Read the oldest refused rows."""
        with failures():
            connection = await self.connected()
            found = await (await connection.execute(statements.REFUSED, {"most": most})).fetchall()
        return [RefusedRow(*row) for row in found]

    async def retry(self, ids: Sequence[int] | None) -> int:
        """Have movers try refused rows again, and wake them."""
        return await self._change(statements.RETRY, ids)

    async def drop(self, ids: Sequence[int] | None) -> int:
        """Remove refused rows, and wake the movers."""
        return await self._change(statements.DROP, ids)

    async def _change(self, statement: str, ids: Sequence[int] | None) -> int:
        asked = {"all": ids is None, "ids": list(ids or ())}
        with failures():
            connection = await self.connected()
            done = (await connection.execute(statement, asked)).rowcount
            await connection.execute(statements.WAKE)
        return done

    async def prune(self, age: timedelta) -> int:
        """Forget occurrences that were handled long ago."""
        pruned = 0
        with failures():
            connection = await self.connected()
            asked = [SPELLING.older(age)]
            while removed := await cast("Awaitable[int]", execute(connection, SPELLING.prune, asked)):
                pruned += removed
        return pruned

    async def migrate(self) -> None:
        """Create what is missing. Raises `UnsupportedDatabase`, too."""
        await asyncio.to_thread(self._migrate)

    def _migrate(self) -> None:
        # SQLAlchemy reads other URLs than libpq does, so it is not asked to.
        engine = sqlalchemy.create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(self._conninfo)
        )
        try:
            with failures(), engine.begin() as connection:
                create_in_postgres(connection)
        finally:
            engine.dispose()

    async def connected(self) -> AsyncConnection[Any]:
        """The connection. Raises what psycopg raises."""
        if self._connection is None:
            # No prepared statements: poolers may give each transaction another session.
            self._connection = await AsyncConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None
            )
        return self._connection

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        self._listens = self._has_lanes = False
        if connection is not None:
            await connection.close()


def conninfo(rest: str) -> str:
    """What libpq takes.

    What libpq says of a URL that it can't read is not shown: it has parts of the password. So have the host
    and the port that it reads where a password has an @ or a slash. Raises `InvalidArgument`.
    """
    try:
        given = psycopg.conninfo.conninfo_to_dict(f"postgresql://{rest}")
        host, port = str(given.get("host", "")), str(given.get("port", ""))
        if "@" in host[1:] or not re.fullmatch("[0-9,]*", port):  # abstract sockets begin with one
            raise psycopg.ProgrammingError
    except psycopg.ProgrammingError:
        wanted = (
            "give postgresql://user@host/database, with %25 for % and %40 for @ and %2F for / in a password"
        )
        raise InvalidArgument(f"database: libpq cannot read this URL; {wanted}", field="database") from None
    return psycopg.conninfo.make_conninfo("", **{**BOUNDS, **given})


@contextmanager
def failures() -> Iterator[None]:
    """Within the block errors of psycopg, and of SQLAlchemy above it, are the port's. Raises
    `DatabaseFailure`."""
    try:
        yield
    except psycopg.errors.UndefinedTable as error:
        raise OutboxMissing(_words(error)) from error
    except (psycopg.OperationalError, sqlalchemy.exc.OperationalError, OSError) as error:
        raise DatabaseAway(_words(error)) from error
    except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
        raise DatabaseFailure(_words(error)) from error


def _words(error: Exception) -> str:
    """The first line of an error, without SQLAlchemy's own additions."""
    return (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
