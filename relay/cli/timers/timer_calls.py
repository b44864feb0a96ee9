"""`schedule`, `cancel`, `get` and `list`, by way of `relay.client`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from relay.cli.terminal import known_topics, output, parse
from relay.cli.terminal.exits import BAD_INPUT, NOT_FOUND, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.terminal.watching import show_again
from relay.cli.topics.topic_calls import pause_of
from relay.client import ChangeResult, RelayClient, TimerChange, TimerState
from relay.client.calls.timer_values import ScheduleOptions
from relay.client.calls.topics import TopicInfo, Topics
from relay.client.errors import CallError

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_PAGE = 500


@dataclass(frozen=True, slots=True)
class TypedOptions:
    """The options of `schedule` that are read from a text."""

    delay: str | None
    at: str | None
    payload: str | None
    payload_file: Path | None
    headers: tuple[str, ...]
    expire_after: str | None
    debounce: str | None
    at_most: str | None
    spread: str | None


def schedule(
    connection: RelayConnection, topic: str, asked: TypedOptions, given: ScheduleOptions, as_json: bool
) -> None:
    """Store a timer and show it. The client gets the options of `given` as they are."""
    if [asked.delay, asked.at, asked.debounce].count(None) != 2:
        fail("give one of --in, --at and --debounce, and only one", BAD_INPUT)
    due_time = parse.instant(asked.at, "--at") if asked.at is not None else None
    headers = parse.headers(asked.headers)
    payload = parse.payload(asked.payload, asked.payload_file)
    options: ScheduleOptions = {
        **given,
        "delay": _length(asked.delay, "--in"),
        "due_time": due_time,
        "headers": headers,
        "expire_after": _length(asked.expire_after, "--expire-after"),
        "debounce": _length(asked.debounce, "--debounce"),
        "at_most": _length(asked.at_most, "--at-most"),
        "spread": _length(asked.spread, "--spread"),
    }
    timer = connection.ask(lambda client: client.schedule(topic, payload, **options))
    output.scheduled(timer, as_json)
    if given.get("expected_load") and timer.expected_load is None:
        typer.echo("relay: the relay can't tell at present what load is expected", err=True)


def _length(text: str | None, option: str) -> timedelta | None:
    return None if text is None else parse.length(text, option)


def cancel(topic: str, timer_id: str, durability: str, connection: RelayConnection, as_json: bool) -> None:
    """Remove a timer."""
    change = connection.ask(lambda client: client.cancel(topic, timer_id, durability=durability))
    told = {
        "cancelled": bool(change),
        "delivery_under_way": change.delivery_under_way,
        "durability": change.durability,
    }
    if as_json:
        output.document({"topic": topic, "timer_id": timer_id, **told})
    elif change:
        typer.echo(
            f"cancelled {output.name(topic, timer_id)}{output.as_durable(change)}{output.under_way(change)}"
        )
    if not change:
        _fail_missing(topic, timer_id, connection)


def get(topic: str, timer_id: str, connection: RelayConnection, as_json: bool) -> None:
    """Show a timer."""
    timer = connection.ask(lambda client: client.get(topic, timer_id))
    if timer is None:
        _fail_missing(topic, timer_id, connection)
    else:
        output.timer(timer, as_json)


def run(
    topic: str, timer_id: str, connection: RelayConnection, note: str, durability: str, as_json: bool
) -> None:
    """Make a timer due now."""

    async def run(client: RelayClient) -> tuple[TimerChange, TopicInfo | None]:
        change = await client.run_timer(topic, timer_id, note=note, durability=durability)
        if not change:
            return change, None
        with suppress(CallError):  # the timer is due, whether or not the relay tells how its topic stands
            return change, await client.topics.get(topic)
        return change, None

    change, info = connection.ask(run)
    result = change.result
    if as_json:
        told = {"result": result.value, "delivery_under_way": change.delivery_under_way}
        if result is not ChangeResult.NOT_FOUND:
            told["durability"] = change.durability
        paused = {} if info is None else {"paused": info.paused}
        output.document({"topic": topic, "timer_id": timer_id, **told, **paused})
    elif result is ChangeResult.IN_FLIGHT:
        typer.echo(f"{output.name(topic, timer_id)} is being delivered right now, and was left alone")
    elif result is ChangeResult.RUN:
        typer.echo(f"{output.name(topic, timer_id)} is due now{output.as_durable(change)}")
    if info is not None and info.paused:
        typer.echo(pause_of(info), err=True)
    if result is ChangeResult.NOT_FOUND:
        _fail_missing(topic, timer_id, connection)


def list_(
    topic: str, state: str | None, limit: int, connection: RelayConnection, every: str | None, as_json: bool
) -> None:
    """Show up to `limit` timers, once or at an interval; JSON lines are printed as they come."""
    wanted = TimerState(state) if state else None

    async def look(client: RelayClient) -> output.Listing:
        listing = output.Listing(as_json)
        async for timer in client.list(topic, state=wanted, page_size=min(limit + 1, MAX_PAGE)):
            if listing.count == limit:
                listing.has_more = True
                break
            listing.add(timer)
        if not listing.count:
            await known_topics.require(client.topics, topic)
        return listing

    async def render(client: RelayClient) -> RenderableType:
        return (await look(client)).rendered(topic)

    show_again(connection, every, look if as_json else None, render)


def _fail_missing(topic: str, timer_id: str, connection: RelayConnection) -> None:
    fail(f"there is no timer {output.name(topic, timer_id)}{_promoted(topic, connection)}", NOT_FOUND)


def _promoted(topic: str, connection: RelayConnection) -> str:
    """Say what else may have become of a timer that isn't there: due timers may have gone to a list or a
    stream."""

    async def ask(topics: Topics) -> str:
        try:
            return (await topics.get(topic)).dispatch
        except CallError:
            return "lease"

    dispatch = connection.call(ask)
    told = "due timers of this topic go to its {} at once, and one that has can't be cancelled any more"
    return "" if dispatch == "lease" else f"; {told.format(dispatch)}"
