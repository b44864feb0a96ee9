"""`relay recur calendar …` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import DEFAULT_TARGET, Durability, Json, Note, Target, Timeout

app = typer.Typer(no_args_is_help=True)

CalendarName = Annotated[
    str, typer.Argument(metavar="NAME", help="The calendar's name, such as de-holidays: at most 100 letters.")
]


@app.command()
def put(
    name: CalendarName,
    dates: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(metavar="[DATE]...", help="Its dates, such as 2026-12-24; at most 1,000."),
    ] = None,
    file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--file", "-f", metavar="FILE", help="Its dates from a file, one a line, or - for standard input."
        ),
    ] = None,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Keep a calendar, in the place of the one with this NAME.

    Rules that name it go by it a second later at most. To put the same again changes nothing.
    """
    from relay.cli.recurrences import calendars
    from relay.cli.terminal.relay_connection import RelayConnection

    calendars.put(RelayConnection(target, timeout), name, dates, file, note, durability, as_json)


@app.command()
def get(
    name: CalendarName, target: Target = DEFAULT_TARGET, timeout: Timeout = None, as_json: Json = False
) -> None:
    """Print the dates of a calendar, one a line; exit 3 if there is no such calendar."""
    from relay.cli.recurrences import calendars
    from relay.cli.terminal.relay_connection import RelayConnection

    calendars.get(RelayConnection(target, timeout), name, as_json)


@app.command(name="list")
def list_(target: Target = DEFAULT_TARGET, timeout: Timeout = None, as_json: Json = False) -> None:
    """Show all calendars, in the order of their names."""
    from relay.cli.recurrences import calendars
    from relay.cli.terminal.relay_connection import RelayConnection

    calendars.list_(RelayConnection(target, timeout), as_json)


@app.command()
def delete(
    name: CalendarName,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Remove a calendar; exit 3 if there is no such calendar.

    Rules that name it leave out nothing for it from then on.
    """
    from relay.cli.recurrences import calendars
    from relay.cli.terminal.relay_connection import RelayConnection

    calendars.delete(RelayConnection(target, timeout), name, note, durability, as_json)
