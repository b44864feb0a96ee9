"""What a database offers the outbox, and what may be wrong with one.

`relay.outbox.postgres` and `relay.outbox.sqlite` each have an `OutboxDatabase`, for those who read rows, and
a `Spelling`, for those who write them; `relay.outbox.databases` finds the one of a URL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol
from uuid import UUID

from relay.outbox.handing_over import HandedOver, OutboxRow
from relay.outbox.status import OutboxStatus, RefusedRow

LANES = 64
"""The number of lanes; a power of two. All rows of a timer are in one lane, and one mover at a time has a
lane."""


class UnsupportedDatabase(Exception):
    """The outbox and the inbox need PostgreSQL 13 or newer, or SQLite 3.35 or newer."""


class DatabaseFailure(Exception):
    """The database refuses. The message is its own, in one line."""


class DatabaseAway(DatabaseFailure):
    """The database can't be reached, or is locked for longer than one waits."""


class OutboxMissing(DatabaseFailure):
    """The database has no tables of the outbox, or not all of its lanes."""


LANES_THERE = "SELECT count(*) FROM relay_outbox_lanes"
"""Counts the lanes, free or not, for `require_lanes`."""


def require_lanes(there: int) -> None:
    """Raise `OutboxMissing` unless all lanes are there.

    SQLAlchemy's `create_all`, or a `create` that was not committed, leaves tables without lanes. Applications
    would write rows there, and no mover would ever take them.
    """
    if there < LANES:
        raise OutboxMissing(f"relay_outbox_lanes has {there} of {LANES} lanes; run relay outbox migrate")


@dataclass(frozen=True, slots=True)
class Spelling:
    """The statements of applications: a row for an intent, and one for an occurrence that is handled.

    The statements have parameters of the form `:name`. `parameters` makes those of `write` from a row as
    `relay.outbox.writing` has it: a UUID, a dict of headers, datetimes and timedeltas; `older` makes those of
    `prune` from an age.
    """

    write: str
    parameters: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    prune: str
    """Removes some of the inbox' rows that are older."""
    older: Callable[[timedelta], Mapping[str, Any]]
    is_first: str = "INSERT INTO relay_inbox (occurrence_id) VALUES (:it) ON CONFLICT DO NOTHING"


class OutboxDatabase(Protocol):  # see 0135
    """An outbox, by one connection that is opened when it is needed.

    All calls raise `DatabaseFailure`. Whoever gets one calls `close` before the next call, which connects
    again.
    """

    async def take(self, *, holder: UUID, lease: timedelta, most: int) -> list[int]:
        """Hold lanes that have rows and no holder for `lease`, those first that were not held for longest.
        They are ours once this has returned."""
        ...

    async def read(self, lanes: Sequence[int], *, rows: int, size: int) -> list[OutboxRow]:
        """Read the oldest rows of lanes, but none that is put aside, nor a later one of its timer.

        `size` bounds the bytes of their payloads, but for a larger first one. It sees all that was committed
        before.
        """
        ...

    async def settle(self, done: HandedOver, *, holder: UUID, lanes: Sequence[int]) -> None:
        """Delete what was taken, put aside what was not, and give those of the lanes back that are ours
        still: in one transaction."""
        ...

    async def changed(self) -> None:
        """Return when something may have been committed since the last call; the first returns at once."""
        ...

    async def status(self) -> OutboxStatus:
        """Count the rows."""
        ...

    async def refused(self, most: int) -> list[RefusedRow]:
        """Read the oldest refused rows."""
        ...

    async def retry(self, ids: Sequence[int] | None) -> int:
        """Have movers try refused rows again, all if `ids` is None; returns how many."""
        ...

    async def drop(self, ids: Sequence[int] | None) -> int:
        """Remove refused rows for good, all if `ids` is None; returns how many."""
        ...

    async def prune(self, age: timedelta) -> int:
        """Forget occurrences in the inbox that were handled longer ago than `age`; returns how many."""
        ...

    async def migrate(self) -> None:
        """Create what is missing of the tables; see `relay.outbox.create`. Raises `UnsupportedDatabase`,
        too."""
        ...

    async def close(self) -> None:
        """Close the connection, if there is one."""
        ...
