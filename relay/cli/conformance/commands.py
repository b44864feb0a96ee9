"""`relay conformance` and its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import Json

APPLICATIONS = "Applications"

app = typer.Typer()


@app.command(rich_help_panel=APPLICATIONS)
def conformance(
    client: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="COMMAND",
            help="What starts the client. A scene adds its arguments: handle TOPIC PLACES, push TOPIC "
            "ADDRESS PLACES, or schedule TOPIC ID DELAY_MS PAYLOAD.",
        ),
    ],
    scene: Annotated[
        Optional[list[str]],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--scene", metavar="NAME", help="Play this scene only; may be given again."),
    ] = None,
    patience: Annotated[
        float,
        typer.Option("--patience", min=0.1, help="Seconds for each step, once the client has started."),
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Play scenes to a client in any language, and judge it by what it answers; exit 1 if a rule is broken.

    The relay of the scenes is scripted and needs no Redis. docs/reference/conformance.md has the scenes and
    what the command has to do.
    """
    from relay.cli.conformance import playing

    playing.play(client, scene or [], patience, as_json)
