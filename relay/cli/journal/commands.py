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
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on, until Ctrl-C.")] = False,
    after: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--from", metavar="ENTRY", help="What comes behind this entry; 0-0: from the start."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=1000,
            help="At most so many records; with --from on to the end of their entry.",
        ),
    ] = 100,
    interval: Annotated[
        str,
        typer.Option(
            "--interval", metavar="LENGTH", help="With --follow: how often to look for more, 500ms or 5s."
        ),
    ] = "500ms",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Print the newest records of a topic's journal, or those behind an entry.

    Read from Redis itself, which RELAY_REDIS__URL or --config names; a relay is not needed.
    """
    from relay.cli.journal import tail as implementation

    implementation.tail(config, topic, after, limit, interval if follow else None, as_json)
