"""A Postgres with an outbox, or a file of SQLite, and a relay: servers are started once for the folder."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from relay.outbox import create
from tests.one_worker import one_worker
from tests.outbox.desk import POSTGRES, Desk, FileDesk
from tests.postgres import Postgres, postgres
from tests.worlds.relay.stage import Stage, staged

NUMBERS = itertools.count()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker of a parallel run takes the whole folder, so that there is one Postgres."""
    one_worker(items, Path(__file__).parent)


@pytest.fixture(scope="package")
def server() -> Iterator[Postgres]:
    """Its database `template` has the tables."""
    with postgres() as server:
        server.sql("CREATE DATABASE template")
        engine = create_engine(server.url("template").replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            create(connection)
        engine.dispose()
        yield server


@pytest.fixture
def database(server: Postgres) -> Iterator[str]:
    """The URL of a database of the test's own, with the tables."""
    name = f"test{next(NUMBERS)}"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template")
    yield server.url(name)
    with psycopg.connect(
        server.url(), autocommit=True
    ) as connection:  # the server may have been killed meanwhile
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="package")
def shared_stage() -> Iterator[Stage]:
    with staged(Stage) as stage:
        stage.relay(settings={"RELAY_TOPICS__full__MAX_WAITING": "1"})
        yield stage


@pytest.fixture
def desk(request: pytest.FixtureRequest, shared_stage: Stage, tmp_path: Path) -> Iterator[Desk]:
    """The database, the relay, and what stands in both: in PostgreSQL unless the test says otherwise, as with
    `BOTH` of `tests.outbox.desk`."""
    if getattr(request, "param", POSTGRES) == POSTGRES:
        database = request.getfixturevalue("database")
        with psycopg.connect(database, autocommit=True) as connection:
            yield Desk(database, connection, shared_stage)
    else:
        path = tmp_path / "shop.db"
        file = sqlite3.connect(path, isolation_level=None)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = OFF")
        create(file)
        yield FileDesk(f"sqlite:///{path}", file, shared_stage)
        file.close()
