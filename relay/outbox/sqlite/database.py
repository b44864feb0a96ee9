"""An outbox in SQLite, by one connection."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from relay.client.errors import InvalidArgument
from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.ports import LANES_THERE, require_lanes
from relay.outbox.sqlite import statements
from relay.outbox.sqlite.intents import SPELLING
from relay.outbox.sqlite.reading import outbox_row, refused_row
from relay.outbox.sqlite.tables import create_in_sqlite, require_version
from relay.outbox.sqlite.thread import SqliteThread, immediate
from relay.outbox.status import OutboxStatus, RefusedRow

LOOK = 0.025
"""Seconds between two looks at whether somebody has committed."""

TAKE_PATIENCE = 2.0
"""Seconds for which taking lanes waits for the transaction of somebody else. They are lost to the calls of a
step."""

PATIENCE = 10.0
"""The same of all else. Rows that a relay has taken, and that are not deleted, are handed over again."""


class SqliteOutbox:
    """`rest` is what follows the scheme in a URL of SQLAlchemy: a slash, and the path of the file."""

    def __init__(self, rest: str) -> None:
        """Raises `InvalidArgument`, and `UnsupportedDatabase` if this process has too old an SQLite."""
        require_version()
        host, _, path = rest.partition("/")
        if host or path in {"", ":memory:"} or "?" in path:
            wanted = "give sqlite:///shop.db, or sqlite:////var/lib/shop.db for a path from the root"
            raise InvalidArgument(f"database: is not the path of a file alone; {wanted}", field="database")
        self._thread = SqliteThread(path)
        self._version: int | None = None
        self._has_lanes = False

    async def take(self, *, holder: UUID, lease: timedelta, most: int) -> list[int]:
        """Hold lanes. An idle mover takes no lock: it looks before it asks for one."""

        def free(connection: sqlite3.Connection) -> list[int]:
            asked = {"now": time.time(), "most": most}
            return [lane for (lane,) in connection.execute(statements.FREE_LANES, asked)]

        def take(connection: sqlite3.Connection) -> list[int]:
            if not self._has_lanes:
                (there,) = connection.execute(LANES_THERE).fetchone()
                require_lanes(there)
                self._has_lanes = True
            if not free(connection):
                return []
            with immediate(connection):
                lanes = free(connection)
                until = time.time() + lease.total_seconds()
                held = [{"lane": lane, "holder": holder.hex, "until": until} for lane in lanes]
                connection.executemany(statements.HOLD_LANE, held)
            return lanes

        return await self._thread.run(take, patience=TAKE_PATIENCE)

    async def read(self, lanes: Sequence[int], *, rows: int, size: int) -> list[OutboxRow]:
        """Read the oldest rows of lanes."""

        def read(connection: sqlite3.Connection) -> list[OutboxRow]:
            asked = {"now": time.time(), "rows": rows, "size": size}
            return [outbox_row(found) for found in connection.execute(statements.read(lanes), asked)]

        return await self._thread.run(read)

    async def settle(self, done: HandedOver, *, holder: UUID, lanes: Sequence[int]) -> None:
        """Delete what was taken, put aside what was not, and give the lanes back."""

        def settle(connection: sqlite3.Connection) -> None:
            with immediate(connection):
                now = time.time()
                connection.executemany(statements.DELETE, [(taken,) for taken in done.taken])
                for each in done.not_taken:
                    asked = {"id": each.id, "reason": each.reason, "now": now}
                    if each.pause is None:
                        connection.execute(statements.REFUSE, asked)
                    else:
                        again = now + each.pause.total_seconds()
                        connection.execute(statements.HOLD, {**asked, "again": again})
                ours = [{"lane": lane, "holder": holder.hex, "now": now} for lane in lanes]
                connection.executemany(statements.FREE, ours)

        await self._thread.run(settle, patience=PATIENCE)

    async def changed(self) -> None:
        """Look again and again, in the thread: SQLite notifies nobody of a commit."""
        ends = threading.Event()

        def look(connection: sqlite3.Connection) -> None:
            while not ends.is_set():
                (found,) = connection.execute(statements.VERSION).fetchone()
                if found != self._version:
                    self._version = found
                    return
                ends.wait(LOOK)

        try:
            await self._thread.run(look)
        finally:
            ends.set()  # whoever waits no more leaves no thread behind

    async def status(self) -> OutboxStatus:
        """Count the rows."""

        def look(connection: sqlite3.Connection) -> OutboxStatus:
            return OutboxStatus(*connection.execute(statements.STATUS, {"now": time.time()}).fetchone())

        return await self._thread.run(look)

    async def refused(self, most: int) -> list[RefusedRow]:
        """Read the oldest refused rows."""

        def look(connection: sqlite3.Connection) -> list[RefusedRow]:
            return [refused_row(found) for found in connection.execute(statements.REFUSED, {"most": most})]

        return await self._thread.run(look)

    async def retry(self, ids: Sequence[int] | None) -> int:
        """Have movers try refused rows again."""
        return await self._change(statements.RETRY, ids)

    async def drop(self, ids: Sequence[int] | None) -> int:
        """Remove refused rows."""
        return await self._change(statements.DROP, ids)

    async def _change(self, statement: str, ids: Sequence[int] | None) -> int:
        def change(connection: sqlite3.Connection) -> int:
            chosen = [None] if ids is None else list(dict.fromkeys(ids))
            with immediate(connection):
                return sum(connection.execute(statement, {"id": each}).rowcount for each in chosen)

        return await self._thread.run(change, patience=PATIENCE)

    async def prune(self, age: timedelta) -> int:
        """Forget occurrences that were handled long ago."""

        def prune(connection: sqlite3.Connection) -> int:
            pruned = 0
            while removed := connection.execute(SPELLING.prune, SPELLING.older(age)).rowcount:
                pruned += removed
            return pruned

        return await self._thread.run(prune, patience=PATIENCE)

    async def migrate(self) -> None:
        """Create what is missing, the file as well."""

        def create(connection: sqlite3.Connection) -> None:
            with immediate(connection):
                create_in_sqlite(connection.execute)

        await self._thread.run(create, patience=PATIENCE, creates=True)

    async def close(self) -> None:
        """Close the connection."""
        self._version, self._has_lanes = None, False
        await self._thread.close()
