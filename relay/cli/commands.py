"""The command `relay` with all of its subcommands. Each is in a module of its own, and imports what it needs
when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from relay import __version__
from relay.cli.app import commands as applications
from relay.cli.conformance import commands as conformance
from relay.cli.daemon import commands as daemon
from relay.cli.daemon import token_commands
from relay.cli.journal import audit_commands as audit
from relay.cli.journal import commands as journal
from relay.cli.outbox import commands as outbox
from relay.cli.pipeline import commands as pipeline
from relay.cli.policy import commands as policy
from relay.cli.recurrences import commands as recurrences
from relay.cli.sealing import commands as sealing
from relay.cli.terminal.exits import EPILOG
from relay.cli.timers import cancel_commands, history_commands
from relay.cli.timers import commands as timers
from relay.cli.topics import commands as topics
from relay.cli.topics import dead_letter_commands as dead_letters

app = typer.Typer(
    name="relay",
    help="Durable, precise timers on Redis, delivered over gRPC.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, some of which are secrets
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relay {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable, precise timers on Redis, delivered over gRPC."""


app.add_typer(daemon.app)
app.add_typer(token_commands.app)
app.add_typer(timers.app)
app.add_typer(cancel_commands.app)
app.add_typer(history_commands.app)
app.add_typer(recurrences.group)
app.add_typer(applications.group)
app.add_typer(outbox.group)
app.add_typer(topics.app)
app.add_typer(dead_letters.group)
app.add_typer(journal.group)
app.add_typer(audit.app)
app.add_typer(policy.group)
app.add_typer(sealing.group)
app.add_typer(conformance.app)
app.add_typer(pipeline.group, name="pipeline", rich_help_panel=pipeline.PIPELINE)
