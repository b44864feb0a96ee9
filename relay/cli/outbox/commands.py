"""`relay outbox …` and its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import DEFAULT_TARGET, TIMERS, Json, Target

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(
    app,
    name="outbox",
    help="Timers that applications write in transactions of their own database.",
    rich_help_panel=TIMERS,
)

Database = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="RELAY_OUTBOX_DATABASE",
        metavar="URL",
        help="The application's database, such as postgresql://app@db/shop or sqlite:///shop.db. A password "
        "belongs into the variable or into PGPASSFILE: other users of the machine see options.",
    ),
]
RowIds = Annotated[
    Optional[list[int]],  # noqa: UP045 (typer reads it at run time)
    typer.Argument(metavar="ROW", min=1, max=2**63 - 1, help="Rows as `relay outbox status` shows them."),
]
Everything = Annotated[bool, typer.Option("--all", help="All refused rows.")]


@app.command()
def migrate(database: Database) -> None:
    """Create the tables of the outbox and of the inbox, or what is missing of them.

    It may run again at each start, and beside itself. It needs the right to create tables.
    """
    from relay.cli.outbox import implementation

    implementation.migrate(database)


@app.command()
def run(
    database: Database,
    target: Target = DEFAULT_TARGET,
    movers: Annotated[
        int,
        typer.Option("--movers", min=1, max=16, help="Steps under way at once, each on its own connection."),
    ] = 2,
    poll: Annotated[
        str,
        typer.Option(
            "--poll", metavar="LENGTH", help="How often to look for rows of which no notification came."
        ),
    ] = "1s",
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus here. Default: nowhere."
        ),
    ] = "",
) -> None:
    """Hand rows to a relay as their transactions commit, until SIGTERM or SIGINT.

    Any number may run. On a signal the step under way ends first, which takes 5 seconds at most.
    """
    from relay.cli.outbox import implementation

    implementation.run(database, target, movers, poll, metrics)


@app.command()
def status(database: Database, as_json: Json = False) -> None:
    """Show how many rows wait, for how long the oldest does, and which rows a relay has refused."""
    from relay.cli.outbox import implementation

    implementation.status(database, as_json)


@app.command()
def retry(
    database: Database, rows: RowIds = None, everything: Everything = False, as_json: Json = False
) -> None:
    """Hand refused rows over again, and behind them the rows of their timers that have waited."""
    from relay.cli.outbox import implementation

    implementation.retry(database, rows or [], everything, as_json)


@app.command()
def drop(
    database: Database,
    rows: RowIds = None,
    everything: Everything = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove refused rows for good. The rows of their timers that have waited go on."""
    from relay.cli.outbox import implementation

    implementation.drop(database, rows or [], everything, yes, as_json)


@app.command()
def prune(
    database: Database,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="LENGTH", help="How long ago they were handled at least, such as 30d."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Forget occurrences in the inbox that were handled long ago.

    One that comes again afterwards is handled again: give more than the time for which dead letters are
    redriven.
    """
    from relay.cli.outbox import implementation

    implementation.prune(database, older_than, as_json)
