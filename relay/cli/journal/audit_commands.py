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
            help="A file that relay journal export wrote, read instead of Redis. May be repeated.",
        ),
    ] = None,
    then_redis: Annotated[
        bool, typer.Option("--then-redis", help="After the files, go on with the stream in Redis.")
    ] = False,
    at_rest: Annotated[bool, typer.Option("--at-rest", help="Require that every timer has ended.")] = False,
    exclusive: Annotated[
        bool,
        typer.Option(
            "--exclusive",
            help="Assume that only relays with this journal ever wrote to the topic. A change without a "
            "record is then a broken promise, and not the work of another writer.",
        ),
    ] = False,
    examples: Annotated[
        int,
        typer.Option(
            "--examples", min=0, max=1000, help="Show at most this many broken cases for each promise."
        ),
    ] = 5,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Replay a topic's journal, and prove or refute promises 1 to 5 and 9 with it, timer by timer.

    The journal is read from Redis itself, which RELAY_REDIS__URL or --config names; no relay is needed. Exit
    0 if all promises are proved, 1 if one is refuted, 2 if a verdict can't be given.
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
        Path,
        typer.Argument(
            metavar="FILE", help="The file to write. If it exists, the export goes on behind its last entry."
        ),
    ],
    config: Config = None,
) -> None:
    """Write a topic's journal to a file before it is trimmed. relay audit reads that file.

    The journal is read from Redis itself, which RELAY_REDIS__URL or --config names; no relay is needed.
    """
    from relay.cli.journal import audit as implementation

    implementation.export(config, topic, file)
