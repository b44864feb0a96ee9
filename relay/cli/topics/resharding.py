"""`topics reshard`: has a topic moved into another number of partitions, and waits for that.

The relays do the moving. The command begins each step, and may be cut off at any moment.
"""

from __future__ import annotations

import asyncio
import math

import typer

from relay.cli.terminal import known_topics, output, parse
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.topics.topic_calls import document
from relay.client.calls.topics import TopicInfo, Topics
from relay.core.partitions import MAX_PARTITIONS, is_count

LOOK = 1.0
"""Seconds between two looks at a move; each costs a script call for every partition."""


def reshard(
    connection: RelayConnection,
    topic: str,
    partitions: int,
    max_rate: str | None,
    no_wait: bool,
    note: str,
    as_json: bool,
) -> None:
    """Begin one step after the other until the topic has that many partitions; with `no_wait`, only one."""
    if not is_count(partitions):
        words = f"must be a power of two from 1 to {MAX_PARTITIONS:,}, got {partitions}"
        fail(f"--partitions: {words}", BAD_INPUT)
    # Less than one a second would be 0, which means no bound.
    rate = math.ceil(parse.rate(max_rate, "--max-rate")) if max_rate is not None else 0
    has_begun = False

    async def run(topics: Topics) -> TopicInfo:
        nonlocal has_begun
        await known_topics.require(topics, topic)
        info = await topics.reshard(topic, partitions, max_rate=rate, note=note)
        has_begun = True
        while not no_wait and not _is_there(info, partitions):
            if info.moving_to:
                typer.echo(f"relay: {_move(info)}{_afterwards(info, partitions)}", err=True)
                info = await _ended(topics, info)
            if not info.moving_to:
                info = await topics.reshard(topic, partitions, max_rate=rate, note=note)
        return info

    try:
        info = connection.call(run)
    except (KeyboardInterrupt, typer.Exit) as cut:
        if not has_begun:
            raise
        words = "a move that has begun goes on in the relays; run the same command again to wait for its end"
        typer.echo(f"relay: cut off: {words}", err=True)
        raise typer.Exit(cut.exit_code if isinstance(cut, typer.Exit) else FAILURE) from None
    _tell(info, partitions, as_json)


async def _ended(topics: Topics, before: TopicInfo) -> TopicInfo:
    """Wait until the topic's move is over, and return how it stands then."""
    while True:
        await asyncio.sleep(LOOK)
        info = await topics.get(before.topic)
        if (info.partitions, info.moving_to) != (before.partitions, before.moving_to):
            return info


def _tell(info: TopicInfo, partitions: int, as_json: bool) -> None:
    """Print how the topic stands, or fail if nothing could be begun."""
    if info.moving_to and not _is_on_way(info, partitions):
        fail(f"{_move(info)}; nothing was begun, run the same command again once that has ended", FAILURE)
    if as_json:
        output.document(document(info))
    elif info.moving_to:
        typer.echo(_move(info))
    else:
        typer.echo(f"{output.safe(info.topic)} has {output.partitions(info.partitions)}")
    if not _is_there(info, partitions) and info.moving_to != partitions:
        words = f"{partitions} are further steps away: run the same command again once this one has ended"
        typer.echo(f"relay: {words}", err=True)


def _is_there(info: TopicInfo, partitions: int) -> bool:
    return not info.moving_to and info.partitions == partitions


def _is_on_way(info: TopicInfo, partitions: int) -> bool:
    """Whether the move that is under way is a step towards that many."""
    low, high = sorted((info.partitions, partitions))
    return low <= info.moving_to <= high


def _move(info: TopicInfo) -> str:
    return f"{output.safe(info.topic)} moves from {info.partitions} to {output.partitions(info.moving_to)}"


def _afterwards(info: TopicInfo, partitions: int) -> str:
    return "" if _is_on_way(info, partitions) else f"; that has to end before it can move to {partitions}"
