"""`forecast`: what falls due, a bar for each interval."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from relay.cli.terminal import known_topics, output, parse, tables
from relay.cli.topics.topic_calls import show_topics
from relay.client.calls.topics import Forecast, Topics

if TYPE_CHECKING:
    from rich.console import RenderableType

    from relay.cli.terminal.relay_connection import RelayConnection

WIDEST = 40
"""The characters of the longest bar."""

EIGHTHS = " ▏▎▍▌▋▊▉"


def forecast(
    connection: RelayConnection,
    topic: str,
    horizon: str,
    resolution: str | None,
    every: str | None,
    as_json: bool,
) -> None:
    """Show what falls due in a topic, once or at an interval."""
    ahead = parse.length(horizon, "--horizon")
    each = None if resolution is None else parse.length(resolution, "--resolution")
    is_known = False

    async def look(topics: Topics) -> Forecast:
        nonlocal is_known
        found = await topics.forecast(topic, horizon=ahead, resolution=each)
        if not is_known:
            await known_topics.require(topics, topic)
            is_known = True
        return found

    async def render(topics: Topics) -> RenderableType:
        found = await look(topics)
        tell_what_is_missing(found)
        return tables.table(titles(found), rows(found))

    async def print_document(topics: Topics) -> None:
        output.document(document(await look(topics)))

    show_topics(connection, every, print_document if as_json else None, render)


def document(found: Forecast) -> dict[str, Any]:
    """Return a forecast for scripts."""
    until, cold = found.occurrences_until, found.cold
    return {
        "topic": found.topic,
        "as_of": output.iso(found.as_of),
        "overdue": found.overdue,
        "leased": found.leased,
        "intervals": [
            {
                "start_time": output.iso(each.start_time),
                "end_time": output.iso(each.end_time),
                "timers": each.timers,
                "occurrences": each.occurrences,
                "cold": each.cold,
            }
            for each in found.intervals
        ],
        "later": found.later,
        "occurrences_until": None if until is None else output.iso(until),
        "unread_recurrences": found.unread_recurrences,
        "cold": None
        if cold is None
        else {"count_time": output.iso(cold.count_time), "overdue": cold.overdue, "later": cold.later},
    }


def titles(found: Forecast) -> tuple[str, ...]:
    """The heads of the columns; one about cold stores only where there is anything to say of them."""
    return ("from", "timers>", "occurrences>", *(() if found.cold is None else ("cold>",)), "")


def rows(found: Forecast) -> list[tuple[str, ...]]:
    """The rows of the table: what waits, a bar for each interval, what comes behind them."""
    most = max((each.total for each in found.intervals), default=0)
    leased = "not told apart" if found.leased is None else str(found.leased)
    cold = found.cold

    def cells(count: int | None) -> tuple[str, ...]:
        return () if cold is None else ("" if count is None else str(count),)

    return [
        ("overdue", str(found.overdue), "", *cells(None if cold is None else cold.overdue), ""),
        ("leased", leased, "", *cells(None), ""),
        *(
            (
                _clock(each.start_time),
                str(each.timers),
                str(each.occurrences),
                *cells(each.cold),
                bar(each.total, most),
            )
            for each in found.intervals
        ),
        ("later", str(found.later), "", *cells(None if cold is None else cold.later), ""),
    ]


def bar(count: int, most: int) -> str:
    """A bar as long as `count` is to `most`, by eighths of a character; what is more than none is seen."""
    eighths = 0 if count == 0 else max(round(count / most * WIDEST * 8), 1)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + EIGHTHS[rest].strip()


def tell_what_is_missing(found: Forecast) -> None:
    """Say on standard error what the counts leave out."""
    if found.occurrences_until is not None:
        until = output.iso(found.occurrences_until)
        typer.echo(f"relay: occurrences are counted until {until}: there are too many behind that", err=True)
    if found.unread_recurrences:
        count = found.unread_recurrences
        typer.echo(f"relay: {count} recurrences can't be read by this relay, and are not counted", err=True)
    if found.leased is None:
        why = "there are too many leases and retries to tell them apart"
        typer.echo(f"relay: timers under a lease are counted where their lease ends: {why}", err=True)


def _clock(moment: datetime) -> str:
    """An instant, in UTC, as finely as a table needs it."""
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")
