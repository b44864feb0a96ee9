"""What the shell offers when somebody presses Tab; it never fails, and never waits for long."""

from __future__ import annotations

import logging
import os
from contextlib import suppress

import typer

PATIENCE = 1.0
"""Seconds for which the relay is asked: somebody waits at the shell."""

MOST = 100
"""Names that are offered."""


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics whose names begin with what is typed, by the relay that the command would call; none if it
    can't be asked."""
    from relay.cli.terminal.options import DEFAULT_TARGET
    from relay.client import RelayError, SyncRelayClient

    target = context.params.get("target") or os.environ.get("RELAY_TARGET") or DEFAULT_TARGET
    logging.disable()  # of this process, which ends with the answer: a word would stand in the shell's line
    found: list[str] = []
    with suppress(RelayError), SyncRelayClient(target, timeout=PATIENCE) as client:
        for info in client.topics.list(page_size=1000):
            if info.topic.startswith(incomplete):
                found.append(info.topic)
            if len(found) == MOST:
                break
    return found
