"""`relay audit` and `relay journal export`, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.journal import commands
from relay.cli.terminal.options import TOPICS, Config, Json, TopicName

app = typer.Typer()


@app.command(rich_help_panel=TOPICS)
def audit(
    topic: TopicName,
    files: Annotated[
        Optional[list[Path]],  # noqa: UP045 (typer reads it at run time)
        typer.Option(
            "--file",
            "-f",
            help="What relay journal export wrote, instead of the stream in Redis. May be repeated.",
        ),
    ] = None,
    then_redis: Annotated[
        bool, typer.Option("--then-redis", help="After the files, go on with the stream in Redis.")
    ] = False,
    at_rest: Annotated[
        bool, typer.Option("--at-rest", help="Every timer must have ended: none may wait.")
    ] = False,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Nobody but relays with this journal has ever written to the topic: whatever has no record "
            "is then a break, and not somebody else's doing.",
        ),
    ] = False,
    examples: Annotated[
        int, typer.Option("--examples", min=0, max=1000, help="Show at most so many for each promise.")
    ] = 5,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Replay a topic's journal, and prove or refute promises 1 to 5 by it, timer by timer.

    Read from Redis itself, which RELAY_REDIS__URL or --config names; a relay is not needed. Exit 0 if all are
    proved, 1 if one is refuted, 2 if something can't be said.
    """
    from relay.cli.journal import audit as implementation

    asked = implementation.AuditRequest(
        topic=topic,
        files=files or (),
        redis=then_redis or not files,
        at_rest=at_rest,
        exclusive=exclusive,
        examples=examples,
    )
    implementation.audit(config, asked, as_json)


@commands.app.command()
def export(
    topic: TopicName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to. One that is there is gone on with.")
    ],
    config: Config = None,
) -> None:
    """Write a topic's journal to a file, before it is trimmed: relay audit reads it.

    Read from Redis itself, which RELAY_REDIS__URL or --config names; a relay is not needed.
    """
    from relay.cli.journal import audit as implementation

    implementation.export(config, topic, file)
