"""`relay recur apply`: makes Redis as a file says, and prints the difference first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from relay.cli.recurrences import asking, shown
from relay.cli.terminal import output
from relay.cli.terminal.exits import BAD_INPUT, FAILURE, fail, settings_errors
from relay.cli.terminal.relay_connection import RelayConnection
from relay.client import FailedPrecondition, InvalidArgument, Recurrence, RelayClient
from relay.client.calls.recurrence_values import PutResult, RuleFields
from relay.declared.reading import CalendarEntry, Entry, read_declared
from relay.v1 import recurrence_service_pb2 as pb

CREATE, REPLACE, DELETE, COMPARE = "create", "replace", "delete", "compare"
SIGNS = {CREATE: "+", REPLACE: "~", DELETE: "-", COMPARE: "?"}
"""What may have to be done, and how it is printed. COMPARE is for a recurrence whose content is withheld from
this caller, and of which all else is as the file says: the relay, which is given it again, knows whether it
differs."""

CONTENT = frozenset({"payload", "message", "headers", "content_type", "seal_with", "content_withheld"})


@dataclass(frozen=True, slots=True)
class Difference:
    """What has to be done about one recurrence. `wanted` is what the file says, and None if it is to go;
    `version` is that of what is there, 0 if nothing is. `fields` has what is there and what is wanted, by the
    names of the fields that differ."""

    change: str
    topic: str
    recurrence_id: str
    wanted: Recurrence | None
    place: str
    version: int
    fields: Mapping[str, tuple[Any, Any]]

    def print(self, as_json: bool) -> None:
        """Print it, as one document or as lines."""
        if as_json:
            names = {"change": self.change, "topic": self.topic, "recurrence_id": self.recurrence_id}
            output.document({**names, "fields": {name: list(pair) for name, pair in self.fields.items()}})
            return
        named = f"{SIGNS[self.change]} {output.name(self.topic, self.recurrence_id)}"
        if self.change == COMPARE:
            typer.echo(f"{named}: its content is withheld, so the relay compares it")
            return
        typer.echo(named)
        for name, (there, wanted) in self.fields.items():
            if self.change == CREATE:
                typer.echo(f"    {name}: {_shown(wanted)}")
            elif self.change == REPLACE:
                typer.echo(f"    {name}: {_shown(there)} -> {_shown(wanted)}")


@dataclass(frozen=True, slots=True)
class CalendarDifference:
    """What has to be done about one calendar. `there` are its dates in Redis, None if it does not exist."""

    change: str
    entry: CalendarEntry
    there: Sequence[str] | None

    def print(self, as_json: bool) -> None:
        """Print it, as one document or as lines."""
        there, wanted = self.there or (), self.entry.dates
        if as_json:
            dates = None if self.there is None else list(there)
            fields = {"dates": [dates, list(wanted)]}
            output.document({"change": self.change, "calendar": self.entry.name, "fields": fields})
            return
        typer.echo(f"{SIGNS[self.change]} calendar {self.entry.name}")
        for sign, days in (("-", set(there) - set(wanted)), ("+", set(wanted) - set(there))):
            for day in sorted(days):
                typer.echo(f"    {sign} {day}")


def apply(
    connection: RelayConnection,
    file: Path,
    prune: bool,
    topics: Sequence[str],
    dry_run: bool,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Put what differs, and with `prune` delete what the file doesn't name in its topics and in `topics`."""
    if topics and not prune:
        fail("--topic: says where --prune looks; give it with --prune", BAD_INPUT)
    with settings_errors():
        entries, calendars = read_declared(file)

    async def done(client: RelayClient) -> None:
        found = [each for entry in entries if (each := await _difference(client, entry))]
        closed = [it for calendar in calendars if (it := await _calendar_difference(client, calendar))]
        unchanged = len(entries) - len(found) + len(calendars) - len(closed)
        if prune:
            found += await _left_over(client, entries, topics)
        changes: list[Difference | CalendarDifference] = [*closed, *found]
        for change in changes:
            change.print(as_json)
        made = [each.change for each in changes]
        if not dry_run:
            for calendar in closed:  # first, since rules may name them
                await client.calendars.put(
                    calendar.entry.name, calendar.entry.dates, note=note, durability=durability
                )
            made = [each.change for each in closed]
            made += [await _make(client, each, note, durability) for each in found]
        if not as_json:
            typer.echo(_told([each for each in made if each], unchanged + made.count(""), dry_run), err=True)

    connection.ask(done)


async def _calendar_difference(client: RelayClient, entry: CalendarEntry) -> CalendarDifference | None:
    found = await client.calendars.get(entry.name)
    there = None if found is None else [day.isoformat() for day in found.dates]
    if there == list(entry.dates):
        return None
    return CalendarDifference(CREATE if there is None else REPLACE, entry, there)


async def _difference(client: RelayClient, entry: Entry) -> Difference | None:
    topic, recurrence_id = entry.spec.topic, entry.spec.recurrence_id
    wanted = Recurrence.from_proto(pb.Recurrence(spec=entry.spec))
    there = await client.recurrences.get(topic, recurrence_id)
    was = {} if there is None else _flat(shown.spec(there))
    will = _flat(shown.spec(wanted))
    names = [name for name in {**was, **will} if was.get(name) != will.get(name)]
    if there is not None and there.content_withheld:
        names = [name for name in names if name not in CONTENT]
        if not names:
            return Difference(COMPARE, topic, recurrence_id, wanted, entry.place, there.version, {})
    if there is not None and not names:
        return None
    fields = {
        name: (was.get(name), will.get(name)) for name in names if name not in ("topic", "recurrence_id")
    }
    version = 0 if there is None else there.version
    change = CREATE if there is None else REPLACE
    return Difference(change, topic, recurrence_id, wanted, entry.place, version, fields)


async def _left_over(
    client: RelayClient, entries: Sequence[Entry], topics: Sequence[str]
) -> list[Difference]:
    named = {(entry.spec.topic, entry.spec.recurrence_id) for entry in entries}
    return [
        Difference(DELETE, topic, each.recurrence_id, None, "", each.version, {})
        for topic in sorted({*topics, *(topic for topic, _ in named)})
        async for each in client.recurrences.list(topic)
        if (topic, each.recurrence_id) not in named
    ]


async def _make(client: RelayClient, wanted: Difference, note: str, durability: str) -> str:
    """Do what was printed, to what it was printed of. Return what was done, an empty text for nothing."""
    if wanted.wanted is None:
        await client.recurrences.delete(wanted.topic, wanted.recurrence_id, note=note, durability=durability)
        return DELETE
    options = asking.options_of(wanted.wanted)
    try:
        put = await client.recur(
            wanted.recurrence_id,
            topic=wanted.topic,
            if_version=wanted.version,
            note=note,
            durability=durability,
            **options,
        )
    except InvalidArgument as error:
        path = "rule." if error.field in RuleFields.__optional_keys__ else ""
        fail(f"{wanted.place}: {path}{error.message}", BAD_INPUT)
    except FailedPrecondition as error:
        fail(f"{wanted.place}: {error.message}, and run the command again", FAILURE)
    if wanted.change != COMPARE:
        return wanted.change
    return "" if put.result is PutResult.UNCHANGED else REPLACE


def _flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recurrence, with those of its rule among them."""
    rule = {f"rule.{name}": value for name, value in spec["rule"].items()}
    return rule | {name: value for name, value in spec.items() if name != "rule"}


def _shown(value: Any) -> str:
    return "none" if value is None else output.safe(shown.line(value))


def _told(changes: Sequence[str], unchanged: int, dry_run: bool) -> str:
    counts = [(changes.count(change), f"{change}d") for change in SIGNS]
    said = [f"{count} {word}" for count, word in (*counts, (unchanged, "unchanged")) if count]
    done = "nothing is changed with --dry-run: " if dry_run else ""
    return f"{done}{', '.join(said) or 'the file names no recurrences'}"
