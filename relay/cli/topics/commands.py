"""The commands about topics, and their options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TOPICS,
    Interval,
    Json,
    Limit,
    Target,
    Timeout,
    TopicName,
    Watch,
)

app = typer.Typer()


@app.command(rich_help_panel=TOPICS)
def topics(
    limit: Limit = 100,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show the state of all topics: timers, due timers, dead letters, pauses."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.list_(RelayConnection(target, timeout), limit, interval if watch else None, as_json)


@app.command(rich_help_panel=TOPICS)
def stats(
    topic: TopicName,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show the state of one topic."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.stats(RelayConnection(target, timeout), topic, interval if watch else None, as_json)


@app.command(rich_help_panel=TOPICS)
def pause(
    topic: TopicName,
    until: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--until",
            metavar="TIME",
            help="When the pause ends: ISO 8601 with an offset. Default: at relay resume.",
        ),
    ] = None,
    length: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--for", metavar="DURATION", help="How long the pause lasts: 30s, 10m, 1h30m."),
    ] = None,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Stop deliveries of a topic on every relay. Deliveries in flight go on, and so does scheduling."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.pause(RelayConnection(target, timeout), topic, until, length, as_json)


@app.command(rich_help_panel=TOPICS)
def resume(
    topic: TopicName, target: Target = DEFAULT_TARGET, timeout: Timeout = None, as_json: Json = False
) -> None:
    """End a pause."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.resume(RelayConnection(target, timeout), topic, as_json)
