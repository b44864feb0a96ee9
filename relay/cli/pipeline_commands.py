"""`relay pipeline …`: what all its commands share. Each job's own file adds its command to `group`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import typer

from relay.cli.exits import FAILURE, fail

PIPELINE = "Timers in bulk"

NEEDS_PIPELINE = "this needs Spark; install it with: pip install 'relay-timers[pipeline]'"

group = typer.Typer(help="Load, store, sweep and audit timers in bulk, by Spark.", no_args_is_help=True)


@contextmanager
def spark_installed() -> Generator[None, None, None]:
    """Around the import of `relay.pipeline`: a missing Spark ends the command with a sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "relay":
            raise
        fail(NEEDS_PIPELINE, FAILURE)
