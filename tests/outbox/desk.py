"""What tests of the outbox ask of the database and of the relay."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, cast

from psycopg import Connection
from psycopg.rows import dict_row

from relay.client import NewTimer, RelayClient
from relay.outbox import writing
from relay.outbox.handing_over import HandedOver
from relay.outbox.mover import OutboxMover
from tests.worlds.relay.processes import Relay
from tests.worlds.relay.stage import Stage

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
    connection: Connection[Any]
    stage: Stage
    topic: str = field(default_factory=lambda: f"orders-{secrets.token_hex(4)}")

    @property
    def relay(self) -> Relay:
        return next(each for each in self.stage._processes if isinstance(each, Relay))

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
            return cursor.execute(ROWS).fetchall()

    async def drained(self, mover: OutboxMover) -> HandedOver:
        """Move until nothing can be moved."""
        whole = HandedOver([], [])
        while (done := await mover.step()).taken or done.not_taken:
            whole.taken += done.taken
            whole.not_taken += done.not_taken
        await mover._disconnect()
        return whole

    def count(self) -> int:
        return len(self.rows())

    def timers(self) -> dict[str, bytes]:
        """What Redis has of the topic: the bodies of envelopes end with the payload."""
        with self.stage.client.pipeline() as both:  # at one instant: a timer may end meanwhile
            both.zrange(f"timers_timeline:{self.topic}", 0, -1)
            both.hgetall(f"timers_payloads:{self.topic}")
            names, stored = cast("tuple[list[bytes], dict[bytes, bytes]]", both.execute())
        return {name.decode(): stored[name] for name in names}
