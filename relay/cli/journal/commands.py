"""`relay journal …` and its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import TOPICS, Config, Json

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(app, name="journal", help="Read what happened to a topic's timers.", rich_help_panel=TOPICS)


@app.callback()
def root() -> None:
    """Read what happened to a topic's timers."""


@app.command()
def tail(
    topic: Annotated[
        Optional[str],  # noqa: UP045 (typer reads it at run time)
        typer.Argument(metavar="TOPIC", help="The topic; with --people it may be left out."),
    ] = None,
    people: Annotated[
        bool, typer.Option("--people", help="Print what people did, and not what happened to timers.")
    ] = False,
    principal: Annotated[
        str,
        typer.Option(
            "--principal",
            metavar="NAME",
            help="With --people: only what this principal did; * stands for any characters.",
        ),
    ] = "*",
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
    """Print the newest records of a topic's journal, or those behind an entry; or what people did.

    The journal is read from Redis itself, which RELAY_REDIS__URL or --config names; no relay is needed.
    """
    from relay.cli.journal import people as of_people
    from relay.cli.journal import tail as implementation
    from relay.cli.terminal.exits import BAD_INPUT, fail

    pause = interval if follow else None
    if people:
        wanted = of_people.Wanted(topic, principal)
        of_people.tail(config, wanted, after, limit, pause, as_json)
    elif topic is None:
        fail("TOPIC: is missing; name the topic whose journal to print, or give --people", BAD_INPUT)
    elif principal != "*":
        fail("--principal: says whose actions to print; give it with --people", BAD_INPUT)
    else:
        implementation.tail(config, topic, after, limit, pause, as_json)
