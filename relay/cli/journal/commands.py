"""`relay journal …` and its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import TOPICS, Config, Json, TopicName

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(app, name="journal", help="Read what happened to a topic's timers.", rich_help_panel=TOPICS)


@app.callback()
def root() -> None:
    """Read what happened to a topic's timers."""


@app.command()
def tail(
    topic: TopicName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new records until Ctrl-C.")] = False,
    after: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--from", metavar="ENTRY", help="Start behind this entry; 0-0 starts at the beginning."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=1000,
            help="Print at most this many records; with --from, the last entry is printed whole.",
        ),
    ] = 100,
    interval: Annotated[
        str,
        typer.Option(
            "--interval",
            metavar="LENGTH",
            help="With --follow: the time between two looks for more, such as 500ms or 5s.",
        ),
    ] = "500ms",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Print the newest records of a topic's journal, or those behind an entry.

    The journal is read from Redis itself, which RELAY_REDIS__URL or --config names; no relay is needed.
    """
    from relay.cli.journal import tail as implementation

    implementation.tail(config, topic, after, limit, interval if follow else None, as_json)
