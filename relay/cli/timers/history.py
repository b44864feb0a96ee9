"""`history`: one timer's life as lines of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from relay.cli.terminal import output, tables
from relay.cli.terminal.exits import NOT_FOUND, fail
from relay.cli.terminal.relay_connection import RelayConnection
from relay.cli.terminal.watching import show_again
from relay.cli.topics.topic_calls import distance
from relay.client import DeadLetterInfo, RelayClient, TimerEvent, TimerHistory, TimerNow, TimerStanding

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_PAGE = 500
COUNTED = ("nacked", "released", "dead", "expired", "parked")
DUE_ANEW = ("scheduled", "replaced", "rescheduled", "run")
LEASED = ("claimed", "received", "extended")
FOREIGN = {"lease": "leased it", "intent": "scheduled it again"}
TITLES = ("when", "", "what", "relay", "")


def history(
    connection: RelayConnection, topic: str, timer_id: str, limit: int, every: str | None, as_json: bool
) -> None:
    """Show how a timer stands, and its newest `limit` events, the oldest of these first."""

    async def look(client: RelayClient) -> tuple[TimerHistory, TimerNow, list[TimerEvent], bool]:
        page = await client.history(topic, timer_id, page_size=min(limit + 1, MAX_PAGE))
        now, events = page.now, list(page.events)
        assert now is not None  # of the first page
        while page.next_page_token and len(events) <= limit:
            token = page.next_page_token
            page = await client.history(
                topic, timer_id, page_size=min(limit + 1 - len(events), MAX_PAGE), page_token=token
            )
            events += page.events
        if now.standing is TimerStanding.ABSENT and not events and every is None:
            why = page.events_missing or "the journal has nothing of it"
            fail(f"there is no timer {output.name(topic, timer_id)}; {why}", NOT_FOUND)
        return page, now, events[:limit][::-1], len(events) > limit

    async def render(client: RelayClient) -> RenderableType:
        page, now, events, has_more = await look(client)
        if has_more:
            tables.remark(f"there are more: these are the newest {limit} (--limit)")
        elif page.events_missing:
            tables.remark(f"relay: {page.events_missing}")
        called = output.name(topic, timer_id)
        lines = [standing(called, now), *(letter(each, now.as_of_time) for each in now.dead_letters)]
        if not events:
            return "\n".join(lines)
        from rich.console import Group
        from rich.text import Text

        return Group(Text("\n".join(lines)), tables.table(TITLES, [*rows(events, now.as_of_time)]))

    async def print_documents(client: RelayClient) -> None:
        page, now, events, _ = await look(client)
        output.document(document(topic, timer_id, now, page))
        for event in events:
            output.document(event_document(event))

    show_again(connection, every, print_documents if as_json else None, render)


def standing(called: str, now: TimerNow) -> str:
    """Say how the timer stands, in a sentence."""
    timer, as_of = now.timer, now.as_of_time
    if now.standing is TimerStanding.DEAD:
        return f"{called} is dead"
    if timer is None:
        return f"{called} is not there" if now.standing is TimerStanding.ABSENT else f"{called} is unknown"
    claim = f"{output.iso(timer.next_claim_time)} ({distance(timer.next_claim_time - as_of)})"
    if now.standing is TimerStanding.LEASED:
        return f"{called} is being delivered, attempt {timer.attempts + 1}; its lease ends at {claim}"
    if now.standing is TimerStanding.WAITING:
        tried = f", after {_attempts(timer.attempts)}" if timer.attempts else ""
        return f"{called} waits until {claim}{tried}"
    if now.paused_until_time is not None:
        return f"{called} is due since {claim}: its topic is paused"
    return f"{called} is due since {claim}, and no relay has claimed it: is an application connected?"


def letter(found: DeadLetterInfo, as_of: datetime) -> str:
    """Say that it died, in a line."""
    what = f"died at {output.iso(found.death_time)} ({distance(found.death_time - as_of)}): {found.reason}"
    error = f": {output.safe(found.last_error)}" if found.last_error else ""
    return f"  dead letter {found.dead_id} {what}{error}"


def rows(events: Sequence[TimerEvent], as_of: datetime) -> Iterator[tuple[str, ...]]:
    """A line for each event. Renewals of one lease in a row have one line."""
    for place, event in enumerate(events):
        following = events[place + 1] if place + 1 < len(events) else None
        if event.kind == "extended" and following is not None and _goes_on(event, following):
            continue
        when, ago = output.iso(event.time), distance(event.time - as_of)
        yield when, ago, event.kind, event.relay, "; ".join(facts(event))


def _goes_on(event: TimerEvent, following: TimerEvent) -> bool:
    return following.kind == "extended" and following.lease == event.lease


def facts(event: TimerEvent) -> Iterator[str]:
    """What there is to say of an event, in words."""
    if event.kind == "claimed":
        yield f"attempt {event.attempts + 1}"
    elif event.attempts and event.kind in COUNTED:
        yield f"after {_attempts(event.attempts)}"
    yield from filter(None, (event.reason, event.error))
    yield from _instants(event)
    yield from _circumstances(event)


def _instants(event: TimerEvent) -> Iterator[str]:
    if event.due_time is not None and event.kind in DUE_ANEW:
        before = f", before {output.iso(event.previous_due_time)}" if event.previous_due_time else ""
        yield f"due {output.iso(event.due_time)}{before}"
    if event.expire_time is not None:
        yield f"expires {output.iso(event.expire_time)}"
    if event.next_claim_time is not None:
        what = "lease ends" if event.kind in LEASED else "again"
        yield f"{what} {output.iso(event.next_claim_time)}"


def _circumstances(event: TimerEvent) -> Iterator[str]:
    if event.recurrence_id:
        yield f"of recurrence {event.recurrence_id}"
    if event.principal:
        yield f"by {event.principal}"
    if event.other_partition is not None:
        way = "to" if event.kind == "left" else "from"
        yield f"partition {event.partition} {way} {event.other_partition}"
    if event.refused:
        yield f"refused: {event.refused}"
    if event.adopted:
        yield f"a foreign writer had {FOREIGN.get(event.adopted, event.adopted)}"
    if event.dead_id:
        yield f"dead letter {event.dead_id}"


def _attempts(count: int) -> str:
    return f"{count} attempt{'' if count == 1 else 's'}"


def document(topic: str, timer_id: str, now: TimerNow, page: TimerHistory) -> dict[str, Any]:
    """Return how the timer stands, for scripts."""
    return {
        "topic": topic,
        "timer_id": timer_id,
        "standing": now.standing.value,
        "as_of_time": output.iso(now.as_of_time),
        **({"timer": output.fields(now.timer)} if now.timer is not None else {}),
        "dead_ids": [each.dead_id for each in now.dead_letters],
        **({"paused_until": output.iso(now.paused_until_time)} if now.paused_until_time else {}),
        **({"events_missing": page.events_missing} if page.events_missing else {}),
    }


def event_document(event: TimerEvent) -> dict[str, Any]:
    """Return an event for scripts, without what is empty."""
    found = {name: getattr(event, name) for name in TimerEvent.__slots__}
    return {
        name: output.iso(value) if isinstance(value, datetime) else value
        for name, value in found.items()
        if value not in ("", None, False) or name in ("attempts", "claims", "partition")
    }
