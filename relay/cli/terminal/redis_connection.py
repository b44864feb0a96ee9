"""For commands that read Redis directly: which Redis they read, and advice when it can't be reached."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from relay.cli.terminal.exits import settings_errors
from relay.settings import Settings, doubtful, load


def load_settings(config: Path | None) -> Settings:
    """Load the settings. Doubtful settings are reported on standard error; an invalid one ends the
    command."""
    with settings_errors():
        settings = load(config)
    for sentence in (*doubtful(os.environ), *unheeded(settings)):
        typer.echo(f"relay: {sentence}", err=True)
    return settings


def unheeded(settings: Settings) -> list[str]:
    """Return a warning that RELAY_TARGET has no effect, if it is set and the Redis URL is not."""
    if not os.environ.get("RELAY_TARGET") or not _is_default(settings):
        return []
    where = f"it reads Redis itself, at {settings.redis.url}, which is the default"
    return [f"RELAY_TARGET has no effect on this command: {where}; RELAY_REDIS__URL names another"]


def advice(settings: Settings) -> str:
    """Return advice for a Redis that can't be reached, as the end of a sentence; empty if its URL was set."""
    if not _is_default(settings):
        return ""
    return (
        "; that is only the default, and this command reads Redis itself, not through a relay: name the "
        "relay's Redis by --config or RELAY_REDIS__URL (relay dev prints the line: export RELAY_REDIS__URL=…)"
    )


def _is_default(settings: Settings) -> bool:
    return "url" not in settings.redis.model_fields_set
