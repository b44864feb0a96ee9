"""What the commands `relay outbox …` do."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from relay.cli.terminal import output, parse
from relay.cli.terminal.confirming import confirm
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, UNAVAILABLE, fail
from relay.core.endpoints import addresses

try:
    import psycopg
    import sqlalchemy
    import sqlalchemy.exc
except ImportError:
    extra = "pip install 'relay-timers[daemon,outbox]' 'psycopg[binary]'"
    fail(f"the outbox needs its extra, and psycopg a libpq: {extra}", BAD_INPUT)

logger = logging.getLogger("relay.outbox")

SHOWN = 20
"""The most refused rows that `status` shows."""

DIALECTS = ("postgresql", "postgres")

BOUNDS = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""Parameters of libpq, unless the URL has them: a server that vanished in a failover is known
to be lost after 20 seconds. Linux by itself would wait for a quarter of an hour, and so would SIGTERM."""


def migrate(database: str) -> None:
    """See `relay outbox migrate`."""
    from relay.outbox import UnsupportedDatabase, create

    conninfo = _conninfo(database)
    with _errors():
        # SQLAlchemy reads other URLs than libpq does, so it is not asked to.
        engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(conninfo))
        try:
            with engine.begin() as connection:
                create(connection)
        except UnsupportedDatabase as refusal:
            fail(str(refusal), BAD_INPUT)
        finally:
            engine.dispose()
    typer.echo("The outbox and the inbox are there.")


def run(database: str, target: str, movers: int, poll: str, metrics: str) -> None:
    """See `relay outbox run`."""
    from prometheus_client import CollectorRegistry, start_http_server

    from relay.client import RelayClient
    from relay.outbox.mover import MoverCounts, OutboxMover
    from relay.outbox.running import OutboxMetrics
    from relay.outbox.running import run as run_movers

    url = _conninfo(database)
    pause = parse.length(poll, "--poll").total_seconds()
    if pause <= 0:
        fail("--poll: is 0; give more, such as 1s", BAD_INPUT)
    shown = OutboxMetrics(MoverCounts())
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if metrics:
        try:
            host, port = addresses.split(metrics)
            registry = CollectorRegistry(auto_describe=False)
            registry.register(shown)
            server, _ = start_http_server(port, host, registry)
            logger.info("metrics are at http://%s/metrics", addresses.join(host, server.server_port))
        except (ValueError, OSError) as problem:
            fail(f"--metrics: {problem}", BAD_INPUT)

    async def serve() -> None:
        async with RelayClient(target) as client:
            some = [OutboxMover(url, client, poll=pause, counts=shown.counts) for _ in range(movers)]
            loop = asyncio.get_running_loop()

            def stop() -> None:
                for mover in some:
                    mover.stop()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            await run_movers(url, some, shown)

    with _errors(), _client_errors():
        asyncio.run(serve())


def status(database: str, as_json: bool) -> None:
    """See `relay outbox status`."""
    from relay.outbox import status as reading

    with _connected(database) as connection:
        found = reading.status(connection)
        rows = reading.refused(connection, SHOWN)
    if as_json:
        fields = {name: getattr(found, name) for name in ("waiting", "blocked", "refused")}
        told = [{**row._asdict(), "refused_at": output.iso(row.refused_at)} for row in rows]
        output.document({**fields, "lag_seconds": found.lag, "refused_rows": told})
        return
    lines = [
        ("waiting", f"{found.waiting:,}"),
        ("oldest", f"{found.lag:.3f} s"),
        ("blocked", f"{found.blocked:,}"),
        ("refused", f"{found.refused:,}"),
    ]
    typer.echo(output.block(lines))
    for row in rows:
        what = f"{row.action} {output.name(row.topic, row.timer_id)}"
        typer.echo(f"row {row.id}  {output.iso(row.refused_at)}  {what}: {output.safe(row.reason)}")
    if found.refused > len(rows):
        typer.echo(f"and {found.refused - len(rows):,} more")


def retry(database: str, rows: list[int], everything: bool, as_json: bool) -> None:
    """See `relay outbox retry`."""
    from relay.outbox import status as changing

    chosen = _chosen(rows, everything)
    with _connected(database) as connection:
        _told("retried", changing.retry(connection, chosen), as_json)


def drop(database: str, rows: list[int], everything: bool, yes: bool, as_json: bool) -> None:
    """See `relay outbox drop`."""
    from relay.outbox import status as changing

    chosen = _chosen(rows, everything)
    if not yes:
        which = "all refused rows" if chosen is None else f"{len(chosen)} refused rows"
        confirm(
            lambda: f"Remove {which} for good?",
            reason="what is dropped is gone",
            refused="nothing was dropped",
        )
    with _connected(database) as connection:
        _told("dropped", changing.drop(connection, chosen), as_json)


def prune(database: str, older_than: str, as_json: bool) -> None:
    """See `relay outbox prune`."""
    from relay import inbox

    age = parse.length(older_than, "--older-than")
    with _connected(database) as connection:
        _told("pruned", inbox.prune(connection, age), as_json)


def _told(word: str, count: int, as_json: bool) -> None:
    if as_json:
        output.document({word: count})
    else:
        typer.echo(f"{count:,} row{'' if count == 1 else 's'} {word}.")


def _chosen(rows: list[int], everything: bool) -> list[int] | None:
    if bool(rows) is everything:
        fail("ROW: name rows, or give --all; not both", BAD_INPUT)
    return None if everything else rows


def _conninfo(database: str) -> str:
    """What libpq takes; a driver that the URL names for SQLAlchemy is left out.

    What libpq says of a URL that it can't read is not shown: it has parts of the password. So have the host
    and the port that it reads where a password has an @ or a slash.
    """
    scheme, found, rest = database.partition("://")
    dialect = scheme.partition("+")[0]
    if not found or dialect not in DIALECTS:
        shown = dialect if found and dialect.isalnum() else "something else"
        wanted = "the outbox needs PostgreSQL 13 or newer: give postgresql://user@host/database"
        fail(f"--database: is of {shown}; {wanted}", BAD_INPUT)
    try:
        given = psycopg.conninfo.conninfo_to_dict(f"postgresql://{rest}")
        host, port = str(given.get("host", "")), str(given.get("port", ""))
        if "@" in host[1:] or not re.fullmatch("[0-9,]*", port):  # abstract sockets begin with one
            raise psycopg.ProgrammingError
    except psycopg.ProgrammingError:
        wanted = (
            "give postgresql://user@host/database, with %25 for % and %40 for @ and %2F for / in a password"
        )
        fail(f"--database: libpq cannot read this URL; {wanted}", BAD_INPUT)
    return psycopg.conninfo.make_conninfo("", **{**BOUNDS, **given})


@contextmanager
def _connected(database: str) -> Iterator[psycopg.Connection[Any]]:
    conninfo = _conninfo(database)
    with _errors(), psycopg.connect(conninfo, autocommit=True) as connection:
        yield connection


@contextmanager
def _errors() -> Iterator[None]:
    """Within the block what the database says ends the command, with one sentence and a code."""
    try:
        yield
    except psycopg.errors.UndefinedTable:
        fail("--database: has no outbox; create it with relay outbox migrate", FAILURE)
    except (psycopg.OperationalError, sqlalchemy.exc.OperationalError) as error:
        fail(f"the database is not available: {_words(error)}", UNAVAILABLE)
    except (psycopg.Error, sqlalchemy.exc.SQLAlchemyError) as error:
        fail(f"the database refuses: {_words(error)}", FAILURE)


def _words(error: Exception) -> str:
    """The first line of an error, without SQLAlchemy's own additions."""
    return (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]


@contextmanager
def _client_errors() -> Iterator[None]:
    from relay.client.errors import InvalidArgument, RelayError

    try:
        yield
    except InvalidArgument as error:
        fail(f"--target: {error.message}", BAD_INPUT)
    except RelayError as error:
        fail(str(error), FAILURE)
