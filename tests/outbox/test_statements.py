"""What a step of a mover reads in PostgreSQL, whatever waits and whatever the planner believes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from relay.outbox.handing_over import HandedOver, NotTaken
from relay.outbox.ports import DatabaseFailure
from relay.outbox.postgres import statements
from relay.outbox.postgres.database import PostgresOutbox
from tests.outbox.desk import Desk

WAITING, REFUSED, AT_ONCE = 20_000, 2_000, 500

BACKLOG = f"""
INSERT INTO relay_outbox (action, topic, timer_id, payload, again_at, refused_at, reason)
SELECT 'schedule', 'orders', 'order-' || n, decode(repeat('78', 200), 'hex'),
  CASE WHEN n > {WAITING} THEN timestamptz 'infinity' END, CASE WHEN n > {WAITING} THEN now() END, NULL
FROM generate_series(1, {WAITING + REFUSED}) AS n
"""


def reads(desk: Desk, statement: str, **asked: Any) -> float:
    """The number of rows of the outbox that a mover's statement looks at."""
    with desk.connection.transaction(force_rollback=True):
        desk.connection.execute(statements.PLANNED)
        explain = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}"
        ((plans,),) = desk.connection.execute(explain, asked).fetchall()
    return looked_at(plans[0]["Plan"])


def looked_at(node: dict[str, Any]) -> float:
    """Rows that a node of a plan, and those below it, find or leave out."""
    passed_over = sum(node.get(f"Rows Removed by {each}", 0) for each in ("Filter", "Join Filter"))
    found = node["Actual Rows"] if node.get("Relation Name") == "relay_outbox" else 0
    below = sum(looked_at(each) for each in node.get("Plans", ()))
    return float((found + passed_over) * node["Actual Loops"] + below)


@pytest.mark.parametrize("analyzed", ["never", "when it was empty", "with its backlog"])
def test_a_step_reads_no_more_than_it_hands_over(desk: Desk, analyzed: str) -> None:
    """However much waits, and also while the planner believes that nothing does. A mover that read its
    whole backlog for the next 500 rows would be the slower the more it has to do."""
    desk.connection.execute("ALTER TABLE relay_outbox SET (autovacuum_enabled = off)")
    if analyzed == "when it was empty":
        desk.connection.execute("ANALYZE relay_outbox")
    desk.connection.execute(BACKLOG)
    if analyzed == "with its backlog":
        desk.connection.execute("ANALYZE relay_outbox")
    assert reads(desk, statements.TAKE, holder=uuid4(), lease="60 s", most=16) < AT_ONCE
    assert reads(desk, statements.read(range(16)), rows=AT_ONCE, bytes=1 << 20) < 4 * AT_ONCE
    assert reads(desk, statements.read([7]), rows=AT_ONCE, bytes=1 << 20) < 4 * AT_ONCE


async def test_the_planners_settings_end_with_a_statement(desk: Desk) -> None:
    """They hold for what goes with them in one round trip, and the next user of a pooler meets none."""
    database = PostgresOutbox(desk.database.partition("://")[2])
    asked = "SELECT current_setting('enable_sort')"
    try:
        assert await database._planned(asked, {}) == [("off",)]
        connection = await database.connected()
        assert await (await connection.execute(asked)).fetchall() == [("on",)]
    finally:
        await database.close()


@pytest.mark.parametrize("fault", ["the database's", "the mover's"])
async def test_what_a_step_settles_stands_whole_or_not_at_all(desk: Desk, fault: str) -> None:
    """A row that was taken is there again if the same step can't put another one aside."""
    desk.connection.execute(BACKLOG)
    if fault == "the database's":
        desk.connection.execute("ALTER TABLE relay_outbox ADD CHECK (reason <> 'refused')")
    reason = "refused" if fault == "the database's" else "with a NUL: \0"
    (taken,), (other,) = desk.connection.execute("SELECT id FROM relay_outbox ORDER BY id LIMIT 2").fetchall()
    database = PostgresOutbox(desk.database.partition("://")[2])
    done = HandedOver([taken], [NotTaken(other, reason, None)])
    try:
        with pytest.raises(DatabaseFailure):
            await database.settle(done, holder=uuid4(), lanes=[0])
    finally:
        await database.close()
    count = "SELECT count(*) FROM relay_outbox WHERE id = %s"
    assert desk.connection.execute(count, [taken]).fetchone() == (1,)
