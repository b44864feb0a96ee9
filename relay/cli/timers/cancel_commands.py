"""The command `cancel`, for one timer and for many."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TIMERS,
    Durability,
    Json,
    ListState,
    Target,
    Timeout,
    TopicName,
)

app = typer.Typer()


@app.command(rich_help_panel=TIMERS)
def cancel(
    topic: TopicName,
    timer_id: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Argument(metavar="ID", help="The timer's name within the topic. Without it: many."),
    ] = None,
    prefix: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--prefix", metavar="TEXT", help="All timers whose ids begin with this."),
    ] = None,
    due_between: Annotated[
        Optional[tuple[str, str]],  # noqa: UP045
        typer.Option(
            "--due-between",
            metavar="TIME TIME",
            help="All timers that are due from the first instant on and before the second one.",
        ),
    ] = None,
    state: Annotated[
        Optional[ListState],  # noqa: UP045
        typer.Option("--state", help="All timers in this state."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Cancel nothing, and show how many it would be.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before many are cancelled.")] = False,
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Remove a timer, even while it is being delivered; exit 3 if the topic has no such timer.

    Without an ID, remove all that --prefix, --due-between and --state say, after a question. What changes
    meanwhile, so that they don't say it any more, is left alone. The command may be cut off, and given again.
    """
    from relay.cli.terminal.exits import BAD_INPUT, fail
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.timers import cancelling, timer_calls

    connection = RelayConnection(target, timeout)
    many = prefix is not None or due_between is not None or state is not None
    if timer_id is None:
        selection = cancelling.TimerSelection.of(prefix, due_between, state.value if state else None)
        cancelling.cancel_many(
            connection, topic, selection, cancelling.CancelOptions(dry_run, yes, durability, as_json)
        )
    elif many or dry_run or yes:
        fail("an ID can't be given with --prefix, --due-between, --state, --dry-run or --yes", BAD_INPUT)
    else:
        timer_calls.cancel(topic, timer_id, durability, connection, as_json)
