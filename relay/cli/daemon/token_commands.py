"""The commands about static tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.options import DAEMON

app = typer.Typer()
group = typer.Typer(help="Static tokens, by which callers prove who they are.", no_args_is_help=True)
app.add_typer(group, name="token", rich_help_panel=DAEMON)


@group.callback()
def tokens() -> None:
    """Static tokens, by which callers prove who they are."""


@group.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The caller: `token:NAME` to the relay.")],
    file: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads it at run time)
        typer.Option("--file", help="Append the line to this file, authentication.tokens_file."),
    ] = None,
) -> None:
    """Make a token: print it, for the caller alone, and the line by which the relay knows it.

    The line goes to --file, or to standard error. Nobody can find the token from it, so keep the token now.
    """
    from relay.trust import tokens

    if not tokens.NAME.fullmatch(name):
        fail("NAME: must be 1 to 64 letters, digits, '.', '_' or '-'", BAD_INPUT)
    token = tokens.new()
    line = tokens.line(name, token)
    if file is None:
        typer.echo(line, err=True)
    else:
        try:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(f"{line}\n")
        except OSError as error:
            fail(f"--file: {file} can't be written: {error.strerror or error}", BAD_INPUT)
    typer.echo(token)
