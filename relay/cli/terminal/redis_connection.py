"""Commands that read Redis itself, and not through a relay: which Redis, and what to do where it is away."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from relay.cli.terminal.exits import settings_errors
from relay.settings import Settings, doubtful, load


def load_settings(config: Path | None) -> Settings:
    """The settings; what is odd about them is told on standard error, what is wrong ends the command."""
    with settings_errors():
        settings = load(config)
    for sentence in (*doubtful(os.environ), *unheeded(settings)):
        typer.echo(f"relay: {sentence}", err=True)
    return settings


def unheeded(settings: Settings) -> list[str]:
    """That RELAY_TARGET doesn't lead here, where nothing else says which Redis is meant."""
    if not os.environ.get("RELAY_TARGET") or not _is_default(settings):
        return []
    where = f"it reads Redis itself, at {settings.redis.url}, which is the default"
    return [f"RELAY_TARGET has no effect on this command: {where}; RELAY_REDIS__URL names another"]


def advice(settings: Settings) -> str:
    """What to do where Redis can't be reached, as the end of a sentence; empty where its URL was set."""
    if not _is_default(settings):
        return ""
    return (
        "; that is only the default, and this command reads Redis itself, not through a relay: name the "
        "relay's Redis by --config or RELAY_REDIS__URL (relay dev prints the line: export RELAY_REDIS__URL=…)"
    )


def _is_default(settings: Settings) -> bool:
    return "url" not in settings.redis.model_fields_set
