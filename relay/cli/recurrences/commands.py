"""`relay recur …` and its options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Optional

import typer

from relay.cli.recurrences.calendar_commands import app as calendars
from relay.cli.terminal.options import (
    DEFAULT_TARGET,
    RECURRENCES,
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
app.add_typer(calendars, name="calendar", help="Calendars: dates under a name, which rules leave out.")
group = typer.Typer()
group.add_typer(
    app, name="recur", help="Recurrences: what comes again and again.", rich_help_panel=RECURRENCES
)


class Gaps(StrEnum):
    """What --gap can be."""

    shift = "shift"
    skip = "skip"


class Folds(StrEnum):
    """What --fold can be."""

    first = "first"
    second = "second"
    both = "both"


class Overlaps(StrEnum):
    """What --overlap can be."""

    skip = "skip"
    buffer = "buffer"
    allow = "allow"
    cancel = "cancel"


class BackfillOverlaps(StrEnum):
    """What --overlap of a backfill can be."""

    buffer = "buffer"
    allow = "allow"


class CatchUps(StrEnum):
    """What --catch-up can be."""

    latest = "latest"
    all = "all"
    none = "none"


class Formats(StrEnum):
    """What `relay recur import` can read."""

    crontab = "crontab"
    celerybeat = "celerybeat"


RecurrenceId = Annotated[
    str, typer.Argument(metavar="ID", help="The recurrence's name within the topic, at most 200 bytes.")
]
Cron = Annotated[
    Optional[str],  # noqa: UP045 (typer reads it at run time)
    typer.Option(
        "--cron", metavar="EXPRESSION", help="Five fields, or six with seconds first, or @daily and its like."
    ),
]
Rrule = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--rrule", metavar="RULE", help="A rule of RFC 5545, such as FREQ=MONTHLY;BYDAY=-1FR."),
]
Every = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--every", metavar="LENGTH", help="A length of time, such as 90s or 10m."),
]
Anchor = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--anchor",
        metavar="TIME",
        help="From when --every is counted. Default: 1970, so 10m is at full tens.",
    ),
]
Zone = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--zone", metavar="NAME", help="An IANA name such as Europe/Berlin. Default: UTC."),
]
Gap = Annotated[
    Optional[Gaps],  # noqa: UP045
    typer.Option("--gap", help="What becomes of a local time that the zone leaves out. Default: shift."),
]
Fold = Annotated[
    Optional[Folds],  # noqa: UP045
    typer.Option("--fold", help="When a local time fires that comes twice. Default: first."),
]
Start = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--start", metavar="TIME", help="It does not fire before this instant."),
]
End = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--end", metavar="TIME", help="It does not fire from this instant on."),
]
LeaveOut = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--leave-out", metavar="DATE", help="A date without occurrences; may be repeated."),
]
CalendarNames = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--calendar",
        metavar="NAME",
        help="A calendar whose dates have no occurrences; may be repeated. See relay recur calendar.",
    ),
]


@app.command()
def put(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    cron: Cron = None,
    rrule: Rrule = None,
    every: Every = None,
    anchor: Anchor = None,
    zone: Zone = None,
    gap: Gap = None,
    fold: Fold = None,
    start: Start = None,
    end: End = None,
    leave_out: LeaveOut = None,
    calendar: CalendarNames = None,
    payload: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--payload", metavar="TEXT", help="The content of each occurrence. Default: none."),
    ] = None,
    payload_file: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--payload-file", metavar="FILE", help="The content from a file, or - for standard input."
        ),
    ] = None,
    header: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="What travels beside the payload; may be repeated."
        ),
    ] = None,
    content_type: Annotated[
        str, typer.Option("--content-type", help="The payload's media type, such as application/json.")
    ] = "",
    seal_with: Annotated[
        str,
        typer.Option(
            "--seal-with",
            metavar="SUBJECT",
            help="Whom the payload is about; relay seal forget makes it unreadable, and ends the recurrence.",
        ),
    ] = "",
    overlap: Annotated[
        Optional[Overlaps],  # noqa: UP045
        typer.Option("--overlap", help="What happens while the last one has not ended. Default: skip."),
    ] = None,
    catch_up: Annotated[
        Optional[CatchUps],  # noqa: UP045
        typer.Option("--catch-up", help="Which instants of an outage are made up for. Default: latest."),
    ] = None,
    catch_up_window: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--catch-up-window",
            metavar="LENGTH",
            help="How late they may be. Default: a day with all, a minute with none.",
        ),
    ] = None,
    jitter: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--jitter", metavar="LENGTH", help="Each is due up to this much later, at most a day. Default: 0."
        ),
    ] = None,
    expire_after: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            "--expire-after", metavar="LENGTH", help="How long after its due time an occurrence expires."
        ),
    ] = None,
    max_runs: Annotated[
        int,
        typer.Option("--max-runs", min=0, help="The number of occurrences after which it ends; 0: never."),
    ] = 0,
    if_version: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--if-version", min=0, help="Only if it has this version; 0: only if there is none."),
    ] = None,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Keep a recurrence, in the place of the one with this ID.

    Give --cron, --rrule or --every. To put the same again changes nothing.
    """
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    closed = (tuple(leave_out or ()), tuple(calendar or ()))
    rule = asking.TypedRule(cron, rrule, every, anchor, zone, gap, fold, start, end, *closed)
    content = asking.TypedContent(payload, payload_file, tuple(header or ()), content_type, seal_with)
    policies = asking.TypedPolicies(overlap, catch_up, catch_up_window, jitter, expire_after, max_runs)
    options = asking.options(rule, content, policies)
    asking.put(
        RelayConnection(target, timeout), topic, recurrence_id, options, if_version, note, durability, as_json
    )


@app.command()
def get(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show a recurrence: its rule, its last and its next; exit 3 if the topic has no such recurrence."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    asking.get(RelayConnection(target, timeout), topic, recurrence_id, as_json)


@app.command(name="list")
def list_(
    topic: TopicName,
    prefix: Annotated[str, typer.Option("--prefix", help="Only those whose ids begin with this.")] = "",
    paused: Annotated[
        Optional[bool],  # noqa: UP045
        typer.Option("--paused/--not-paused", help="Only those that are paused, or are not."),
    ] = None,
    limit: Limit = 100,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """List a topic's recurrences in the order of their ids. With --json: one document a line."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    connection, every = RelayConnection(target, timeout), interval if watch else None
    asking.list_(connection, topic, prefix, paused, limit, every, as_json)


@app.command()
def preview(
    topic: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="[TOPIC", help="The topic of a recurrence that is kept, or that the rule is for."
        ),
    ] = None,
    recurrence_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(metavar="[ID]]", help="Its name. Without it, the options say the rule."),
    ] = None,
    cron: Cron = None,
    rrule: Rrule = None,
    every: Every = None,
    anchor: Anchor = None,
    zone: Zone = None,
    gap: Gap = None,
    fold: Fold = None,
    start: Start = None,
    end: End = None,
    leave_out: LeaveOut = None,
    calendar: CalendarNames = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000, help="How many instants.")] = 10,
    after: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--after", metavar="TIME", help="Those after this instant. Default: now."),
    ] = None,
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show the next instants of a rule, with what its zone's clocks show, and why some are left out."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    closed = (tuple(leave_out or ()), tuple(calendar or ()))
    rule = asking.TypedRule(cron, rrule, every, anchor, zone, gap, fold, start, end, *closed)
    asking.preview(RelayConnection(target, timeout), topic, recurrence_id, rule, count, after, as_json)


@app.command()
def pause(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Let no occurrence come until relay recur resume; what waits already stays."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    asking.pause(RelayConnection(target, timeout), topic, recurrence_id, note, durability, as_json)


@app.command()
def resume(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """End a pause."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    asking.resume(RelayConnection(target, timeout), topic, recurrence_id, note, durability, as_json)


@app.command()
def trigger(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Make an occurrence now, beside the rule. Run again, it makes another one."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    asking.trigger(RelayConnection(target, timeout), topic, recurrence_id, note, durability, as_json)


@app.command()
def backfill(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="From this instant on: ISO 8601, or a length of time before now."
        ),
    ],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="Before this instant, which has passed.")],
    interval: Annotated[
        str, typer.Option("--interval", metavar="LENGTH", help="Each is due this long after the one before.")
    ] = "0s",
    overlap: Annotated[
        Optional[BackfillOverlaps],  # noqa: UP045
        typer.Option(
            "--overlap",
            help="Whether the next one waits until the last one has ended, or all come at once. "
            "Default: allow if the recurrence has that, else buffer.",
        ),
    ] = None,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Make occurrences for instants that have passed, the earliest first. Run again, it makes them again."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    between = asking.TypedBackfill(start, end, interval, overlap)
    asking.backfill(
        RelayConnection(target, timeout), topic, recurrence_id, between, note, durability, as_json
    )


@app.command()
def delete(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    cancel_waiting: Annotated[
        bool, typer.Option("--cancel-waiting", help="Cancel its occurrences that have not ended, too.")
    ] = False,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Remove a recurrence; exit 3 if the topic has no such recurrence, and no occurrence to cancel."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    asking.delete(
        RelayConnection(target, timeout), topic, recurrence_id, cancel_waiting, note, durability, as_json
    )


@app.command()
def history(
    topic: TopicName,
    recurrence_id: RecurrenceId,
    limit: Annotated[int, typer.Option("--limit", min=1, max=16, help="At most this many instants.")] = 16,
    watch: Watch = False,
    interval: Interval = "2s",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Show what came of the latest instants: the occurrence and how it ended, or why there is none."""
    from relay.cli.recurrences import asking
    from relay.cli.terminal.relay_connection import RelayConnection

    connection, every = RelayConnection(target, timeout), interval if watch else None
    asking.history(connection, topic, recurrence_id, limit, every, as_json)


@app.command()
def apply(
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="The recurrences: YAML in the API's words.")
    ],
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Delete those of the file's topics that the file does not name."),
    ] = False,
    topic: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--topic", metavar="TOPIC", help="With --prune: look in this topic, too; may be repeated."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the difference, and change nothing.")
    ] = False,
    note: Note = "",
    durability: Durability = "",
    target: Target = DEFAULT_TARGET,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Make Redis as a file says, and print the difference first. Pauses stay as they are."""
    from relay.cli.recurrences import applying
    from relay.cli.terminal.relay_connection import RelayConnection

    applying.apply(
        RelayConnection(target, timeout), file, prune, tuple(topic or ()), dry_run, note, durability, as_json
    )


@app.command(name="import")
def import_(
    form: Annotated[Formats, typer.Argument(metavar="FORMAT", help="crontab or celerybeat.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A crontab, or Celery's beat_schedule as Python or JSON.")
    ],
    topic: Annotated[str, typer.Option("--topic", help="The topic of all.")] = "imported",
    zone: Zone = None,
    system: Annotated[
        bool,
        typer.Option("--system", help="A user stands before each command, as in /etc/crontab."),
    ] = False,
) -> None:
    """Print somebody else's schedule as a file for relay recur apply, and say what is not carried over.

    Nothing of the file is run, and no relay is called.
    """
    from relay.cli.recurrences import importing

    importing.import_(form.value, file, topic, zone or "", system)
