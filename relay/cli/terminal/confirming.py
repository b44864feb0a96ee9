"""A question before what can't be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail


def confirm(question: Callable[[], str], *, reason: str, refused: str) -> None:
    """Go on if somebody at the terminal says yes. Without a terminal the command ends, with the `reason` why
    --yes is needed; where the answer is no, it ends with what `refused` says."""
    if not can_ask():
        fail(f"--yes: is needed without a terminal, since {reason}", BAD_INPUT)
    if not typer.confirm(question(), err=True):
        fail(refused, FAILURE)


def can_ask() -> bool:
    """Whether there is a terminal to ask at."""
    return sys.stdin.isatty()
