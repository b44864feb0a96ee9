"""The tables of the outbox and of the inbox in SQLite, and what creates what is missing of them.

Instants and lengths are seconds, an instant's since 1970. A column takes any value in SQLite, so the checks
say which type it has. `sqlite_metadata` is for Alembic's `target_metadata`, as `metadata` is in PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from sqlalchemy import (
    REAL,
    CheckConstraint,
    Column,
    Computed,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from relay.outbox.ports import LANES, UnsupportedDatabase
from relay.outbox.sqlite.values import LAST

OLDEST = (3, 35)
"""The oldest SQLite for which the statements are written."""

_NOW = "((julianday('now') - 2440587.5) * 86400.0)"
_LONGEST = 10_000 * 366 * 86_400

_FACTORS = {
    place: pow(37, abs(place), LANES) * (1 if place < 0 else 2) for place in (*range(1, 17), *range(-16, 0))
}
_HASH = " + ".join(
    f"{factor} * coalesce(unicode(substr(timer_id, {place}, 1)), 0)" for place, factor in _FACTORS.items()
)
"""SQLite has no hash function. Ids differ near their beginning or near their end: a UUID, or a number with a
word before or after it. Factors at the end are odd and those at the beginning are even: a short id has each
character in both, and the sum of its two factors stays odd. Consecutive numbers reach at least 32 lanes."""

sqlite_metadata = MetaData()
"""The tables `relay_outbox`, `relay_outbox_lanes` and `relay_inbox`."""


def _checked(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=f"relay_outbox_{name}")


def _number(name: str, least: int, most: int) -> CheckConstraint:
    """Neither an infinity nor text is one."""
    of_type = f"typeof({name}) IN ('real', 'integer')"
    return _checked(name, f"{name} IS NULL OR {of_type} AND {name} BETWEEN {least} AND {most}")


def _text(name: str, longest: int = 1024) -> CheckConstraint:
    return _checked(name, f"typeof({name}) = 'text' AND length(CAST({name} AS BLOB)) <= {longest}")


ROWS = Table(
    "relay_outbox",
    sqlite_metadata,
    Column("id", Integer, primary_key=True),
    Column("occurrence", Text, nullable=False, server_default=text("(lower(hex(randomblob(16))))")),
    Column(
        "lane",
        Integer,
        Computed(f"(length(topic) + {_HASH}) & {LANES - 1}", persisted=True),
        nullable=False,
    ),
    Column("action", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("timer_id", Text, nullable=False),
    Column("content_type", Text, nullable=False, server_default=text("''")),
    Column("due_time", REAL),
    Column("delay", REAL),
    Column("expire_time", REAL),
    Column("expire_after", REAL),
    Column("spread", REAL),
    Column("seal_with", Text, nullable=False, server_default=text("''")),
    Column("written_at", REAL, nullable=False, server_default=text(_NOW)),
    Column("again_at", REAL),
    Column("refused_at", REAL),
    Column("reason", Text),
    # Large columns come last: SQLite reads the columns before the one it wants, and payloads have megabytes.
    Column("headers", Text, nullable=False, server_default=text("'{}'")),
    Column("payload", LargeBinary, nullable=False, server_default=text("(x'')")),
    # What a mover could not read, such as a payload of 1 GB or an instant behind the year 9999. What a check
    # can't say, such as that headers are JSON, a mover refuses; see `relay.outbox.sqlite.reading`.
    _checked(
        "occurrence",
        # length and GLOB stop at a NUL in a text; the length of a blob counts all of it.
        "typeof(occurrence) = 'text' AND length(occurrence) = 32 AND occurrence NOT GLOB '*[^0-9a-f]*' "
        "AND length(CAST(occurrence AS BLOB)) = 32",
    ),
    *(_text(name) for name in ("topic", "timer_id", "content_type", "seal_with")),
    _text("headers", 1 << 20),
    _checked("payload", f"typeof(payload) = 'blob' AND length(payload) <= {64 << 20}"),
    *(_number(name, 0, LAST) for name in ("due_time", "expire_time", "written_at", "refused_at")),
    _checked("again_at", "again_at IS NULL OR typeof(again_at) IN ('real', 'integer')"),
    _checked("reason", "reason IS NULL OR typeof(reason) = 'text'"),
    *(_number(name, -_LONGEST, _LONGEST) for name in ("delay", "expire_after", "spread")),
    _checked("action", "action IN ('schedule', 'move', 'cancel')"),
    # Race    A mover stands between the relay's OK and the deletion of its row. Another one has deleted the
    # row meanwhile, and the table is empty. Without AUTOINCREMENT the next row would have the same id, and
    # the first mover would delete it.
    sqlite_autoincrement=True,
)
"""A row for each intent. `id` is the order of a timer's intents. `delay` counts from `written_at`. `again_at`
is the instant before which the row, and later rows of its timer, are left alone: infinity once `refused_at`
is set."""

Index("relay_outbox_by_lane", ROWS.c.lane, ROWS.c.id, sqlite_where=ROWS.c.refused_at.is_(None))
Index(
    "relay_outbox_held",
    ROWS.c.topic,
    ROWS.c.timer_id,
    ROWS.c.id,
    sqlite_where=ROWS.c.again_at.is_not(None),
)

LANES_HELD = Table(
    "relay_outbox_lanes",
    sqlite_metadata,
    Column("lane", Integer, primary_key=True, autoincrement=False),
    Column("holder", Text),
    Column("held_until", REAL, nullable=False, server_default=text("0")),
)
"""Which mover has a lane, and until when; see `relay.outbox.mover`."""

HANDLED = Table(
    "relay_inbox",
    sqlite_metadata,
    Column("occurrence_id", Text, primary_key=True),
    Column("handled_at", REAL, nullable=False, server_default=text(_NOW)),
)
"""The occurrences whose effects are committed; see `relay.inbox`."""

Index("relay_inbox_by_age", HANDLED.c.handled_at)


def require_version() -> None:
    """Raise `UnsupportedDatabase` if this process has too old an SQLite."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise UnsupportedDatabase(
            f"the outbox needs SQLite 3.35 or newer, and this is {sqlite3.sqlite_version}"
        )


def create_in_sqlite(run: Callable[[str], object]) -> None:
    """Create what is missing; see `relay.outbox.create`. `run` runs a statement.

    Each statement may be repeated, and what one leaves undone the next call does: Python's sqlite3 commits
    by itself behind a CREATE TABLE. Raises `UnsupportedDatabase`.
    """
    require_version()
    for table in sqlite_metadata.sorted_tables:
        run(str(CreateTable(table, if_not_exists=True).compile(dialect=dialect())))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            run(str(CreateIndex(index, if_not_exists=True).compile(dialect=dialect())))
    lanes = ", ".join(f"({lane})" for lane in range(LANES))
    run(f"INSERT INTO relay_outbox_lanes (lane) VALUES {lanes} ON CONFLICT DO NOTHING")
