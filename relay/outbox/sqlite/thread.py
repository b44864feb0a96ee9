"""A connection of sqlite3 that has a thread of its own: its calls block, and a loop must not."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from relay.outbox.ports import DatabaseAway, DatabaseFailure, OutboxMissing

T = TypeVar("T")


class SqliteThread:
    """The connection is opened by the first call; without `creates` there must be a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._executor: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def run(
        self, work: Callable[[sqlite3.Connection], T], *, patience: float = 5.0, creates: bool = False
    ) -> T:
        """Return what `work` returns, in the thread. It waits for the locks of others for `patience`, in
        seconds. A call that is cancelled goes on in the thread to its end. Raises `DatabaseFailure`."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "relay-outbox")

        def call() -> T:
            with failures():
                if self._connection is None:
                    self._connection = self._opened(creates)
                self._connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
                return work(self._connection)

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def close(self) -> None:
        """Close the connection behind the call that is under way, and end the thread."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.get_running_loop().run_in_executor(executor, self._closed)
            executor.shutdown(wait=False)

    def _opened(self, creates: bool) -> sqlite3.Connection:
        mode = "rwc" if creates else "rw"
        connection = sqlite3.connect(
            f"file:{_quoted(self._path)}?mode={mode}", uri=True, isolation_level=None
        )
        # Text that is not UTF-8 would end the reading of all rows.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        return connection

    def _closed(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _quoted(path: str) -> str:
    """The path as a URI of SQLite has it."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that has the database's lock for writing from its begin on.

    Race    Two transactions read, and both write then. SQLite refuses the second one at once, however long it
    would wait: what it has read is no more. One that begins with the lock has waited before it reads.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def failures() -> Iterator[None]:
    """Within the block errors of sqlite3 are the port's. Raises `DatabaseFailure`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        words = str(error)
        if words.startswith("no such table: relay_"):
            raise OutboxMissing(words) from error
        raise DatabaseAway(words) from error
    except sqlite3.Error as error:
        raise DatabaseFailure(str(error)) from error
