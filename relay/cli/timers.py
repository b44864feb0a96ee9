"""`schedule`, `cancel`, `get` and `list`, by way of `relay.client`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import typer

from relay.cli import output, parse
from relay.cli.exits import BAD_INPUT, NOT_FOUND, client_errors, fail
from relay.client import ChangeResult, RelayClient, TimerState
from relay.client.errors import CallError
from relay.client.topics import Topics
from relay.client.wire import GrpcWire

T = TypeVar("T")

MAX_PAGE = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `schedule`, as they were typed."""

    topic: str
    timer_id: str | None
    delay: str | None
    at: str | None
    payload: str | None
    payload_file: Path | None
    headers: tuple[str, ...]
    content_type: str
    create_only: bool
    expire_after: str | None


def schedule(asked: Asked, target: str, timeout: float, as_json: bool) -> None:
    """Store a timer and show it."""
    if (asked.delay is None) == (asked.at is None):
        fail("give --in or --at, and not both", BAD_INPUT)
    delay = parse.length(asked.delay, "--in") if asked.delay is not None else None
    due_time = parse.instant(asked.at, "--at") if asked.at is not None else None
    expire_after = (
        parse.length(asked.expire_after, "--expire-after") if asked.expire_after is not None else None
    )
    headers = parse.headers(asked.headers)
    payload = parse.payload(asked.payload, asked.payload_file)
    timer = _call(
        target,
        timeout,
        lambda client: client.schedule(
            asked.topic,
            payload,
            delay=delay,
            due_time=due_time,
            timer_id=asked.timer_id,
            headers=headers,
            content_type=asked.content_type,
            create_only=asked.create_only,
            expire_after=expire_after,
        ),
    )
    output.scheduled(timer, as_json)


def cancel(topic: str, timer_id: str, target: str, timeout: float, as_json: bool) -> None:
    """Remove a timer."""
    cancelled = bool(_call(target, timeout, lambda client: client.cancel(topic, timer_id)))
    if as_json:
        output.document({"topic": topic, "timer_id": timer_id, "cancelled": cancelled})
    elif cancelled:
        typer.echo(f"cancelled {output.name(topic, timer_id)}")
    if not cancelled:
        _fail_missing(topic, timer_id, target, timeout)


def get(topic: str, timer_id: str, target: str, timeout: float, as_json: bool) -> None:
    """Show a timer."""
    timer = _call(target, timeout, lambda client: client.get(topic, timer_id))
    if timer is None:
        _fail_missing(topic, timer_id, target, timeout)
    else:
        output.timer(timer, as_json)


def run(topic: str, timer_id: str, target: str, timeout: float, as_json: bool) -> None:
    """Make a timer due now."""
    result = _call(target, timeout, lambda client: client.run_timer(topic, timer_id))
    if as_json:
        output.document({"topic": topic, "timer_id": timer_id, "result": result.value})
    elif result is ChangeResult.IN_FLIGHT:
        typer.echo(f"{output.name(topic, timer_id)} is being delivered right now, and was left alone")
    elif result is ChangeResult.RUN:
        typer.echo(f"{output.name(topic, timer_id)} is due now")
    if result is ChangeResult.NOT_FOUND:
        _fail_missing(topic, timer_id, target, timeout)


def list_(topic: str, state: str | None, limit: int, target: str, timeout: float, as_json: bool) -> None:
    """Show up to `limit` timers, JSON lines as they come."""

    async def listed(client: RelayClient) -> None:
        listing = output.Listing(as_json)
        wanted = TimerState(state) if state else None
        timers = client.list(topic, state=wanted, page_size=min(limit + 1, MAX_PAGE))
        async for timer in timers:
            if listing.count == limit:
                listing.has_more = True
                break
            listing.add(timer)
        listing.end(topic)

    _call(target, timeout, listed)


def _call(target: str, timeout: float, ask: Callable[[RelayClient], Coroutine[object, object, T]]) -> T:
    """Open a client, ask, close; errors end the command."""

    async def run() -> T:
        async with RelayClient(target, timeout=timeout) as client:
            return await ask(client)

    with client_errors(target):
        return asyncio.run(run())


def _fail_missing(topic: str, timer_id: str, target: str, timeout: float) -> None:
    fail(f"there is no timer {output.name(topic, timer_id)}{_promoted(topic, target, timeout)}", NOT_FOUND)


def _promoted(topic: str, target: str, timeout: float) -> str:
    """What else may have become of a timer that isn't there: where due timers go, if the relay tells."""

    async def ask() -> str:
        wire = GrpcWire(target)
        try:
            return (await Topics(lambda: wire, timeout).get(topic)).dispatch
        finally:
            await wire.close()

    try:
        dispatch = asyncio.run(ask())
    except CallError:
        return ""
    told = "due timers of this topic go to its {} at once, and one that has can't be cancelled any more"
    return "" if dispatch == "lease" else f"; {told.format(dispatch)}"
