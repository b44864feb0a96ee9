"""What the commands `relay outbox …` do."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from relay.cli.terminal import output, parse
from relay.cli.terminal.confirming import confirm
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, UNAVAILABLE, fail
from relay.core.endpoints import addresses

EXTRA = "pip install 'relay-timers[daemon,outbox]' 'psycopg[binary]'"

if TYPE_CHECKING:
    from relay.outbox.ports import OutboxDatabase
    from relay.outbox.status import OutboxStatus, RefusedRow

T = TypeVar("T")

logger = logging.getLogger("relay.outbox")

SHOWN = 20
"""The most refused rows that `status` shows."""


def migrate(database: str) -> None:
    """See `relay outbox migrate`."""
    _asked(database, lambda found: found.migrate())
    typer.echo("The outbox and the inbox are there.")


def run(database: str, target: str, movers: int, poll: str, metrics: str) -> None:
    """See `relay outbox run`."""
    from prometheus_client import CollectorRegistry, start_http_server

    _opened(database)
    from relay.client import RelayClient
    from relay.outbox.mover import MoverCounts, OutboxMover
    from relay.outbox.running import OutboxMetrics
    from relay.outbox.running import run as run_movers

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
            some = [OutboxMover(database, client, poll=pause, counts=shown.counts) for _ in range(movers)]
            loop = asyncio.get_running_loop()

            def stop() -> None:
                logger.info("told to end: the step under way is the last one")
                for mover in some:
                    mover.stop()

            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop)
            await run_movers(database, some, shown)

    with _client_errors():
        asyncio.run(serve())


def status(database: str, as_json: bool) -> None:
    """See `relay outbox status`."""

    async def both(outbox: OutboxDatabase) -> tuple[OutboxStatus, list[RefusedRow]]:
        return await outbox.status(), await outbox.refused(SHOWN)

    found, rows = _asked(database, both)
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
    chosen = _chosen(rows, everything)
    _told("retried", _asked(database, lambda outbox: outbox.retry(chosen)), as_json)


def drop(database: str, rows: list[int], everything: bool, yes: bool, as_json: bool) -> None:
    """See `relay outbox drop`."""
    chosen = _chosen(rows, everything)
    if not yes:
        which = "all refused rows" if chosen is None else f"{len(chosen)} refused rows"
        confirm(
            lambda: f"Remove {which} for good?",
            reason="what is dropped is gone",
            refused="nothing was dropped",
        )
    _told("dropped", _asked(database, lambda outbox: outbox.drop(chosen)), as_json)


def prune(database: str, older_than: str, as_json: bool) -> None:
    """See `relay outbox prune`."""
    age = parse.length(older_than, "--older-than")
    _told("pruned", _asked(database, lambda outbox: outbox.prune(age)), as_json)


def _told(word: str, count: int, as_json: bool) -> None:
    if as_json:
        output.document({word: count})
    else:
        typer.echo(f"{count:,} row{'' if count == 1 else 's'} {word}.")


def _chosen(rows: list[int], everything: bool) -> list[int] | None:
    if bool(rows) is everything:
        fail("ROW: name rows, or give --all; not both", BAD_INPUT)
    return None if everything else rows


def _opened(database: str) -> OutboxDatabase:
    """The database of `--database`, which is not connected to yet."""
    try:
        from relay.outbox import UnsupportedDatabase
        from relay.outbox.databases import database_at
    except ImportError:
        fail(f"the outbox needs its extra: {EXTRA}", BAD_INPUT)
    from relay.client.errors import InvalidArgument

    try:
        return database_at(database)
    except ImportError:
        fail(f"PostgreSQL needs psycopg, and psycopg a libpq: {EXTRA}", BAD_INPUT)
    except UnsupportedDatabase as refusal:
        fail(f"--database: {refusal}", BAD_INPUT)
    except InvalidArgument as refusal:
        fail(f"--{refusal.message}", BAD_INPUT)


def _asked(database: str, ask: Callable[[OutboxDatabase], Awaitable[T]]) -> T:
    """What the database answers. What it refuses ends the command, with one sentence and a code."""
    outbox = _opened(database)
    from relay.outbox import UnsupportedDatabase
    from relay.outbox.ports import DatabaseAway, DatabaseFailure, OutboxMissing

    async def asked() -> T:
        try:
            return await ask(outbox)
        finally:
            await outbox.close()

    try:
        return asyncio.run(asked())
    except UnsupportedDatabase as refusal:
        fail(f"--database: {refusal}", BAD_INPUT)
    except OutboxMissing:
        fail("--database: has no outbox; create it with relay outbox migrate", FAILURE)
    except DatabaseAway as failure:
        fail(f"the database is not available: {failure}", UNAVAILABLE)
    except DatabaseFailure as failure:
        fail(f"the database refuses: {failure}", FAILURE)


@contextmanager
def _client_errors() -> Iterator[None]:
    from relay.client.errors import InvalidArgument, RelayError

    try:
        yield
    except InvalidArgument as error:
        fail(f"--target: {error.message}", BAD_INPUT)
    except RelayError as error:
        fail(str(error), FAILURE)
