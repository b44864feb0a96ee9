"""All commands and their options. What a command needs is imported when it runs: each starts fast."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from relay import __version__
from relay.cli import audit_commands, dead_commands, journal_commands, pipeline_commands, topic_commands
from relay.cli.exits import EPILOG
from relay.cli.options import (
    DAEMON,
    DEFAULT_TARGET,
    TIMERS,
    Config,
    Json,
    Target,
    Timeout,
    TimerId,
    TopicName,
)

app = typer.Typer(
    name="relay",
    help="Durable, precise timers on Redis, delivered over gRPC.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, and among those are secrets
    context_settings={"help_option_names": ["-h", "--help"]},
)


class State(StrEnum):
    """The states that `relay list` can ask for."""

    pending = "pending"
    leased = "leased"


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


# ------------------------------------------------------------------------------------- the daemon


@app.command(rich_help_panel=DAEMON)
def serve(config: Config = None) -> None:
    """Run the daemon until SIGTERM or SIGINT.

    Settings come from the file and from RELAY_… variables, which stand above it; `relay config` shows them.
    """
    from relay.cli import daemon

    daemon.serve(config)


@app.command(rich_help_panel=DAEMON)
def dev(
    config: Config = None,
    port: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--port",
            "-p",
            min=1,
            max=65_533,
            help="Port of the gRPC API on 127.0.0.1. Probes and metrics have the next port, the API in JSON "
            "the one after that, unless the settings name others. Default: 7451.",
        ),
    ] = None,
    data_dir: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--data-dir", help="Keep the timers here. Without it they end with the command."),
    ] = None,
) -> None:
    """Run the daemon on an embedded Valkey: nothing else to install or start."""
    from relay.cli import daemon

    daemon.dev(config, port, data_dir)


@app.command(rich_help_panel=DAEMON)
def healthcheck(
    target: Target = DEFAULT_TARGET,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds to try for.")] = 2.0,
) -> None:
    """Ask a relay for its health; exit 0 if it is SERVING, else 1."""
    from relay.cli import health

    health.check(target, timeout)


@app.command(name="config", rich_help_panel=DAEMON)
def show_config(config: Config = None, as_json: Json = False) -> None:
    """Print the settings as the daemon would see them, passwords masked."""
    from relay.cli import daemon

    daemon.show_config(config, as_json)


@app.command(rich_help_panel=DAEMON)
def doctor(
    config: Config = None,
    as_json: Json = False,
    no_push: Annotated[
        bool, typer.Option("--no-push", help="Leave out the applications that are pushed to.")
    ] = False,
) -> None:
    """Look at the settings and at the Redis that they name, and say what is wrong; exit 1 if anything is.

    It tries what a relay does, on a topic of its own, and leaves nothing behind. RELAY_REDIS__URL or --config
    names the Redis, and RELAY_TARGET has no effect. Exit 4 if Redis can't be reached.
    """
    from relay.cli import doctor as implementation

    implementation.doctor(config, as_json, push=not no_push)


# ----------------------------------------------------------------------------------------- timers


@app.command(rich_help_panel=TIMERS)
def schedule(
    topic: TopicName,
    timer_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--id", help="The timer's name; one that lives already is replaced. Default: a random one."
        ),
    ] = None,
    delay: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--in", metavar="DELAY", help="Due so long from now: 5s, 1.5, 2m, 1h30m, 250ms, 1d."),
    ] = None,
    at: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--at", metavar="TIME", help="Due then: ISO 8601 with offset, 2030-01-31T09:00:00Z."),
    ] = None,
    payload: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--payload", metavar="TEXT", help="The content. Default: none."),
    ] = None,
    payload_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--payload-file", metavar="FILE", help="The content from a file, or - for standard input."
        ),
    ] = None,
    header: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="What travels beside it; may be repeated."),
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", help="The payload's media type, such as application/json.")
    ] = "",
    create_only: Annotated[
        bool, typer.Option("--create-only", help="Leave a timer of the id as it is, where one lives.")
    ] = False,
    expire_after: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--expire-after", metavar="LENGTH", help="Never deliver it so long after its due time, or later."
        ),
    ] = None,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Schedule a timer.

    Give --in or --at. With --id, running the command again replaces the timer instead of adding one.
    """
    from relay.cli import timers
    from relay.cli.calling import Door

    asked = timers.Asked(
        topic=topic,
        timer_id=timer_id,
        delay=delay,
        at=at,
        payload=payload,
        payload_file=payload_file,
        headers=tuple(header or ()),
        content_type=content_type,
        create_only=create_only,
        expire_after=expire_after,
    )
    timers.schedule(asked, Door(target, timeout), as_json)


@app.command(rich_help_panel=TIMERS)
def cancel(
    topic: TopicName,
    timer_id: TimerId,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Remove a timer, also while it is being delivered; exit 3 if there is none."""
    from relay.cli import timers
    from relay.cli.calling import Door

    timers.cancel(topic, timer_id, Door(target, timeout), as_json)


@app.command(rich_help_panel=TIMERS)
def get(
    topic: TopicName,
    timer_id: TimerId,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show a timer with its payload; exit 3 if there is none."""
    from relay.cli import timers
    from relay.cli.calling import Door

    timers.get(topic, timer_id, Door(target, timeout), as_json)


@app.command(name="list", rich_help_panel=TIMERS)
def list_(
    topic: TopicName,
    state: Annotated[
        Optional[State],  # noqa: UP045
        typer.Option("--state", help="Only timers in this state."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 100,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """List a topic's timers, the next one first. With --json: one document a line."""
    from relay.cli import timers
    from relay.cli.calling import Door

    timers.list_(topic, state.value if state else None, limit, Door(target, timeout), as_json)


# ------------------------------------------------------------------------- topics and dead letters

app.add_typer(topic_commands.app)
app.add_typer(dead_commands.group)
app.add_typer(journal_commands.group)
app.add_typer(audit_commands.app)

# ------------------------------------------------------------------------------------------- in bulk

app.add_typer(pipeline_commands.commands(), name="pipeline", rich_help_panel=pipeline_commands.PIPELINE)
