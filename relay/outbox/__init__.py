"""Timers that are scheduled, moved and cancelled in a transaction of the caller's own database.

>>> from relay import outbox
>>> with Session(engine) as session, session.begin():
...     session.add(order)
...     timer = NewTimer(topic="reminders", timer_id=f"order-{order.id}", payload=b"", delay=3600)
...     outbox.schedule(session, timer)

What is written here is a row of the transaction: it is rolled back with it. After the commit `relay outbox
run` hands the row to a relay. It needs the extra `outbox`, and PostgreSQL 13 or newer, or SQLite 3.35 or
newer.
"""

from relay.outbox.databases import create
from relay.outbox.ports import UnsupportedDatabase
from relay.outbox.postgres.tables import metadata
from relay.outbox.sqlite.tables import sqlite_metadata
from relay.outbox.writing import cancel, move, schedule, schedule_batch

__all__ = [
    "UnsupportedDatabase",
    "cancel",
    "create",
    "metadata",
    "move",
    "schedule",
    "schedule_batch",
    "sqlite_metadata",
]
