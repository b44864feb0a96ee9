"""What tests of the outbox ask of the database and of the relay."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from relay.client import NewTimer, RelayClient
from relay.outbox import writing
from relay.outbox.databases import database_at
from relay.outbox.handing_over import HandedOver
from relay.outbox.mover import OutboxMover
from relay.outbox.ports import OutboxDatabase
from relay.outbox.sqlite.values import to_instant, to_length
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage

POSTGRES, SQLITE = "postgresql", "sqlite"
BOTH = pytest.mark.parametrize("desk", [POSTGRES, SQLITE], indirect=True)
ON_SQLITE = pytest.mark.parametrize("desk", [SQLITE], indirect=True)
"""Marks of tests: on which databases they run, where it is not PostgreSQL alone."""

HOUR = 3600.0
COLUMNS = (
    *(
        "id",
        "occurrence",
        "lane",
        "action",
        "topic",
        "timer_id",
        "payload",
        "headers",
        "content_type",
        "due_time",
    ),
    *("delay", "expire_time", "expire_after", "spread", "seal_with", "refused_at", "reason"),
)
ROWS = f"SELECT {', '.join(COLUMNS)} FROM relay_outbox ORDER BY id"


@dataclass
class Desk:
    """A database of the test's own, and a relay that others use, with a topic of the test's own."""

    database: str
    connection: Any
    stage: Stage
    topic: str = field(default_factory=lambda: f"orders-{secrets.token_hex(4)}")

    @property
    def relay(self) -> Relay:
        return next(each for each in self.stage._processes if isinstance(each, Relay))

    @property
    def sqlalchemy_url(self) -> str:
        return self.database.replace("postgresql:", "postgresql+psycopg:")

    def client(self) -> RelayClient:
        return RelayClient(self.relay.target)

    def mover(self, client: RelayClient, **options: Any) -> OutboxMover:
        return OutboxMover(self.database, client, **options)

    def new(self, timer_id: str, payload: bytes = b"x", **options: Any) -> NewTimer:
        """A timer of the topic, due in an hour."""
        if not options.keys() & {"delay", "due_time", "debounce"}:
            options["delay"] = HOUR
        return NewTimer(**{"topic": self.topic, "timer_id": timer_id, "payload": payload, **options})

    def write(self, *timers: NewTimer) -> None:
        """Rows that are committed at once."""
        for timer in timers:
            writing.schedule(self.connection, timer)

    def cancel(self, timer_id: str) -> None:
        writing.cancel(self.connection, self.topic, timer_id)

    def rows(self) -> list[dict[str, Any]]:
        with self.connection.cursor(row_factory=dict_row) as cursor:
            found: list[dict[str, Any]] = cursor.execute(ROWS).fetchall()
            return found

    async def drained(self, mover: OutboxMover) -> HandedOver:
        """Move until nothing can be moved."""
        whole = HandedOver([], [])
        while (done := await mover.step()).taken or done.not_taken:
            whole.taken += done.taken
            whole.not_taken += done.not_taken
        await mover.database.close()
        return whole

    def connect(self) -> Any:
        """Another connection, with a transaction; as a block it commits and is closed."""
        return psycopg.connect(self.database)

    def number_from(self, first: int) -> None:
        """The next row's id."""
        self.connection.execute(f"ALTER SEQUENCE relay_outbox_id_seq RESTART WITH {first}")

    def age(self, seconds: float) -> None:
        """Rows were written longer ago by this."""
        moved = "written_at - make_interval(secs => %s)"
        self.connection.execute(f"UPDATE relay_outbox SET written_at = {moved}", [seconds])

    def handled(self, occurrence_id: str, days: float) -> None:
        """The inbox has an occurrence for so long."""
        at = "now() - make_interval(secs => %s)"
        self.connection.execute(f"INSERT INTO relay_inbox VALUES (%s, {at})", [occurrence_id, days * 86_400])

    def end_pauses(self) -> None:
        """Rows are no more left alone."""
        self.connection.execute("UPDATE relay_outbox SET again_at = now() WHERE again_at IS NOT NULL")

    def held(self) -> dict[str, float]:
        """The holders of lanes, and for how many seconds they still have theirs."""
        left = "extract(epoch FROM held_until - clock_timestamp())::float8"
        found = f"SELECT holder::text, {left} FROM relay_outbox_lanes WHERE holder IS NOT NULL"
        return dict(self.connection.execute(found).fetchall())

    @asynccontextmanager
    async def outbox(self) -> AsyncIterator[OutboxDatabase]:
        """What the database offers movers and people."""
        outbox = database_at(self.database)
        try:
            yield outbox
        finally:
            await outbox.close()

    def count(self) -> int:
        return len(self.rows())

    def timers(self) -> dict[str, bytes]:
        """What Redis has of the topic: the bodies of envelopes end with the payload."""
        with self.stage.client.pipeline() as both:  # at one instant: a timer may end meanwhile
            both.zrange(f"timers_timeline:{self.topic}", 0, -1)
            both.hgetall(f"timers_payloads:{self.topic}")
            names, stored = cast("tuple[list[bytes], dict[bytes, bytes]]", both.execute())
        return {name.decode(): stored[name] for name in names}


class FileDesk(Desk):
    """The same with a file of SQLite."""

    @property
    def path(self) -> str:
        return self.database.removeprefix("sqlite:///")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
            yield connection

    def rows(self) -> list[dict[str, Any]]:
        return [_row(dict(zip(COLUMNS, found, strict=True))) for found in self.connection.execute(ROWS)]

    def number_from(self, first: int) -> None:
        self.connection.execute("INSERT INTO sqlite_sequence VALUES ('relay_outbox', ?)", [first - 1])

    def age(self, seconds: float) -> None:
        self.connection.execute("UPDATE relay_outbox SET written_at = written_at - ?", [seconds])

    def handled(self, occurrence_id: str, days: float) -> None:
        at = time.time() - days * 86_400
        self.connection.execute("INSERT INTO relay_inbox VALUES (?, ?)", [occurrence_id, at])

    def end_pauses(self) -> None:
        self.connection.execute("UPDATE relay_outbox SET again_at = 0 WHERE again_at IS NOT NULL")

    def held(self) -> dict[str, float]:
        found = "SELECT holder, held_until FROM relay_outbox_lanes WHERE holder IS NOT NULL"
        return {holder: until - time.time() for holder, until in self.connection.execute(found)}


def _row(found: dict[str, Any]) -> dict[str, Any]:
    """A row of SQLite as one of PostgreSQL."""
    instants = {name: to_instant(found[name]) for name in ("due_time", "expire_time", "refused_at")}
    lengths = {name: to_length(found[name]) for name in ("delay", "expire_after", "spread")}
    others = {"occurrence": UUID(hex=found["occurrence"]), "headers": json.loads(found["headers"])}
    return {**found, **instants, **lengths, **others}
