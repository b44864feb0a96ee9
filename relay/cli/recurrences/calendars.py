"""`relay recur calendar put`, `get`, `list` and `delete`, by way of `relay.client`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from relay.cli.terminal import output, tables
from relay.cli.terminal.exits import BAD_INPUT, NOT_FOUND, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.client import Calendar, PutResult
from relay.core.errors import InvalidField
from relay.core.recurring.calendars import check_date

MOST_BYTES = 1 << 20
"""The largest file of dates, in bytes."""


def put(
    connection: RelayConnection,
    name: str,
    dates: Sequence[str] | None,
    file: Path | None,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Keep a calendar."""
    if dates and file is not None:
        fail("give DATES or --file, not both", BAD_INPUT)
    if not dates and file is None:
        fail(
            "give DATES or --file: without any the calendar would be empty, as --file /dev/null makes it",
            BAD_INPUT,
        )
    days = list(dates or ()) if file is None else read_dates(file)
    result = connection.ask(lambda client: client.calendars.put(name, days, note=note, durability=durability))
    count = len(set(days))
    if as_json:
        output.document({"name": name, "dates": sorted(set(days)), "result": result.value})
    elif result is PutResult.UNCHANGED:
        typer.echo(f"left {output.safe(name)} as it is: {_dates(count)}")
    else:
        typer.echo(f"{result.value} {output.safe(name)}: {_dates(count)}")


def read_dates(file: Path) -> list[str]:
    """The dates of a file, one a line; empty lines, and what follows a #, are left out."""
    where = "standard input" if str(file) == "-" else str(file)
    try:
        raw = sys.stdin.buffer.read(MOST_BYTES + 1) if str(file) == "-" else _content(file)
    except OSError as error:
        fail(f"--file: {where} can't be read: {error.strerror or error}", BAD_INPUT)
    if len(raw) > MOST_BYTES:
        fail(f"--file: {where} has more than {MOST_BYTES:,} bytes", BAD_INPUT)
    found: list[str] = []
    for number, line in enumerate(raw.decode(errors="replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            check_date(f"{where}: line {number}", text)
        except InvalidField as failure:
            fail(f"--file: {failure}", BAD_INPUT)
        found.append(text)
    return found


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MOST_BYTES + 1)


def get(connection: RelayConnection, name: str, as_json: bool) -> None:
    """Print the dates of a calendar, as `put --file` takes them."""
    found = connection.ask(lambda client: client.calendars.get(name))
    if found is None:
        _fail_missing(name)
    elif as_json:
        output.document(_document(found))
    else:
        for each in found.dates:
            typer.echo(each.isoformat())


def list_(connection: RelayConnection, as_json: bool) -> None:
    """Show all calendars."""
    found = connection.ask(lambda client: client.calendars.list())
    if as_json:
        for each in found:
            output.document(_document(each))
    elif found:
        rows = [(each.name, str(len(each.dates)), _first(each), _last(each)) for each in found]
        tables.show(tables.table(("calendar", "dates>", "first", "last"), rows))
    else:
        typer.echo("no calendars", err=True)


def delete(connection: RelayConnection, name: str, note: str, durability: str, as_json: bool) -> None:
    """Remove a calendar."""
    deleted = connection.ask(lambda client: client.calendars.delete(name, note=note, durability=durability))
    if as_json:
        output.document({"name": name, "deleted": deleted})
    elif deleted:
        typer.echo(f"deleted {output.safe(name)}")
    if not deleted:
        _fail_missing(name)


def _fail_missing(name: str) -> None:
    fail(f"there is no calendar {name!r}; relay recur calendar list shows those there are", NOT_FOUND)


def _document(found: Calendar) -> dict[str, Any]:
    return {"name": found.name, "dates": [each.isoformat() for each in found.dates]}


def _dates(count: int) -> str:
    return f"{count:,} {'date' if count == 1 else 'dates'}"


def _first(found: Calendar) -> str:
    return found.dates[0].isoformat() if found.dates else ""


def _last(found: Calendar) -> str:
    return found.dates[-1].isoformat() if found.dates else ""
