"""`relay dead …` and its options."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    TOPICS,
    Durability,
    Interval,
    Json,
    Limit,
    Note,
    Target,
    Timeout,
    TopicName,
    Watch,
)

app = typer.Typer(no_args_is_help=True)
group = typer.Typer()
group.add_typer(app, name="dead", help="Inspect, redrive or purge dead letters.", rich_help_panel=TOPICS)

OfTimer = Annotated[
    Optional[str],  # noqa: UP045 (typer reads it at run time)
    typer.Option("--timer-id", metavar="ID", help="Only dead letters of this timer."),
]
Reason = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--reason", help="Only this reason: attempts, claims, age, expired, rejected, failed, unreadable."
    ),
]
Since = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only deaths at or after this instant: ISO 8601, or a length of time before now, such as 1h.",
    ),
]
Before = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--before", metavar="TIME", help="Only deaths before this instant."),
]
DeadIds = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Argument(metavar="DEAD_ID", help="Ids as `relay dead list` shows them."),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters that the topic has now.")]
Rate = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--rate", metavar="N/s", help="The most dead letters a second. Default: no limit."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list them.")]


@app.command(name="list")
def list_(
    topic: TopicName,
    timer_id: OfTimer = None,
    reason: Reason = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 100,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Look through all dead letters for those that match, not just the first 20 pages."
        ),
    ] = False,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """List a topic's dead letters, the oldest death first. With --json: one document a line."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import dead_letters
    from relay.cli.topics.dead_letter_selection import LetterOptions

    asked = LetterOptions(timer_id, reason, since, before)
    connection, every = RelayConnection(target, timeout), interval if watch else None
    dead_letters.list_(connection, topic, asked, limit, everything, every, as_json)


@app.command()
def get(
    topic: TopicName,
    dead_id: Annotated[str, typer.Argument(metavar="DEAD_ID", help="The id as `relay dead list` shows it.")],
    most: Annotated[
        int, typer.Option("--bytes", min=0, help="Show at most this many bytes of the payload.")
    ] = 1024,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show a dead letter with its payload; exit 3 if there is none."""
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import dead_letters

    dead_letters.get(RelayConnection(target, timeout), topic, dead_id, most, as_json)


@app.command()
def redrive(
    topic: TopicName,
    dead_ids: DeadIds = None,
    timer_id: OfTimer = None,
    reason: Reason = None,
    since: Since = None,
    before: Before = None,
    everything: Everything = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Bring dead letters back to life, due now and with attempts from 1.

    A dead letter whose timer exists again is left alone and reported: exit 1. If the command is cut off, the
    same command goes on where it was. With --json: one document a line, for each dead letter.
    """
    from relay.cli.terminal import parse
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import redrive_and_purge
    from relay.cli.topics.dead_letter_selection import LetterOptions, Selection

    selection = Selection.of(dead_ids or (), LetterOptions(timer_id, reason, since, before), everything)
    how = redrive_and_purge.How(
        parse.rate(rate, "--rate") if rate is not None else 0.0, dry_run, note, durability, as_json
    )
    redrive_and_purge.redrive(RelayConnection(target, timeout), topic, selection, how)


@app.command()
def purge(
    topic: TopicName,
    dead_ids: DeadIds = None,
    timer_id: OfTimer = None,
    reason: Reason = None,
    since: Since = None,
    before: Before = None,
    everything: Everything = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Remove dead letters for good."""
    from relay.cli.terminal import parse
    from relay.cli.terminal.relay_connection import RelayConnection
    from relay.cli.topics import redrive_and_purge
    from relay.cli.topics.dead_letter_selection import LetterOptions, Selection

    selection = Selection.of(dead_ids or (), LetterOptions(timer_id, reason, since, before), everything)
    how = redrive_and_purge.How(
        parse.rate(rate, "--rate") if rate is not None else 0.0, dry_run, note, durability, as_json
    )
    redrive_and_purge.purge(RelayConnection(target, timeout), topic, selection, how, yes)
