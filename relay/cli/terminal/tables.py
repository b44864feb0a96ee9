"""Tables for people, and displays that refresh: on a terminal, and in a pipe."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

import typer

from relay.cli.terminal.output import safe

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Rows: TypeAlias = Sequence[Sequence[str]]

_remarks: ContextVar[list[str] | None] = ContextVar("remarks", default=None)
"""What is said below a display at this look; None where there is no display."""

PIPE_WIDTH = 1000
"""The width in a pipe, where a row stays one line however long it is."""


def console(*, err: bool = False) -> Console:
    """Where rich prints: standard output or standard error."""
    from rich.console import Console

    stream = sys.stderr if err else sys.stdout
    return Console(stderr=err, width=None if stream.isatty() else PIPE_WIDTH)


def table(titles: Sequence[str], rows: Rows) -> RenderableType:
    """Make a table. Titles that end with `>` stand above numbers. Cells are escaped, and never cut."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        made.add_column(
            title.removesuffix(">"), overflow="fold", justify="right" if title.endswith(">") else "left"
        )
    for row in rows:
        made.add_row(*(Text(safe(cell)) for cell in row))
    return made


def show(what: RenderableType) -> None:
    """Print something once; nothing for an empty text."""
    if isinstance(what, str):
        if what:
            typer.echo(what)
    else:
        console().print(what)


def remark(text: str) -> None:
    """Say something about what is shown: on standard error, or below it in a display that refreshes, where
    it would push the display down a line at each look."""
    remarks = _remarks.get()
    if remarks is None:
        typer.echo(text, err=True)
    else:
        remarks.append(text)


async def watch(every: float, look: Callable[[], Awaitable[RenderableType]]) -> None:
    """Show what `look` answers every `interval` seconds, without end; a terminal shows it in one place."""
    where = console()
    if not where.is_terminal:
        while True:
            show(await look())
            sys.stdout.flush()
            await asyncio.sleep(every)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=where, auto_refresh=False, screen=False) as live:
        while True:
            remarks: list[str] = []
            _remarks.set(remarks)
            seen = await look()
            shown = [Text(each) if isinstance(each, str) else each for each in (seen, *remarks) if each]
            live.update(Group(*shown), refresh=True)
            await asyncio.sleep(every)
