"""The commands about timers, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TIMERS,
    Conflict,
    Durability,
    Interval,
    Json,
    Limit,
    ListState,
    Note,
    Target,
    Timeout,
    TimerId,
    TopicName,
    Watch,
)

app = typer.Typer()


@app.command(rich_help_panel=TIMERS)
def schedule(
    topic: TopicName,
    timer_id: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--id", help="The timer's name; an existing timer is replaced. Default: a random name."),
    ] = None,
    delay: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--in",
            metavar="DELAY",
            help="How long from now it is due: 5s, 1.5 (seconds), 2m, 1h30m, 250ms, 1d.",
        ),
    ] = None,
    at: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--at",
            metavar="TIME",
            help="When it is due: ISO 8601 with an offset, such as 2030-01-31T09:00:00Z.",
        ),
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
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="What travels beside the payload; may be repeated."
        ),
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", help="The payload's media type, such as application/json.")
    ] = "",
    create_only: Annotated[
        bool, typer.Option("--create-only", help="Leave an existing timer with this id as it is.")
    ] = False,
    on_conflict: Annotated[
        Optional[Conflict],  # noqa: UP045
        typer.Option(
            "--on-conflict",
            help="Which timer stands where one with this id exists. Default: replace.",
        ),
    ] = None,
    debounce: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--debounce",
            metavar="LENGTH",
            help="Make it due this long after the last such command for this id.",
        ),
    ] = None,
    at_most: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--at-most",
            metavar="LENGTH",
            help="With --debounce: how long after the first such command it is due at the latest.",
        ),
    ] = None,
    spread: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--spread",
            metavar="LENGTH",
            help="Move its due time back by less than this, to a place that its id decides.",
        ),
    ] = None,
    expire_after: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--expire-after",
            metavar="LENGTH",
            help="How long after its due time it expires; no delivery begins from then on.",
        ),
    ] = None,
    seal_with: Annotated[
        str,
        typer.Option(
            "--seal-with",
            metavar="SUBJECT",
            help="Whom the payload is about; relay seal forget makes it unreadable for good.",
        ),
    ] = "",
    durability: Durability = "",
    expected_load: Annotated[
        bool, typer.Option("--expected-load", help="Say how late it will be, by what else falls due.")
    ] = False,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Schedule a timer.

    Give --in, --at or --debounce. With --id, the command replaces the timer when it is run again, instead of
    adding one.
    """
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.timers import timer_calls
    from relay.client import OnConflict

    asked = timer_calls.TypedOptions(
        delay=delay,
        at=at,
        payload=payload,
        payload_file=payload_file,
        headers=tuple(header or ()),
        expire_after=expire_after,
        debounce=debounce,
        at_most=at_most,
        spread=spread,
    )
    conflict = OnConflict[on_conflict.name] if on_conflict else None
    timer_calls.schedule(
        RelayConnection(target, timeout),
        topic,
        asked,
        {
            "timer_id": timer_id,
            "content_type": content_type,
            "create_only": create_only,
            "on_conflict": conflict,
            "seal_with": seal_with,
            "durability": durability,
            "expected_load": expected_load,
        },
        as_json,
    )


@app.command(rich_help_panel=TIMERS)
def get(
    topic: TopicName,
    timer_id: TimerId,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show a timer with its payload; exit 3 if the topic has no such timer."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.timers import timer_calls

    timer_calls.get(topic, timer_id, RelayConnection(target, timeout), as_json)


@app.command(name="list", rich_help_panel=TIMERS)
def list_(
    topic: TopicName,
    state: Annotated[
        Optional[ListState],  # noqa: UP045
        typer.Option("--state", help="Only timers in this state."),
    ] = None,
    limit: Limit = 100,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """List a topic's timers, the next one first. With --json: one document a line."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.timers import timer_calls

    connection, every = RelayConnection(target, timeout), interval if watch else None
    timer_calls.list_(topic, state.value if state else None, limit, connection, every, as_json)


@app.command(rich_help_panel=TIMERS)
def run(
    topic: TopicName,
    timer_id: TimerId,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Make a waiting timer due now, keeping its attempts; exit 3 if the topic has no such timer."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.timers import timer_calls

    timer_calls.run(topic, timer_id, RelayConnection(target, timeout), note, durability, as_json)
