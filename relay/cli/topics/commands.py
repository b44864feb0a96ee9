"""The commands about topics, and their options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TOPICS,
    Durability,
    Interval,
    Json,
    Limit,
    Note,
    Target,
    Timeout,
    TopicName,
    Watch,
)

app = typer.Typer()
of_all = typer.Typer()
app.add_typer(of_all, name="topics", rich_help_panel=TOPICS)


@of_all.callback(invoke_without_command=True)
def topics(
    context: typer.Context,
    limit: Limit = 100,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show the state of all topics: timers, due timers, dead letters, pauses."""
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.list_(RelayConnection(target, timeout), limit, interval if watch else None, as_json)


def _refuse_options(context: typer.Context) -> None:
    """Refuse options that stand before a subcommand: it would never hear of them, not even of --target."""
    from relay.cli.terminal.exits import BAD_INPUT, fail

    given = [name for name in context.params if _is_typed(context, name)]
    if given:
        fail(f"--{given[0].removeprefix('as_')}: give it after {context.invoked_subcommand}", BAD_INPUT)


def _is_typed(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


@of_all.command()
def reshard(
    topic: TopicName,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", help="How many: a power of two from 1 to 1,024.")
    ],
    max_rate: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--max-rate",
            metavar="N/s",
            help="The most timers a second, for moves that this command begins. Default: no limit.",
        ),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Begin the first step, and don't wait for its end.")
    ] = False,
    note: Note = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Move a topic's timers into another number of partitions, while everything else goes on.

    Each step doubles or halves the number. The relays do the moving: if the command is cut off, the step goes
    on, and the same command waits for it and goes on with the next.
    """
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import resharding

    resharding.reshard(RelayConnection(target, timeout), topic, partitions, max_rate, no_wait, note, as_json)


@app.command(rich_help_panel=TOPICS)
def top(
    limit: Limit = 50,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and end.")] = False,
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="LENGTH", help="The time between two looks, such as 500ms or 5s."),
    ] = "1s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show how all topics stand, once a second until Ctrl-C, those with due timers first."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import top as implementation

    implementation.top(RelayConnection(target, timeout), limit, None if once else interval, as_json)


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
def forecast(
    topic: TopicName,
    horizon: Annotated[
        str, typer.Option("--horizon", metavar="LENGTH", help="How far to look ahead: 1h, 24h, 30d.")
    ] = "1h",
    resolution: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--resolution",
            metavar="LENGTH",
            help="How long an interval is: 1m, 15m, 1d; at most 200 of them. Default: a 60th of the horizon.",
        ),
    ] = None,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show how many timers of a topic fall due in each of the coming intervals."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import forecasting

    connection = RelayConnection(target, timeout)
    forecasting.forecast(connection, topic, horizon, resolution, interval if watch else None, as_json)


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
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Stop deliveries of a topic on every relay. Deliveries in flight go on, and so does scheduling."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.pause(RelayConnection(target, timeout), topic, until, length, note, durability, as_json)


@app.command(rich_help_panel=TOPICS)
def resume(
    topic: TopicName,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """End a pause."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import topic_calls as implementation

    implementation.resume(RelayConnection(target, timeout), topic, note, durability, as_json)
