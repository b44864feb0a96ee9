"""`relay policy …` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import DAEMON, Config, Json

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(app, name="policy", help="The policy: which callers may do what.", rich_help_panel=DAEMON)


@app.command()
def check(file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy, a YAML file.")]) -> None:
    """Check a policy, and say with its line what is wrong; exit 2 if anything is."""
    from relay.cli.policy import asking

    asking.check(file)


@app.command("test")
def ask(
    principal: Annotated[
        str,
        typer.Option(
            "--as", metavar="NAME", help="The principal, such as token:ops, spiffe://… or anonymous."
        ),
    ],
    verb: Annotated[str, typer.Option("--verb", help="schedule, read, payload, deliver, operate or admin.")],
    topic: Annotated[
        str, typer.Option("--topic", help="The topic; '*' for what belongs to none, such as calendars.")
    ],
    file: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--file", "-f", help="The policy. Default: policy_file of the settings."),
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Say whether a principal may do something to a topic, and by which rule; exit 1 if it is denied."""
    from relay.cli.policy import asking

    asking.ask(principal, verb, topic, file, config, as_json)
