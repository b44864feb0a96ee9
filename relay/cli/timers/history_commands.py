"""The command about one timer's life."""

from __future__ import annotations

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TIMERS,
    Interval,
    Json,
    Limit,
    Target,
    Timeout,
    TimerId,
    TopicName,
    Watch,
)

app = typer.Typer()


@app.command(rich_help_panel=TIMERS)
def history(
    topic: TopicName,
    timer_id: TimerId,
    limit: Limit = 100,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show how a timer stands, and what happened to it, by its topic's journal; exit 3 if nothing is known of
    it.

    With --json, the first document says how it stands, and each further one has an event.
    """
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.timers import history as implementation

    connection = RelayConnection(target, timeout)
    implementation.history(connection, topic, timer_id, limit, interval if watch else None, as_json)
