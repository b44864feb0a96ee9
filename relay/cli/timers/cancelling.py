"""`cancel` of many timers: those of a prefix, of a window of due times, or in a state.

It may be cut off at any moment. What is cancelled stays so, and the same command goes on with the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import typer

from relay.cli.terminal import known_topics, output, parse
from relay.cli.terminal.confirming import confirm
from relay.cli.terminal.exits import BAD_INPUT, OK, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.client import ChangeResult, RelayClient, TimerChange, TimerInfo, TimerState

PAGE = 500
"""Timers that one call lists, and that are cancelled before the next one."""

AT_ONCE = 100
"""Calls that are under way at once; the relay makes few script calls of them."""

NAMED = 10
"""Timers that a dry run names; --json names all."""


@dataclass(frozen=True, slots=True)
class TimerSelection:
    """Which timers are meant: all that is given must hold. `due` is a window, with its first instant and
    without its end."""

    prefix: str = ""
    due: tuple[datetime, datetime] | None = None
    state: TimerState | None = None

    @classmethod
    def of(cls, prefix: str | None, due_between: tuple[str, str] | None, state: str | None) -> TimerSelection:
        """Read what was typed. Ends the command for what can't be meant."""
        if prefix is None and due_between is None and state is None:
            fail("give a timer's ID, or --prefix, --due-between or --state for many", BAD_INPUT)
        if prefix == "":
            fail("--prefix: is empty; leave it out to mean all ids", BAD_INPUT)
        due = None
        if due_between is not None:
            start, end = (parse.instant(text, "--due-between") for text in due_between)
            if not start < end:
                fail("--due-between: the second instant must be after the first one", BAD_INPUT)
            due = start, end
        return cls(prefix or "", due, TimerState(state) if state else None)

    def holds(self, timer: TimerInfo) -> bool:
        """Whether a timer is meant."""
        is_due = self.due is None or self.due[0] <= timer.due_time < self.due[1]
        return is_due and timer.timer_id.startswith(self.prefix)

    async def pages(self, client: RelayClient, topic: str) -> AsyncIterator[list[TimerInfo]]:
        """Yield those that are meant, a page of the topic at a time: it is read whole, in the order of
        claims."""
        page: list[TimerInfo] = []
        looked_at = 0
        async for timer in client.list(topic, state=self.state, page_size=PAGE):
            looked_at += 1
            if self.holds(timer):
                page.append(timer)
            if looked_at % PAGE == 0:
                yield page
                page = []
        yield page


@dataclass(frozen=True, slots=True)
class CancelOptions:
    """The other options."""

    dry_run: bool
    sure: bool
    durability: str
    as_json: bool


@dataclass(slots=True)
class CancelTally:
    """What became of the timers so far."""

    counts: Counter[ChangeResult] = field(default_factory=Counter)
    under_way: int = 0

    def lines(self, topic: str) -> list[str]:
        """Say it, in sentences."""
        of = self.counts
        told = [f"cancelled {output.timers(of[ChangeResult.CANCELLED])} of {output.safe(topic)}"]
        if self.under_way:
            told.append(f"{self.under_way:,} of them were being delivered, and handlers may still be running")
        if of[ChangeResult.NOT_FOUND]:
            told.append(f"{of[ChangeResult.NOT_FOUND]:,} were gone when their turn came")
        left = of[ChangeResult.UNCHANGED] + of[ChangeResult.IN_FLIGHT]
        if left:
            told.append(f"left {left:,} alone that had changed since, and are not meant any more")
        return told


def cancel_many(
    connection: RelayConnection, topic: str, selection: TimerSelection, how: CancelOptions
) -> None:
    """Remove the timers, after a confirmation; a dry run shows how many they are."""
    if how.dry_run or not how.sure:
        count, first = connection.ask(lambda client: _count(client, topic, selection, how))
        if how.dry_run:
            _show(topic, count, first, how)
            raise typer.Exit(OK)
        if count:
            confirm(
                lambda: f"Cancel {output.timers(count)} of {output.safe(topic)}?",
                reason="it removes timers for good",
                refused="nothing was cancelled",
            )
    tally, is_done = CancelTally(), False

    async def run(client: RelayClient) -> None:
        async for page in selection.pages(client, topic):
            await cancel_page(client, topic, page, selection, how, tally)

    try:
        connection.ask(run)
        is_done = True
    finally:
        for line in () if how.as_json else tally.lines(topic):
            typer.echo(line, err=not is_done)
        if not is_done:
            typer.echo("relay: this was not all; the same command goes on with the others", err=True)


async def _count(
    client: RelayClient, topic: str, selection: TimerSelection, how: CancelOptions
) -> tuple[int, list[TimerInfo]]:
    """How many timers are meant, and the first of them; all of them for a dry run in JSON."""
    count, first = 0, list[TimerInfo]()
    async for page in selection.pages(client, topic):
        count += len(page)
        if how.dry_run and how.as_json:
            for timer in page:
                output.document({**output.fields(timer), "result": "matched"})
        first += page[: max(NAMED - len(first), 0)]
    if not count:
        await known_topics.require(client.topics, topic)
    return count, first


def _show(topic: str, count: int, first: Sequence[TimerInfo], how: CancelOptions) -> None:
    if how.as_json:
        return
    typer.echo(f"would cancel {output.timers(count)} of {output.safe(topic)}")
    for timer in first:
        typer.echo(f"  {output.safe(timer.timer_id)}  due {output.iso(timer.due_time)}  {timer.state.value}")
    if count > len(first):
        typer.echo(f"  and {count - len(first):,} more (--json names all)")


async def cancel_page(
    client: RelayClient,
    topic: str,
    page: Sequence[TimerInfo],
    selection: TimerSelection,
    how: CancelOptions,
    tally: CancelTally,
) -> None:
    """Cancel what a page has, as far as it is still what was asked for.

    This has a race: a timer is listed, somebody moves it out of the window, or its delivery ends and another
    attempt is to follow, and then it is cancelled. So each call has the condition that the timer is as it was
    listed. A leased timer may have ended, and somebody may have scheduled its id again: that one is due at
    another time. All that have begun are counted, also where one fails.
    """
    is_this_one = selection.due is not None or selection.state is TimerState.LEASED
    left = iter(page)
    failures: list[Exception] = []

    async def work() -> None:
        for timer in left:
            if failures:
                return
            try:
                change = await client.cancel(
                    topic,
                    timer.timer_id,
                    only_if_pending=selection.state is TimerState.PENDING,
                    only_if_leased=selection.state is TimerState.LEASED,
                    only_if_due_at=timer.due_time if is_this_one else None,
                    durability=how.durability,
                )
            except Exception as failure:  # noqa: BLE001  (it is raised below)
                failures.append(failure)
                return
            _tell(topic, timer, change, how, tally)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    if failures:
        raise failures[0]


def _tell(topic: str, timer: TimerInfo, change: TimerChange, how: CancelOptions, tally: CancelTally) -> None:
    tally.counts[change.result] += 1
    tally.under_way += bool(change) and change.delivery_under_way
    if how.as_json:
        output.document({"topic": topic, "timer_id": timer.timer_id, "result": change.result.value})
