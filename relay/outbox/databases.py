"""The databases that can have an outbox: the one of a URL, and the one that an application has open."""

from __future__ import annotations

from sqlalchemy import Connection

from relay.outbox import postgres, sqlite
from relay.outbox.ports import OutboxDatabase, Spelling, UnsupportedDatabase
from relay.outbox.postgres.intents import SPELLING as POSTGRES
from relay.outbox.postgres.tables import create_in_postgres
from relay.outbox.sqlite.intents import SPELLING as SQLITE
from relay.outbox.sqlite.tables import create_in_sqlite
from relay.outbox.where import Async, Blocking, dialect_of, execute

NEEDED = "the outbox needs PostgreSQL 13 or newer, or SQLite 3.35 or newer"

_SPELLINGS = {"postgresql": POSTGRES, sqlite.DIALECT: SQLITE}


def database_at(url: str) -> OutboxDatabase:
    """The outbox at a URL, as SQLAlchemy has it or libpq; a driver that it names is left out. Nothing is
    connected yet.

    Raises `UnsupportedDatabase`, and `InvalidArgument` if the URL can't be read; neither shows a password.
    """
    scheme, found, rest = url.partition("://")
    dialect = scheme.partition("+")[0]
    if found and dialect in postgres.DIALECTS:
        from relay.outbox.postgres.database import PostgresOutbox  # it needs psycopg, and psycopg libpq

        return PostgresOutbox(rest)
    if found and dialect == sqlite.DIALECT:
        from relay.outbox.sqlite.database import SqliteOutbox

        return SqliteOutbox(rest)
    shown = dialect if found and dialect.isalnum() else "something else"
    wanted = "give postgresql://user@host/database or sqlite:///path"
    raise UnsupportedDatabase(f"is of {shown}; {NEEDED}: {wanted}")


def spelling_of(where: Async | Blocking) -> Spelling:
    """Return the statements for the database in which an application has its transaction open. Raises
    `UnsupportedDatabase`."""
    return _SPELLINGS[_known(where)]


def create(connection: Blocking) -> None:
    """Create what is missing: tables, lanes, and in PostgreSQL the trigger that notifies movers.

    `connection` is one of SQLAlchemy, and in PostgreSQL all is in its transaction: in a migration of Alembic
    `create(op.get_bind())`. For SQLite it may be one of sqlite3 or a cursor of Django's, too. Commit
    afterwards: Python's sqlite3 commits the tables by itself, but not their lanes, and movers refuse an
    outbox without lanes. It may be called again, and by several at once. Raises `UnsupportedDatabase`.
    """
    if _known(connection) == sqlite.DIALECT:
        create_in_sqlite(lambda statement: execute(connection, statement, [{}]))
    elif isinstance(connection, Connection):
        create_in_postgres(connection)
    else:
        raise UnsupportedDatabase("PostgreSQL's tables are created by a connection of SQLAlchemy")


def _known(where: Async | Blocking) -> str:
    name = dialect_of(where)
    if name not in _SPELLINGS:
        raise UnsupportedDatabase(f"{NEEDED}, and this is {name}")
    return name
