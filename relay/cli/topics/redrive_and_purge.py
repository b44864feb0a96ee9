"""`dead redrive` and `dead purge`: work on many dead letters at a rate, and report what became of each.

Both may be cut off at any moment. What is done stays done, and the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import typer

from relay.cli.terminal import known_topics, output, tables
from relay.cli.terminal.confirming import confirm
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, NOT_FOUND, OK
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.topics.dead_letter_selection import Selection
from relay.cli.topics.dead_letters import document
from relay.cli.topics.topic_calls import tell_pause
from relay.client.calls.topics import DeadLetterInfo, RedriveResult, Topics

BATCH = 500
"""The most dead letters that one call takes."""

STEP = 0.2
"""Seconds between two calls at a rate, if that is time for more than one letter."""

NAMED = 10
"""Conflicts that are reported one by one; --json shows all."""

Advance = Callable[[int], None]
"""Moves the progress bar by a number of letters."""


@dataclass(frozen=True, slots=True)
class How:
    """Options that both have. `rate` is in letters a second; 0 means no limit."""

    rate: float
    dry_run: bool
    note: str
    durability: str
    as_json: bool

    @property
    def batch(self) -> int:
        """The number of letters of one call."""
        return min(max(int(self.rate * STEP), 1), BATCH) if self.rate else BATCH


@dataclass(slots=True)
class LetterTally:
    """What became of the letters so far."""

    counts: dict[RedriveResult, int] = field(default_factory=dict)
    purged: int = 0
    matched: int = 0

    def of(self, result: RedriveResult) -> int:
        """The number of letters with this result."""
        return self.counts.get(result, 0)


def redrive(connection: RelayConnection, topic: str, selection: Selection, how: How) -> None:
    """Bring the letters back to life; exit with 1 if some are in conflict, 3 if some that were named are
    gone."""
    tally = LetterTally()

    async def work(topics: Topics, names: list[str], letters: list[DeadLetterInfo]) -> None:
        results = await topics.redrive(topic, names, note=how.note, durability=how.durability)
        timer_ids = {letter.dead_id: letter.timer_id for letter in letters}
        for dead_id, result in zip(names, results, strict=True):
            tally.counts[result] = tally.counts.get(result, 0) + 1
            _tell(topic, dead_id, timer_ids.get(dead_id), result, tally, how.as_json)

    def done() -> str:
        return f"redrove {letters_of(topic, tally.of(RedriveResult.REDRIVEN))}"

    _run(connection, topic, selection, how, work, done, tally)
    if tally.of(RedriveResult.REDRIVEN):
        tell_pause(topic, connection)
    conflicts = tally.of(RedriveResult.CONFLICT) + tally.of(RedriveResult.UNKNOWN)
    missing = tally.of(RedriveResult.NOT_FOUND)
    if conflicts > NAMED and not how.as_json:
        typer.echo(f"relay: and {conflicts - NAMED} more conflicts; --json names all", err=True)
    _tell_missing(missing)
    code = FAILURE if conflicts else NOT_FOUND if missing and selection.names else OK
    raise typer.Exit(code)


def _tell(
    topic: str, dead_id: str, timer_id: str | None, result: RedriveResult, tally: LetterTally, as_json: bool
) -> None:
    if as_json:
        named = {} if timer_id is None else {"timer_id": timer_id}
        output.document({"topic": topic, "dead_id": dead_id, **named, "result": result.value})
    elif result is RedriveResult.CONFLICT and tally.of(result) <= NAMED:
        whose = "its timer" if timer_id is None else f"timer {output.name(topic, timer_id)}"
        typer.echo(
            f"relay: {dead_id} is left alone: {whose} exists again; cancel that first, or purge this",
            err=True,
        )


def purge(connection: RelayConnection, topic: str, selection: Selection, how: How, sure: bool) -> None:
    """Remove the letters for good, after a confirmation."""
    if not sure and not how.dry_run:
        _ask(connection, topic, selection)
    tally = LetterTally()

    async def work(topics: Topics, names: list[str], _: list[DeadLetterInfo]) -> None:
        tally.purged += await topics.purge(topic, names, note=how.note, durability=how.durability)

    def done() -> str:
        return f"purged {letters_of(topic, tally.purged)}"

    _run(connection, topic, selection, how, work, done, tally)
    missing = tally.matched - tally.purged
    if how.as_json and not how.dry_run:
        output.document({"topic": topic, "purged": tally.purged, "not_found": missing})
    if not how.dry_run:
        _tell_missing(missing)
        raise typer.Exit(NOT_FOUND if missing and selection.names else OK)


def letters_of(topic: str, count: int) -> str:
    """A number of dead letters, as words of a sentence."""
    return f"{count} dead letter{'' if count == 1 else 's'} of {output.safe(topic)}"


def _tell_missing(count: int) -> None:
    if count:
        typer.echo(f"relay: {count} {'was' if count == 1 else 'were'} not there (any more)", err=True)


def _ask(connection: RelayConnection, topic: str, selection: Selection) -> None:
    def question() -> str:
        total = connection.call(lambda topics: selection.total(topics, topic))
        many = "" if selection.names else f" (it has {total} in all)"
        return f"Remove {selection} of {output.safe(topic)}{many} for good?"

    confirm(question, reason="a purge can't be undone", refused="nothing was removed")


def _run(
    connection: RelayConnection,
    topic: str,
    selection: Selection,
    how: How,
    work: Callable[[Topics, list[str], list[DeadLetterInfo]], Coroutine[Any, Any, None]],
    done: Callable[[], str],
    tally: LetterTally,
) -> None:
    """Hand all batches to `work` at the rate, and report what is done, even if it is cut off."""

    async def run(topics: Topics) -> None:
        total = await selection.total(topics, topic)
        if not total:
            await known_topics.require(topics, topic)
        with _progress(total, quiet=how.as_json or how.dry_run) as advance:
            batches = selection.batches(topics, topic, total, how.batch)
            async for looked, names, letters in _paced(batches, how.rate):
                tally.matched += len(names)
                if how.dry_run:
                    _list(topic, names, letters, how.as_json)
                elif names:
                    await work(topics, names, letters)
                advance(looked)

    try:
        connection.call(run)
    except (KeyboardInterrupt, typer.Exit) as cut:
        code = cut.exit_code if isinstance(cut, typer.Exit) else FAILURE
        if not how.dry_run:
            _tell_cut(done(), tally, code)
        raise typer.Exit(code) from None
    if how.dry_run and not how.as_json:
        typer.echo(f"{letters_of(topic, tally.matched)} match; nothing was changed", err=True)
    elif not how.as_json:
        typer.echo(done())


def _tell_cut(done: str, tally: LetterTally, code: int) -> None:
    """Report how far the command came, and advise a repetition unless bad input was the reason."""
    if code != BAD_INPUT and tally.matched:
        typer.echo(f"relay: cut off: {done} so far; run the same command again to go on", err=True)
    elif tally.purged or tally.counts:
        typer.echo(f"relay: {done} before that", err=True)


Batch = tuple[int, list[str], list[DeadLetterInfo]]


async def _paced(batches: AsyncIterator[Batch], rate: float) -> AsyncIterator[Batch]:
    """Hold each batch back until those before it have had their time. `rate` is in letters a second; 0 means
    no limit."""
    start, taken = time.monotonic(), 0
    async for batch in batches:
        if rate and batch[1]:
            await asyncio.sleep(max(start + taken / rate - time.monotonic(), 0.0))
            taken += len(batch[1])
        yield batch


def _list(topic: str, names: list[str], letters: list[DeadLetterInfo], as_json: bool) -> None:
    """Show what a dry run would take."""
    known = {letter.dead_id: letter for letter in letters}
    for dead_id in names:
        letter = known.get(dead_id)
        if as_json:
            output.document(document(letter) if letter else {"topic": topic, "dead_id": dead_id})
        else:
            typer.echo(f"{dead_id}  {output.safe(letter.timer_id)}  {letter.reason}" if letter else dead_id)


@contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Advance]:
    """Show a progress bar on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("looked at"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=tables.console(err=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
