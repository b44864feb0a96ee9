"""`topics`, `stats`, `pause`, `resume` and `run`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from relay.cli.terminal import known_topics, output, parse, tables
from relay.cli.terminal.exits import BAD_INPUT, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.terminal.watching import show_again
from relay.client.calls.topics import GroupInfo, TopicInfo, Topics
from relay.client.errors import CallError

if TYPE_CHECKING:
    from rich.console import RenderableType


def list_(connection: RelayConnection, limit: int, every: str | None, as_json: bool) -> None:
    """Show the state of the first `limit` topics, once or at an interval."""

    async def look(topics: Topics) -> tuple[list[TopicInfo], bool]:
        found: list[TopicInfo] = []
        async for info in topics.list(page_size=min(limit + 1, 1000)):
            if len(found) == limit:
                return found, True
            found.append(info)
        return found, False

    async def render(topics: Topics) -> RenderableType:
        found, has_more = await look(topics)
        if has_more:
            tables.remark(f"there are more: these are the first {limit} (--limit)")
        if not found:
            return "no topics: nothing has been scheduled yet"
        return tables.table(TITLES, [_row(info) for info in found])

    async def print_documents(topics: Topics) -> None:
        for info in (await look(topics))[0]:
            output.document(document(info))

    show_topics(connection, every, print_documents if as_json else None, render)


def stats(connection: RelayConnection, topic: str, every: str | None, as_json: bool) -> None:
    """Show the state of one topic, once or at an interval."""

    is_known = False

    async def look(topics: Topics) -> TopicInfo:
        nonlocal is_known
        info = await topics.get(topic)
        if not is_known:
            await known_topics.require(topics, topic, info)
            is_known = True
        return info

    async def render(topics: Topics) -> RenderableType:
        return output.block(_lines(await look(topics), datetime.now(UTC)))

    async def print_document(topics: Topics) -> None:
        output.document(document(await look(topics)))

    show_topics(connection, every, print_document if as_json else None, render)


def pause(
    connection: RelayConnection,
    topic: str,
    until: str | None,
    length: str | None,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Stop claims of a topic."""
    if until is not None and length is not None:
        fail("--until and --for can't both be given", BAD_INPUT)
    end = parse.instant(until, "--until") if until is not None else None
    duration = parse.length(length, "--for") if length is not None else None
    if duration == timedelta(0):
        fail("--for: is 0; give a longer time, or leave it out to pause until relay resume", BAD_INPUT)

    async def paused(topics: Topics) -> tuple[str, TopicInfo]:
        why = await known_topics.doubt(topics, topic)
        return why, await topics.pause(topic, until=end, duration=duration, note=note, durability=durability)

    why, info = connection.call(paused)
    if why:
        typer.echo(f"relay: {why}", err=True)
    if as_json:
        output.document(document(info))
    else:
        typer.echo(f"paused {output.safe(topic)} {how_long(info)}")


def resume(connection: RelayConnection, topic: str, note: str, durability: str, as_json: bool) -> None:
    """End a pause."""

    async def resumed(topics: Topics) -> TopicInfo:
        await known_topics.require(topics, topic)
        return await topics.resume(topic, note=note, durability=durability)

    info = connection.call(resumed)
    if as_json:
        output.document(document(info))
    else:
        typer.echo(f"resumed {output.safe(topic)}: {info.due} due")


def document(info: TopicInfo) -> dict[str, Any]:
    """Return the state of a topic for scripts."""
    return {
        "topic": info.topic,
        "timers": info.timers,
        "due": info.due,
        "next_claim_time": _iso(info.next_claim_time),
        "dead": info.dead,
        "oldest_death_time": _iso(info.oldest_death_time),
        "paused": info.paused,
        "paused_until": _iso(info.paused_until),
        **({"error": info.error} if info.error else {}),
        "dispatch": info.dispatch,
        **({"ready": info.ready, "processing": info.processing} if info.dispatch == "list" else {}),
        **(
            {"entries": info.entries, "groups": [asdict(each) for each in info.groups]}
            if info.dispatch == "stream"
            else {}
        ),
        **({"partitions": info.partitions} if info.partitions > 1 else {}),
        **({"moving_to": info.moving_to} if info.moving_to else {}),
    }


TITLES = ("topic", "timers>", "due>", "oldest due, or next", "dead>", "paused")


def _row(info: TopicInfo) -> tuple[str, ...]:
    if info.error:
        return info.topic, "?", "?", info.error, "?", ""
    first = _iso(info.next_claim_time) or ""
    paused = how_long(info) if info.paused else ""
    return info.topic, str(info.timers), str(info.due), first, str(info.dead), paused


def _lines(info: TopicInfo, now: datetime) -> list[tuple[str, str]]:
    return [
        ("topic", info.topic),
        ("timers", str(info.timers)),
        ("due", str(info.due)),
        ("oldest due" if info.due else "next", _when(info.next_claim_time, now)),
        ("dead", str(info.dead)),
        ("oldest death", _when(info.oldest_death_time, now)),
        ("paused", how_long(info) if info.paused else "no"),
        *([("partitions", _partitions(info))] if info.partitions > 1 or info.moving_to else []),
        *_behind(info),
    ]


def _partitions(info: TopicInfo) -> str:
    return f"{info.partitions}, moving to {info.moving_to}" if info.moving_to else str(info.partitions)


def _behind(info: TopicInfo) -> list[tuple[str, str]]:
    """Return the state of the topic's list or stream."""
    if info.dispatch == "list":
        return [("ready", str(info.ready)), ("processing", str(info.processing))]
    if info.dispatch != "stream":
        return []
    return [("stream", f"{info.entries} entries"), *(("group", _group(each)) for each in info.groups)]


def _group(group: GroupInfo) -> str:
    unread = "?" if group.unread is None else group.unread
    counts = f"{group.pending} pending, {unread} unread, {group.waiting} waiting, {group.consumers} consumers"
    return f"{output.safe(group.group)}: {counts}"


def how_long(info: TopicInfo) -> str:
    """Say how long a pause lasts, as the end of "paused …"."""
    return f"until {output.iso(info.paused_until)}" if info.paused_until else "until it is resumed"


def pause_of(info: TopicInfo) -> str:
    """Say what a pause does to due timers, and how to end it."""
    topic = output.safe(info.topic)
    return f"relay: {topic} is paused {how_long(info)}, and delivers nothing; relay resume {topic} ends that"


def tell_pause(topic: str, connection: RelayConnection) -> None:
    """Say on standard error that the topic is paused, if it is and the relay answers."""

    async def get(topics: Topics) -> TopicInfo | None:
        with suppress(CallError):  # what was done is done, whether or not the relay tells
            return await topics.get(topic)
        return None

    info = connection.call(get)
    if info is not None and info.paused:
        typer.echo(pause_of(info), err=True)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else output.iso(moment)


def _when(moment: datetime | None, now: datetime) -> str:
    """Format an instant, and how far off it is by this machine's clock."""
    if moment is None:
        return "none"
    return f"{output.iso(moment)} ({distance(moment - now)})"


def distance(span: timedelta) -> str:
    """Format a distance in time: `in 3h 12m`, `5m 2s ago`."""
    seconds = abs(span.total_seconds())
    days, rest = divmod(round(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{n}{unit}" for n, unit in ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")) if n]
    words = " ".join(parts[:2]) or "under 1s"
    return f"{words} ago" if span < timedelta(0) else f"in {words}"


def show_topics(
    connection: RelayConnection,
    every: str | None,
    print_documents: Callable[[Topics], Awaitable[object]] | None,
    render: Callable[[Topics], Awaitable[RenderableType]],
) -> None:
    """Show what calls about topics answer; see `show_again`."""
    documents = None if print_documents is None else (lambda client: print_documents(client.topics))
    show_again(connection, every, documents, lambda client: render(client.topics))
