"""Shows something once, or again and again: what --watch and --interval do, for every command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from relay.cli.terminal import parse, tables
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.client import RelayClient

if TYPE_CHECKING:
    from rich.console import RenderableType

SHORTEST_INTERVAL = 0.1
"""The shortest interval in seconds: each look costs the relay and Redis a call at least."""


def show_again(
    connection: RelayConnection,
    every: str | None,
    print_documents: Callable[[RelayClient], Awaitable[object]] | None,
    render: Callable[[RelayClient], Awaitable[RenderableType]],
) -> None:
    """Show something once, or at an interval until Ctrl-C; as JSON documents with `print_documents`. `every`
    is what was typed as --interval, None without --watch."""
    seconds = None if every is None else parse.length(every, "--interval").total_seconds()
    if seconds is not None and seconds < SHORTEST_INTERVAL:
        fail(f"--interval: must be at least {SHORTEST_INTERVAL:g}s, got {every!r}", BAD_INPUT)

    async def run(client: RelayClient) -> None:
        if seconds is None and print_documents is not None:
            await print_documents(client)
        elif seconds is None:
            tables.show(await render(client))
        elif print_documents is not None:
            while True:
                await print_documents(client)
                await asyncio.sleep(seconds)
        else:
            await tables.watch(seconds, lambda: render(client))

    try:
        connection.ask(run)
    except KeyboardInterrupt:
        if seconds is None:
            raise
