"""The tables of the outbox and of the inbox in PostgreSQL, and what creates what is missing of them.

`metadata` is for Alembic's `target_metadata`, so that autogenerate knows the tables. A migration calls
`create`, which also writes the lanes and the trigger: those are no part of a SQLAlchemy schema.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Computed,
    Connection,
    DateTime,
    Identity,
    Index,
    Interval,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from relay.outbox.ports import LANES, UnsupportedDatabase

CHANNEL = "relay_outbox"
"""Where a transaction that has written rows notifies the movers as it commits."""

OLDEST = 13
"""The oldest PostgreSQL for which the statements are written."""

metadata = MetaData()
"""The tables `relay_outbox`, `relay_outbox_lanes` and `relay_inbox`."""

ROWS = Table(
    "relay_outbox",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("occurrence", Uuid, nullable=False, server_default=text("gen_random_uuid()")),
    Column(
        "lane",
        SmallInteger,
        Computed(f"(hashtext(topic || '/' || timer_id) & {LANES - 1})::smallint", persisted=True),
        nullable=False,
    ),
    Column("action", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("timer_id", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False, server_default=text("''")),
    Column("headers", JSONB, nullable=False, server_default=text("'{}'")),
    Column("content_type", Text, nullable=False, server_default=text("''")),
    Column("due_time", DateTime(timezone=True)),
    Column("delay", Interval),
    Column("expire_time", DateTime(timezone=True)),
    Column("expire_after", Interval),
    Column("spread", Interval),
    Column("seal_with", Text, nullable=False, server_default=text("''")),
    Column("written_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
    Column("again_at", DateTime(timezone=True)),
    Column("refused_at", DateTime(timezone=True)),
    Column("reason", Text),
    # A mover could not read any other, and would stop at such a row. A number in headers may have more digits
    # than Python reads, and arrays may be nested deeper; an interval may be longer than a timedelta.
    CheckConstraint("jsonb_typeof(headers) = 'object'", name="relay_outbox_headers"),
    CheckConstraint(
        """NOT jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")', '{}', true)""",
        name="relay_outbox_headers_are_texts",
    ),
    *(
        CheckConstraint(f"{name} BETWEEN '1970-01-01Z' AND '9999-12-31Z'", name=f"relay_outbox_{name}")
        for name in ("due_time", "expire_time", "written_at")
    ),
    # A row whose names are too long for an index could not be put aside as refused. Relays take none of more
    # than 256 bytes, nor payloads of more than 64 MiB.
    CheckConstraint(
        "greatest(octet_length(topic), octet_length(timer_id)) <= 1024 "
        "AND greatest(octet_length(content_type), octet_length(seal_with)) <= 1024",
        name="relay_outbox_names",
    ),
    CheckConstraint(
        f"octet_length(payload) <= {64 << 20} AND octet_length(CAST(headers AS text)) <= {1 << 20}",
        name="relay_outbox_sizes",
    ),
    *(
        CheckConstraint(
            f"{name} BETWEEN interval '-10000 years' AND interval '10000 years'",
            name=f"relay_outbox_{name}",
        )
        for name in ("delay", "expire_after", "spread")
    ),
    CheckConstraint("action IN ('schedule', 'move', 'cancel')", name="relay_outbox_action"),
)
"""A row for each intent. `id` is the order of a timer's intents. `delay` counts from `written_at`. `again_at`
is the instant before which the row, and later rows of its timer, are left alone: infinity once `refused_at`
is set."""

Index("relay_outbox_by_lane", ROWS.c.lane, ROWS.c.id, postgresql_where=ROWS.c.refused_at.is_(None))
Index(
    "relay_outbox_held",
    ROWS.c.topic,
    ROWS.c.timer_id,
    ROWS.c.id,
    postgresql_where=ROWS.c.again_at.is_not(None),
)

LANES_HELD = Table(
    "relay_outbox_lanes",
    metadata,
    Column("lane", SmallInteger, primary_key=True, autoincrement=False),
    Column("holder", Uuid),
    Column("held_until", DateTime(timezone=True), nullable=False, server_default=text("'-infinity'")),
)
"""Which mover has a lane, and until when; see `relay.outbox.mover`."""

HANDLED = Table(
    "relay_inbox",
    metadata,
    Column("occurrence_id", Text, primary_key=True),
    Column("handled_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
)
"""The occurrences whose effects are committed; see `relay.inbox`."""

Index("relay_inbox_by_age", HANDLED.c.handled_at)

_NOTIFY = f"""
CREATE OR REPLACE FUNCTION relay_outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('{CHANNEL}', '');
  RETURN NULL;
END $$
"""
_TRIGGER = """
CREATE TRIGGER relay_outbox_written AFTER INSERT ON relay_outbox
FOR EACH STATEMENT EXECUTE FUNCTION relay_outbox_notify()
"""
_FIND_TRIGGER = """
SELECT 1 FROM pg_trigger WHERE tgrelid = 'relay_outbox'::regclass AND tgname = 'relay_outbox_written'
"""


def create_in_postgres(connection: Connection) -> None:
    """Create what is missing; see `relay.outbox.create`. Raises `UnsupportedDatabase`."""
    major = int((connection.dialect.server_version_info or (0,))[0])
    if major < OLDEST:
        raise UnsupportedDatabase(f"the outbox needs PostgreSQL {OLDEST} or newer, and this is {major}")
    # Two that find no table would both create it, and the second would fail.
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('relay_outbox'))"))
    metadata.create_all(connection)
    lanes = "INSERT INTO relay_outbox_lanes (lane) SELECT generate_series(0, :last) ON CONFLICT DO NOTHING"
    connection.execute(text(lanes), {"last": LANES - 1})
    connection.execute(text(_NOTIFY))
    if connection.execute(text(_FIND_TRIGGER)).first() is None:
        connection.execute(text(_TRIGGER))
