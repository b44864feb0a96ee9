"""Options and arguments that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.terminal.completing import topic_names

DAEMON = "The daemon"
TIMERS = "Timers"
TOPICS = "Topics and dead letters"
RECURRENCES = "Recurrences"

DEFAULT_TARGET = "127.0.0.1:7451"

Config = Annotated[
    Optional[Path],  # noqa: UP045 (typer reads it at run time)
    typer.Option("--config", "-c", envvar="RELAY_CONFIG", help="The settings, a YAML file."),
]
Target = Annotated[
    str, typer.Option("--target", envvar="RELAY_TARGET", help="The relay: host:port or unix:/path.")
]
Timeout = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        "--timeout",
        min=0.001,
        help="Seconds to keep trying. Default: 10, or 1 if an address of this machine takes no connection.",
    ),
]
Durability = Annotated[
    str,
    typer.Option(
        "--durability",
        metavar="LEVEL",
        help="Wait until it is as durable: fsync, replicas:1, fsync+replicas:1. Default: the topic's.",
    ),
]
Note = Annotated[
    str,
    typer.Option("--note", metavar="TEXT", help="Why, for the action log: see journal tail --people."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", autocompletion=topic_names)]
TimerId = Annotated[str, typer.Argument(metavar="ID", help="The timer's name within the topic.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")]
Interval = Annotated[
    str,
    typer.Option(
        "--interval", metavar="LENGTH", help="With --watch: the time between two looks, such as 500ms or 5s."
    ),
]


class Conflict(StrEnum):
    """Which timer stands where one with the id exists."""

    REPLACE = "replace"
    KEEP_EARLIEST = "keep-earliest"
    KEEP_LATEST = "keep-latest"
    KEEP_EXISTING = "keep-existing"


class ListState(StrEnum):
    """The states by which commands choose timers."""

    pending = "pending"
    leased = "leased"
