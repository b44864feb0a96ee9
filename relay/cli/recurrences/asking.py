"""`relay recur put`, `get`, `list` and their like, by way of `relay.client`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from relay.cli.recurrences import shown
from relay.cli.terminal import known_topics, output, parse, tables
from relay.cli.terminal.exits import BAD_INPUT, NOT_FOUND, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.terminal.watching import show_again
from relay.client import RelayClient
from relay.client.calls.recurrence_values import (
    BackfillOverlap,
    PutResult,
    RecurOptions,
    Recurrence,
    RecurrenceHistory,
    RuleFields,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_PAGE = 500
TITLES = ("recurrence id", "rule", "next", "runs>", "left out", "paused")


@dataclass(frozen=True, slots=True)
class TypedRule:
    """The options that say a rule."""

    cron: str | None
    rrule: str | None
    every: str | None
    anchor: str | None
    zone: str | None
    gap: str | None
    fold: str | None
    start: str | None
    end: str | None
    leave_out: tuple[str, ...]
    calendars: tuple[str, ...]

    def read(self) -> dict[str, Any]:
        """Return what is given, as the client takes it."""
        if sum(each is not None for each in (self.cron, self.rrule, self.every)) != 1:
            fail("give one of --cron, --rrule and --every", BAD_INPUT)
        moments = {"anchor_time": self.anchor, "start_time": self.start, "end_time": self.end}
        options = {"anchor_time": "--anchor", "start_time": "--start", "end_time": "--end"}
        return {
            **_given(cron=self.cron, rrule=self.rrule, zone=self.zone, gap=self.gap, fold=self.fold),
            **_lengths(every=self.every),
            **{
                name: parse.instant(text, options[name]) for name, text in moments.items() if text is not None
            },
            **({"leave_out": self.leave_out} if self.leave_out else {}),
            **({"calendars": self.calendars} if self.calendars else {}),
        }


NO_RULE = TypedRule(None, None, None, None, None, None, None, None, None, (), ())


@dataclass(frozen=True, slots=True)
class TypedContent:
    """The options that say what each occurrence holds."""

    payload: str | None
    payload_file: Path | None
    headers: tuple[str, ...]
    content_type: str
    seal_with: str


@dataclass(frozen=True, slots=True)
class TypedPolicies:
    """The options about what happens to occurrences."""

    overlap: str | None
    catch_up: str | None
    catch_up_window: str | None
    jitter: str | None
    expire_after: str | None
    max_runs: int


@dataclass(frozen=True, slots=True)
class TypedBackfill:
    """The options that say which instants are filled in, and how."""

    start: str
    end: str
    interval: str
    overlap: str | None


def options(rule: TypedRule, content: TypedContent, policies: TypedPolicies) -> RecurOptions:
    """Return what is given, as the client takes it."""
    return cast(
        "RecurOptions",
        {
            **rule.read(),
            "payload": parse.payload(content.payload, content.payload_file),
            "headers": parse.headers(content.headers),
            "content_type": content.content_type,
            **({"seal_with": content.seal_with} if content.seal_with else {}),
            **_given(overlap=policies.overlap, catch_up=policies.catch_up),
            **_lengths(
                catch_up_window=policies.catch_up_window,
                jitter=policies.jitter,
                expire_after=policies.expire_after,
            ),
            "max_runs": policies.max_runs,
        },
    )


def put(
    connection: RelayConnection,
    topic: str,
    recurrence_id: str,
    given: RecurOptions,
    if_version: int | None,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Keep a recurrence, and show when it fires next."""
    found = connection.ask(
        lambda client: client.recur(
            recurrence_id, topic=topic, if_version=if_version, note=note, durability=durability, **given
        )
    )
    if as_json:
        output.document({**shown.document(found), "result": found.result.value})
        return
    called = output.name(topic, recurrence_id)
    done = (
        f"left {called} as it is" if found.result is PutResult.UNCHANGED else f"{found.result.value} {called}"
    )
    typer.echo(f"{done}: version {found.version}, {_next(found)}")


def get(connection: RelayConnection, topic: str, recurrence_id: str, as_json: bool) -> None:
    """Show a recurrence."""
    found = connection.ask(lambda client: client.recurrences.get(topic, recurrence_id))
    if found is None:
        _fail_missing(topic, recurrence_id)
    elif as_json:
        output.document(shown.document(found))
    else:
        typer.echo(output.block(shown.rows(found)))


def list_(
    connection: RelayConnection,
    topic: str,
    prefix: str,
    paused: bool | None,
    limit: int,
    every: str | None,
    as_json: bool,
) -> None:
    """Show up to `limit` recurrences, once or at an interval; JSON lines are printed as they come."""

    async def look(client: RelayClient) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        size = min(limit + 1, MAX_PAGE)
        count, has_more = 0, False
        async for each in client.recurrences.list(topic, prefix=prefix, paused=paused, page_size=size):
            if count == limit:
                has_more = True
                break
            count += 1
            if as_json:
                output.document(shown.document(each))
            else:
                next_time = shown.iso(each.next_time) or "ended"
                left_out, since = shown.counts(each), shown.pause_of(each) if each.paused else ""
                rows.append(
                    (each.recurrence_id, shown.when(each), next_time, str(each.runs), left_out, since)
                )
        if not count:
            await known_topics.require(client.topics, topic)
        if has_more and not as_json:
            tables.remark(f"there are more: these are the first {limit} (--limit)")
        return rows

    async def render(client: RelayClient) -> RenderableType:
        rows = await look(client)
        if not rows:
            tables.remark(f"no recurrences in {output.safe(topic)}")
        return tables.table(TITLES, rows) if rows else ""

    show_again(connection, every, look if as_json else None, render)


def preview(
    connection: RelayConnection,
    topic: str | None,
    recurrence_id: str | None,
    rule: TypedRule,
    count: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Show instants of a rule that is given, or of one that is kept."""
    after_time = parse.instant(after, "--after") if after is not None else None
    given: RuleFields = {}
    if recurrence_id is None:
        given = cast("RuleFields", rule.read())
    elif rule != NO_RULE:
        fail("TOPIC and ID name a rule, and the options say another rule; give one of the two", BAD_INPUT)
    else:
        kept_in, topic = topic or "", None  # whose rule stands already, and goes on
        found = connection.ask(lambda client: client.recurrences.get(kept_in, recurrence_id))
        if found is None:
            _fail_missing(kept_in, recurrence_id)
        else:
            given = rule_of(found)
    meant = topic or ""
    instants = connection.ask(
        lambda client: client.recurrences.preview(topic=meant, count=count, after_time=after_time, **given)
    )
    if as_json:
        for each in instants:
            output.document(
                {
                    "time": output.iso(each.time),
                    "local_time": each.local_time.isoformat(),
                    "left_out": each.left_out,
                    "shifted": shown.span(each.shifted or None),
                }
            )
    elif instants:
        rows = [
            (output.iso(each.time), each.local_time.isoformat(), _note(each.left_out, each.shifted))
            for each in instants
        ]
        tables.show(tables.table(("time", "local time", ""), rows))
    else:
        typer.echo("none: the rule has ended", err=True)


def rule_of(found: Recurrence) -> RuleFields:
    """The rule of a recurrence, as arguments."""
    return cast("RuleFields", _arguments(found, RuleFields.__optional_keys__))


def options_of(found: Recurrence) -> RecurOptions:
    """What a recurrence is, as arguments."""
    return cast("RecurOptions", _arguments(found, RecurOptions.__optional_keys__))


def _arguments(found: Recurrence, names: frozenset[str]) -> dict[str, Any]:
    """Its fields are named as the arguments are, and empty where none is given."""
    values = {name: getattr(found, name) for name in names}
    return {name: value for name, value in values.items() if value not in (None, "")}


def pause(
    connection: RelayConnection, topic: str, recurrence_id: str, note: str, durability: str, as_json: bool
) -> None:
    """Pause a recurrence."""
    found = connection.ask(
        lambda client: client.recurrences.pause(topic, recurrence_id, note, durability=durability)
    )
    if as_json:
        output.document(shown.document(found))
    else:
        typer.echo(f"paused {output.name(topic, recurrence_id)} until it is resumed")


def resume(
    connection: RelayConnection, topic: str, recurrence_id: str, note: str, durability: str, as_json: bool
) -> None:
    """End a pause."""
    found = connection.ask(
        lambda client: client.recurrences.resume(topic, recurrence_id, note=note, durability=durability)
    )
    if as_json:
        output.document(shown.document(found))
    else:
        typer.echo(f"resumed {output.name(topic, recurrence_id)}: {_next(found)}")


def trigger(
    connection: RelayConnection, topic: str, recurrence_id: str, note: str, durability: str, as_json: bool
) -> None:
    """Make an occurrence now."""
    timer_id = connection.ask(
        lambda client: client.recurrences.trigger(topic, recurrence_id, note=note, durability=durability)
    )
    if as_json:
        output.document({"topic": topic, "recurrence_id": recurrence_id, "timer_id": timer_id})
    elif timer_id:
        typer.echo(f"made {output.name(topic, timer_id)}")
    else:
        called = output.name(topic, recurrence_id)
        typer.echo(f"made none: the last occurrence of {called} has not ended; see relay recur history")


def backfill(
    connection: RelayConnection,
    topic: str,
    recurrence_id: str,
    given: TypedBackfill,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Make occurrences for instants that have passed."""
    since, until = parse.past(given.start, "--from"), parse.past(given.end, "--to")
    apart = parse.length(given.interval, "--interval")
    overlap = cast("BackfillOverlap | None", given.overlap)
    done = connection.ask(
        lambda client: client.recurrences.backfill(
            topic,
            recurrence_id,
            since,
            until,
            interval=apart,
            overlap=overlap,
            note=note,
            durability=durability,
        )
    )
    first, last = shown.iso(done.first_time), shown.iso(done.last_time)
    if as_json:
        output.document({**done._asdict(), "first_time": first, "last_time": last})
    elif done.waiting:
        made = f"{done.occurrences - done.waiting} of {_count(done.occurrences)}"
        typer.echo(f"made {made}, of the instants from {first} to {last}; the others come one after another")
    elif done.occurrences:
        typer.echo(f"made {_count(done.occurrences)}, of the instants from {first} to {last}")
    else:
        typer.echo("made none: the rule has no instant between the two")


def delete(
    connection: RelayConnection,
    topic: str,
    recurrence_id: str,
    cancel_waiting: bool,
    note: str,
    durability: str,
    as_json: bool,
) -> None:
    """Remove a recurrence."""
    done = connection.ask(
        lambda client: client.recurrences.delete(
            topic, recurrence_id, cancel_waiting=cancel_waiting, note=note, durability=durability
        )
    )
    if as_json:
        output.document({"topic": topic, "recurrence_id": recurrence_id, **done._asdict()})
    elif done:
        told = f", and cancelled {_count(done.cancelled)}" if cancel_waiting else ""
        typer.echo(f"deleted {output.name(topic, recurrence_id)}{told}")
    elif done.cancelled:
        typer.echo(
            f"cancelled {_count(done.cancelled)} of {output.name(topic, recurrence_id)}, which was gone"
        )
    if not done and not done.cancelled:
        _fail_missing(topic, recurrence_id)


def history(
    connection: RelayConnection,
    topic: str,
    recurrence_id: str,
    limit: int,
    every: str | None,
    as_json: bool,
) -> None:
    """Show what came of the latest instants, once or at an interval."""

    async def look(client: RelayClient) -> RecurrenceHistory:
        instants = await client.recurrences.history(topic, recurrence_id, limit=limit)
        for each in instants if as_json else ():
            output.document(shown.passed(each))
        if instants.outcomes_missing:
            tables.remark(instants.outcomes_missing)
        return instants

    async def render(client: RelayClient) -> RenderableType:
        instants = await look(client)
        if not instants:
            tables.remark("no instant has come yet")
            return ""
        titles = ("time", "occurrence", "late by>", "outcome", "attempts>", "ended")
        return tables.table(titles, [shown.passed_row(each) for each in instants])

    show_again(connection, every, look if as_json else None, render)


def _count(occurrences: int) -> str:
    return f"{occurrences} occurrence{'' if occurrences == 1 else 's'}"


def _next(found: Recurrence) -> str:
    if found.next_time is None:
        return "it has ended"
    paused = ", while it is paused" if found.paused else ""
    return f"next at {output.iso(found.next_time)}{paused}"


def _note(left_out: str, shifted: timedelta) -> str:
    if left_out:
        return f"left out: {left_out}"
    return f"shifted by {shown.span(shifted)}" if shifted else ""


def _fail_missing(topic: str, recurrence_id: str) -> None:
    fail(f"there is no recurrence {output.name(topic, recurrence_id)}", NOT_FOUND)


def _given(**texts: str | None) -> dict[str, Any]:
    return {name: str(text) for name, text in texts.items() if text is not None}


def _lengths(**texts: str | None) -> dict[str, Any]:
    """Read lengths of time, which have options by their names."""
    return {
        name: parse.length(text, f"--{name.replace('_', '-')}")
        for name, text in texts.items()
        if text is not None
    }
